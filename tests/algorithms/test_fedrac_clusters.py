"""Fed-RAC's clusters: distances, the Dunn index and k-means against the paper's tables and all there are."""

import math
from importlib import resources as files
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from potluck.algorithms.fedrac.clustering.dunn import dunn
from potluck.algorithms.fedrac.clustering.kmeans import kmeans
from potluck.algorithms.fedrac.clustering.methods import cluster, find_clusters, merge_small, rank_clusters
from potluck.algorithms.fedrac.clustering.resources import weigh_resources
from potluck.core.errors import ConfigError

THIRD = (1 / 3, 1 / 3, 1 / 3)

# Table I: resources as printed, and normalised as printed.
TEN = np.array(
    [
        [100, 10, 20],
        [50, 15, 30],
        [75, 8, 25],
        [125, 10, 15],
        [150, 7, 10],
        [110, 10, 25],
        [125, 15, 20],
        [80, 10, 10],
        [75, 15, 20],
        [50, 10, 30],
    ],
    float,
)
PRINTED = np.array(
    [
        [0.5, 0.375, 0.5],
        [0, 1, 1],
        [0.25, 0.125, 0.75],
        [0.25, 0.625, 0.75],
        [1, 0, 0],
        [0.6, 0.375, 0.75],
        [0.75, 1, 0.5],
        [0.3, 0.375, 0],
        [0.25, 1, 0.5],
        [0, 0.375, 1],
    ]
)
# The best two and three clusters of Table I, by participants counted from 1.
TWO = ({1, 3, 4, 5, 6, 8}, {2, 7, 9, 10})
THREE = ({1, 3, 6, 10}, {2, 7, 9}, {4, 5, 8})

fleets = hnp.arrays(
    np.float64,
    st.tuples(st.integers(4, 14), st.just(3)),
    elements=st.integers(0, 50).map(float),
).filter(lambda vectors: len(np.unique(vectors, axis=0)) > 1)


def labels(*clusters):
    out = np.empty(sum(map(len, clusters)), np.int64)
    for label, members in enumerate(clusters):
        out[[who - 1 for who in members]] = label
    return out


def as_sets(labels):
    return {frozenset((np.flatnonzero(labels == label) + 1).tolist()) for label in np.unique(labels)}


def error(points, labels):
    """The squared distances to the means of clusters, added up."""
    return sum(np.square(points[labels == f] - points[labels == f].mean(0)).sum() for f in np.unique(labels))


def least_error(points, count):
    """The least over all labellings: what squares add up to, less what means explain."""
    every = np.array(list(product(range(count), repeat=len(points))))
    member = (every[:, None] == np.arange(count)[:, None]).astype(float)  # [labellings, clusters, points]
    sizes = np.maximum(member.sum(-1), 1)
    explained = (np.square(member @ points).sum(-1) / sizes).sum(1)
    return np.square(points).sum() - explained.max()


def phones():
    """Table III."""
    text = (files.files("potluck.fleet") / "fedrac40.csv").read_text().splitlines()
    rows = [line.split(",") for line in text if line[0].isdigit()]
    return np.array([[float(cell) for cell in row[1:]] for row in rows])


# -- resources


def test_table_one_is_normalised_as_printed_but_for_its_fourth_row():
    made = weigh_resources(TEN, THIRD).vectors
    others = np.arange(10) != 3
    assert made[others] == pytest.approx(PRINTED[others])
    # (125-50)/100, (10-7)/8, (15-10)/20; the print has one minus that.
    assert made[3] == pytest.approx([0.75, 0.375, 0.25])
    assert PRINTED[3] == pytest.approx(1 - made[3])


def test_distances_are_those_of_the_paper():
    points = weigh_resources(TEN, THIRD).points
    far = lambda i, j: np.linalg.norm(points[i - 1] - points[j - 1])  # noqa: E731
    # sqrt((.5^2 + .625^2 + .5^2) / 3) and sqrt((.25^2 + .375^2 + .25^2) / 3)
    assert far(1, 2) == pytest.approx(0.544862, abs=1e-6)
    assert far(4, 5) == pytest.approx(0.297560, abs=1e-6)
    # A weight counts once, inside the root: .4 for a full difference in speed alone.
    two = weigh_resources(np.array([[0.0, 1, 1], [1.0, 1, 1]]), (0.4, 0.4, 0.2))
    assert np.linalg.norm(two.points[0] - two.points[1]) == pytest.approx(math.sqrt(0.4))


def test_scores_are_weighted_sums_and_a_column_without_difference_counts_nothing():
    made = weigh_resources(np.array([[1.0, 5, 2], [3.0, 5, 4], [2.0, 5, 2]]), (0.5, 0.3, 0.2))
    assert made.constant == ("rate",)
    assert made.vectors[:, 1] == pytest.approx([0, 0, 0])
    assert made.scores == pytest.approx([0, 0.7, 0.25])
    raw = weigh_resources(np.array([[1.0, 5, 2], [3.0, 5, 4]]), (0.5, 0.3, 0.2), normalise=False)
    assert raw.scores == pytest.approx([2.4, 3.8])
    assert raw.constant == ("rate",)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.5, 0.6, -0.1), (0.3, 0.3, 0.3), (math.nan, 0.5, 0.5)])
def test_weights_are_three_shares(weights):
    with pytest.raises(ConfigError, match=r"weights = .*: give speed, rate, memory shares of 0 or more"):
        weigh_resources(TEN, weights)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_participant_without_sound_resources_is_named(bad):
    vectors = TEN.copy()
    vectors[6, 1] = bad
    with pytest.raises(ConfigError, match=r"vectors\[6\] = \[125.0, .*: resources are finite, and 0 or more"):
        weigh_resources(vectors)
    with pytest.raises(
        ConfigError, match=r"vectors = \(10, 2\): give every participant its speed, rate, mem"
    ):
        weigh_resources(TEN[:, :2])


@given(fleets)
def test_normalised_resources_span_nought_to_one(vectors):
    made = weigh_resources(vectors)
    assert made.vectors.min() == 0
    assert made.vectors.max() == 1
    for column, name in enumerate(("speed", "rate", "memory")):
        assert made.vectors[:, column].max() == (name not in made.constant)
    assert ((made.scores >= 0) & (made.scores <= 1 + 1e-12)).all()


# -- the Dunn index


def test_the_index_of_table_one():
    points = weigh_resources(TEN, THIRD).points
    assert dunn(points, labels(*TWO)) == pytest.approx(0.394771, abs=1e-6)
    assert dunn(points, labels(*THREE)) == pytest.approx(0.392232, abs=1e-6)


def test_the_index_by_hand():
    # On a line: {0, 1} and {4, 6}: nearest points 3 apart, the wider cluster 2 wide.
    line = np.array([[0.0], [1.0], [4.0], [6.0]])
    assert dunn(line, np.array([0, 0, 1, 1])) == pytest.approx(1.5)
    # One that is alone has no width, but others have.
    assert dunn(line, np.array([0, 0, 0, 1])) == pytest.approx(2 / 4)


def test_clusters_without_any_width_are_infinitely_good():
    twins = np.repeat([[0.0, 0, 0], [1.0, 0, 1]], 3, axis=0)
    assert dunn(twins, np.array([0, 0, 0, 1, 1, 1])) == math.inf
    assert dunn(twins, np.array([0, 0, 1, 1, 1, 1])) == 0  # twins apart
    found = find_clusters(weigh_resources(twins[[0, 1, 3, 4]]))
    assert found.index == {2: math.inf}
    with pytest.raises(ConfigError, match="the index needs two clusters"):
        dunn(twins, np.zeros(6, np.int64))


def test_the_index_of_many_points_is_computed_in_parts():
    points = np.random.default_rng(0).random((1500, 2))
    halves = (points[:, 0] > 0.5).astype(np.int64)
    far = np.linalg.norm(points[:, None] - points, axis=-1)
    same = halves[:, None] == halves
    assert dunn(points, halves) == pytest.approx(far[~same].min() / far[same].max())


# -- k-means, and how many clusters


@pytest.mark.parametrize("count, clusters, least", [(2, TWO, 0.68269), (3, THREE, 0.41139)])
def test_the_best_clusters_of_table_one(count, clusters, least):
    points = weigh_resources(TEN, THIRD).points
    found = kmeans(points, count, starts=50)
    assert as_sets(found) == set(map(frozenset, clusters))
    assert error(points, found) == pytest.approx(least, abs=1e-5)


def test_three_clusters_in_the_papers_example_come_of_its_misprint():
    corrected = find_clusters(weigh_resources(TEN, THIRD))
    assert corrected.count == 2
    assert corrected.index == pytest.approx({2: 0.394771, 3: 0.392232}, abs=1e-6)
    misprinted = find_clusters(weigh_resources(PRINTED, THIRD))  # its columns span 0 to 1 as they are
    assert misprinted.count == 3
    assert misprinted.index == pytest.approx({2: 0.490957, 3: 0.5}, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.float64, (7, 3), elements=st.integers(0, 9).map(float)).filter(
        lambda points: len(np.unique(points, axis=0)) >= 3
    ),
    st.integers(2, 3),
)
def test_no_labelling_is_better(points, count):
    found = kmeans(points, count, starts=30)
    assert len(np.unique(found)) == count
    assert error(points, found) == pytest.approx(least_error(points, count), abs=1e-9)


# Dunn indices of 2 to 6 best clusters of Table III.
TABLE_THREE = [
    (THIRD, True, [0.1009, 0.1359, 0.1782, 0.1782, 0.2081]),
    ((0.4, 0.4, 0.2), True, [0.1111, 0.1846, 0.2220, 0.1793, 0.2036]),
    ((0.2, 0.2, 0.6), True, [0.3993, 0.1218, 0.1218, 0.1679, 0.1799]),
    ((0.3, 0.3, 0.4), True, [0.0940, 0.1084, 0.1610, 0.1715, 0.1809]),
    (THIRD, False, [0.0915, 0.1500, 0.1913, 0.0953, 0.1919]),
]


@pytest.mark.parametrize("weights, normalise, expected", TABLE_THREE)
def test_the_index_of_table_three(weights, normalise, expected):
    found = find_clusters(weigh_resources(phones(), weights, normalise))
    assert list(found.index.values()) == pytest.approx(expected, abs=1e-4)
    assert list(found.index) == [2, 3, 4, 5, 6]
    assert found.count == 2 + int(np.argmax(np.round(expected, 4)))  # not what the paper has, 5 or 4


def test_the_clusters_do_not_depend_on_the_seed():
    fleet = weigh_resources(phones(), (0.4, 0.4, 0.2))
    found = {tuple(find_clusters(fleet, seed=seed, starts=100).labels.tolist()) for seed in range(5)}
    assert len(found) == 1
    # Where it starts once, they do.
    assert len({tuple(find_clusters(fleet, seed=seed, starts=1).labels.tolist()) for seed in range(5)}) > 1


def test_equal_indices_choose_fewer_clusters():
    # Three clusters 3 wide and 2 apart at the nearest; the two at the left, as one, 8 wide and 16/3 away.
    # Both indices are 2/3, of which rounding makes the second one greater.
    line = np.append([0, 1.5, 3, 5, 6.5, 8], np.array([0, 1.5, 3]) + (8 + 16 / 3))
    found = find_clusters(weigh_resources(np.c_[line, line, line], THIRD))
    assert found.index == pytest.approx({2: 2 / 3, 3: 2 / 3})
    assert found.count == 2


def test_no_more_clusters_than_participants_that_differ():
    twins = np.repeat([[0.0, 0, 0], [1.0, 1, 1]], 8, axis=0)
    assert list(find_clusters(weigh_resources(twins)).index) == [2]  # though the root of 16 is 4
    with pytest.raises(ConfigError, match="clusters = 3: of 16 participants 2 differ: make 2 to 2 clusters"):
        cluster(weigh_resources(twins), 3)
    with pytest.raises(ConfigError, match="participants = 16: all have the same resources"):
        find_clusters(weigh_resources(np.ones((16, 3))))


def test_fewer_than_four_cannot_be_clustered():
    with pytest.raises(ConfigError, match="participants = 3: clusters are 2 to the root of their number"):
        find_clusters(weigh_resources(TEN[:3]))
    assert find_clusters(weigh_resources(TEN[:4])).count == 2


def test_settings_are_checked():
    fleet = weigh_resources(TEN)
    with pytest.raises(ConfigError, match=r"method = 'k-means': did you mean 'kmeans'\?"):
        find_clusters(fleet, "k-means")
    with pytest.raises(ConfigError, match="starts = 0: start k-means once at least"):
        find_clusters(fleet, starts=0)
    with pytest.raises(ConfigError, match="most = 1: try two clusters at least"):
        find_clusters(fleet, most=1)
    assert list(find_clusters(weigh_resources(phones()), most=3).index) == [2, 3]


def check_clusters(fleet, method):
    found = find_clusters(fleet, method, starts=5)
    assert 2 <= found.count <= math.isqrt(len(fleet.scores))
    means = [fleet.scores[found.labels == f].mean() for f in range(found.count)]
    assert all(np.diff(means) <= 1e-12)
    assert np.array_equal(found.labels, find_clusters(fleet, method, starts=5).labels)


@settings(deadline=None)
@given(fleets)
def test_clusters_are_ordered_by_mean_score_and_found_again(vectors):
    check_clusters(weigh_resources(vectors), "kmeans")


@pytest.mark.parametrize("method", ["dbscan", "optics"])
@pytest.mark.parametrize("seed", range(3))
def test_so_are_those_of_density(method, seed):
    check_clusters(weigh_resources(np.random.default_rng(seed).random((16, 3))), method)


def test_density_may_find_no_clusters():
    even = np.arange(9.0)  # evenly apart: one or none
    with pytest.raises(
        ConfigError, match="method = 'dbscan': it finds no 2 to 3 clusters here; take 'kmeans'"
    ):
        find_clusters(weigh_resources(np.c_[even, even, even]), "dbscan")


def test_order_is_by_score_not_by_label():
    scores = np.array([0.1, 0.9, 0.2, 0.8, 0.5, 0.5])
    assert rank_clusters(np.array([0, 1, 0, 1, 2, 2]), scores).tolist() == [2, 0, 2, 0, 1, 1]
    assert rank_clusters(np.array([5, 3, 5, 3]), np.ones(4)).tolist() == [0, 1, 0, 1]  # equal: who is first


# -- density (Table II)

BLOBS = np.array([0, 1, 2, 3, 20, 21, 22, 23, 60, 61, 62, 63, 90, 91, 92, 93], float)


@pytest.mark.parametrize("method", ["dbscan", "optics"])
def test_dense_places_become_clusters(method):
    found = find_clusters(weigh_resources(np.c_[BLOBS, BLOBS, BLOBS], THIRD), method)
    assert found.count == 4
    assert found.labels.tolist() == [3] * 4 + [2] * 4 + [1] * 4 + [0] * 4
    assert found.index[4] == pytest.approx(17 / 3)


@pytest.mark.parametrize("method", ["dbscan", "optics"])
def test_noise_joins_the_cluster_of_its_nearest_point(method):
    line = np.append(BLOBS, 123.0)  # 30 from the last, while the first two clusters are 17 apart
    found = cluster(weigh_resources(np.c_[line, line, line], THIRD), 4, method)
    assert found.labels.tolist() == [3] * 4 + [2] * 4 + [1] * 4 + [0] * 5
    with pytest.raises(ConfigError, match=rf"clusters = 17: {method} finds \[.*take 'kmeans'"):
        cluster(weigh_resources(np.c_[line, line, line], THIRD), 17, method)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["dbscan", "optics"])
def test_kinds_that_are_the_same_are_clusters(method):
    kinds = np.repeat([0.0, 1.0, 3.0], 4)
    found = find_clusters(weigh_resources(np.c_[kinds, kinds, kinds], THIRD), method)
    assert found.labels.tolist() == [2] * 4 + [1] * 4 + [0] * 4
    assert found.index[3] == math.inf


# -- compaction


def test_compaction_makes_fewer_clusters():
    fleet = weigh_resources(phones(), (0.4, 0.4, 0.2))
    k = find_clusters(fleet)
    m = cluster(fleet, k.count - 1)  # the paper prints k < m, and goes from 5 to 4
    assert m.count == k.count - 1 < k.count
    assert m.index[3] == pytest.approx(0.1846, abs=1e-4)


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([6, 5, 7], [6, 5, 7]),
        ([6, 4, 7], [10, 7]),  # joins the richer one
        ([6, 7, 1], [6, 8]),
        ([2, 6, 7], [8, 7]),  # the richest joins the next
        ([6, 3, 3], [6, 6]),  # two small ones are one that isn't
        ([6, 1, 3], [10]),  # or not
        ([1, 3, 6], [10]),  # 3 joins 1, both join 6
        ([1, 1, 1], [3]),
    ],
)
def test_small_clusters_merge(sizes, expected):
    merged = merge_small(np.repeat(np.arange(len(sizes)), sizes), least=5)
    assert np.bincount(merged).tolist() == expected
    assert (np.diff(merged) >= 0).all()  # order is kept


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 8))
def test_no_small_cluster_is_left_but_a_last_one(sizes, least):
    merged = np.bincount(merge_small(np.repeat(np.arange(len(sizes)), sizes), least))
    assert merged.sum() == sum(sizes)
    assert (merged >= least).all() or len(merged) == 1
