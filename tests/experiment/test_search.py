"""Where a search goes next: worked out by hand, and properties that hold of every search."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.experiment.search import (
    REACH,
    Move,
    count_grid,
    count_points,
    find_best,
    find_edges,
    list_extensions,
    next_move,
    spread,
)

LR, MU = "train.lr", "mu"


def trial(point, mean, origin="grid", key=None):
    return {"point": point, "origin": origin, "key": key, "results": [mean], "mean": mean}


def rates(*pairs):
    return [trial({LR: lr}, mean) for lr, mean in pairs]


def follow(space, trials, score, refine=None, allowed=lambda point: True):
    """A whole search of a made-up objective: what was tried, and what was refused."""
    first = spread(space, count_grid(space, trials, refine))
    tried, refused = [trial(point, score(point)) for point in first], []
    while len(tried) < count_points(space, trials, refine):
        move = next_move(space, tried, refused)
        if move is None:
            break
        if allowed(move.point):
            tried.append(trial(move.point, score(move.point), move.origin, move.key))
        else:
            refused.append(move.point)
    return tried, refused


# --------------------------------------------------------------------------------------------------- by hand


def test_a_third_is_kept_for_numbers():
    four = {LR: [0.01, 0.03, 0.1, 0.3]}
    assert (count_grid(four, 6, None), count_points(four, 6, None)) == (4, 6)
    assert (count_grid(four, 5, None), count_points(four, 5, None)) == (4, 5)  # 5 // 3 = 1
    assert (count_grid(four, 4, 0), count_points(four, 4, 0)) == (4, 4)  # the grid alone
    assert (count_grid(four, 6, 0), count_points(four, 6, 0)) == (4, 4)  # and no more than it has
    assert (count_grid(four, 6, 9), count_points(four, 6, 9)) == (1, 6)
    words = {"select": ["uniform", "oort"]}
    assert (count_grid(words, 6, None), count_points(words, 6, None)) == (2, 2)
    assert (count_grid({LR: [0.1]}, 6, None), count_points({LR: [0.1]}, 6, None)) == (
        1,
        1,
    )  # no step is known
    assert (count_grid({}, 6, None), spread({}, 6)) == (1, [{}])


def test_beyond_an_end_by_the_ratio_of_the_outermost():
    space = {LR: [0.03, 0.1, 0.3]}
    rising = rates((0.03, 0.1), (0.1, 0.2), (0.3, 0.3))
    assert next_move(space, rising) == Move({LR: 0.9}, "extension", LR)  # 0.3 x 0.3 / 0.1
    falling = rates((0.03, 0.3), (0.1, 0.2), (0.3, 0.1))
    assert next_move(space, falling) == Move({LR: 0.009}, "extension", LR)  # 0.03 x 0.03 / 0.1
    assert find_edges(space, rising) == find_edges(space, falling) == [LR]


def test_steps_end_after_three_and_the_edge_is_told():
    tried, _ = follow({LR: [0.1, 0.3]}, 8, lambda p: p[LR] / 1000)
    assert [t["point"][LR] for t in tried] == [0.1, 0.3, 0.9, 2.7, 8.1, 4.68, 6.16, 7.06]  # then between
    assert list_extensions(tried) == {LR: [0.9, 2.7, 8.1]}
    assert len(list_extensions(tried)[LR]) == REACH
    assert find_edges({LR: [0.1, 0.3]}, tried) == [LR]
    # 4.68 = sqrt(2.7 x 8.1), 6.16 = sqrt(4.68 x 8.1), 7.06 = sqrt(6.16 x 8.1)


def test_half_way_to_the_better_neighbour():
    space = {LR: [0.03, 0.1, 0.3]}
    tried = rates((0.03, 0.1), (0.1, 0.9), (0.3, 0.2))
    assert next_move(space, tried) == Move({LR: 0.173}, "refinement", LR)  # sqrt(0.1 x 0.3)
    tried.append(trial({LR: 0.173}, 0.5, "refinement", LR))
    assert next_move(space, tried) == Move({LR: 0.132}, "refinement", LR)  # sqrt(0.1 x 0.173)
    low = rates((0.03, 0.5), (0.1, 0.9), (0.3, 0.2))
    assert next_move(space, low) == Move({LR: 0.0548}, "refinement", LR)  # sqrt(0.03 x 0.1)
    even = rates((0.03, 0.2), (0.1, 0.9), (0.3, 0.2))
    assert next_move(space, even).point == {LR: 0.0548}  # equally good: the smaller one
    assert find_edges(space, tried) == []


def test_zero_has_no_ratio_and_whole_numbers_stay_whole():
    none = {MU: [0.0, 0.1]}
    at_zero = [trial({MU: 0.0}, 0.9), trial({MU: 0.1}, 0.1)]
    assert next_move(none, at_zero) == Move({MU: -0.1}, "extension", MU)
    assert next_move(none, at_zero, [{MU: -0.1}]) == Move({MU: 0.05}, "refinement", MU)
    assert find_edges(none, at_zero, [{MU: -0.1}]) == []  # the setting ends there
    epochs = {"train.epochs": [1, 2]}
    up = [trial({"train.epochs": 1}, 0.1), trial({"train.epochs": 2}, 0.2)]
    assert next_move(epochs, up).point == {"train.epochs": 4}
    near = {"k": [9, 10]}  # 10 x 10 / 9 = 11.1
    assert next_move(near, [trial({"k": 9}, 0.1), trial({"k": 10}, 0.2)]).point == {"k": 11}
    down = [trial({"train.epochs": 1}, 0.2), trial({"train.epochs": 2}, 0.1)]
    assert next_move(epochs, down).point == {"train.epochs": 0}
    assert next_move(epochs, down, [{"train.epochs": 0}]) is None  # nothing lies between 1 and 2


def test_the_end_towards_which_accuracy_rose_goes_first():
    space = {LR: [0.1, 0.3], MU: [0.01, 0.1]}
    # at the smaller mu, which hardly matters (0.5 against 0.49), and at the larger rate (0.5 against 0.2)
    means = {(0.1, 0.01): 0.2, (0.1, 0.1): 0.2, (0.3, 0.01): 0.5, (0.3, 0.1): 0.49}
    tried = [trial({LR: lr, MU: mu}, mean) for (lr, mu), mean in means.items()]
    assert next_move(space, tried) == Move({LR: 0.9, MU: 0.01}, "extension", LR)
    better = [*tried, trial({LR: 0.9, MU: 0.01}, 0.6, "extension", LR)]
    # of the rate still: 0.6 against 0.5 where mu is alike; of mu 0 and 0.01 more, at two rates
    assert next_move(space, better) == Move({LR: 2.7, MU: 0.01}, "extension", LR)
    tried.append(trial({LR: 0.9, MU: 0.01}, 0.4, "extension", LR))  # too far: only mu is at an end now
    assert next_move(space, tried) == Move({LR: 0.3, MU: 0.001}, "extension", MU)
    assert find_edges(space, tried) == [MU]


def test_words_are_tried_at_the_best_point_and_then_the_rest():
    space = {"select": ["a", "b", "c"], "flag": [True, False]}
    tried = [trial({"select": "b", "flag": True}, 0.9), trial({"select": "a", "flag": False}, 0.1)]
    asked = []
    while (move := next_move(space, tried)) is not None:
        asked.append((move.point["select"], move.point["flag"], move.origin))
        tried.append(trial(move.point, 0.0, move.origin, move.key))
    assert asked == [
        ("a", True, "refinement"),  # select's turn, as written
        ("b", False, "refinement"),  # flag's
        ("c", True, "refinement"),
        ("c", False, "grid"),  # what is left
    ]
    assert find_edges(space, tried) == []


def test_the_first_of_equally_good_ones_is_best():
    assert find_best(rates((0.01, 0.3), (0.1, 0.3), (1.0, 0.2)))["point"] == {LR: 0.01}


def test_a_part_of_a_large_grid_has_every_value():
    space = {LR: [0.01, 0.03, 0.1, 0.3], MU: [0.01, 0.1, 1.0], "kind": ["a", "b"]}
    found = spread(space, 6)
    assert found == spread(space, 6)
    for key, values in space.items():
        used = [point[key] for point in found]
        assert set(used) == set(values)
        assert max(map(used.count, values)) - min(map(used.count, values)) <= 1  # evenly
    huge = {f"k{i}": list(range(10)) for i in range(30)}  # 10^30 points, of which nobody makes a list
    assert len({tuple(point.values()) for point in spread(huge, 12)}) == 12
    assert spread({LR: [0.1, 0.3], MU: [1.0]}, 5) == [{LR: 0.1, MU: 1.0}, {LR: 0.3, MU: 1.0}]


# ------------------------------------------------------------------------------------------------ properties

numbers = st.lists(
    st.floats(1e-4, 10.0).map(lambda v: float(f"{v:.2g}")), min_size=1, max_size=4, unique=True
)
wholes = st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True)
words = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
spaces = st.dictionaries(
    st.sampled_from(["w", "x", "y", "z"]),
    st.one_of(numbers.map(sorted), wholes.map(sorted), words),
    max_size=4,
)


def score_by(salt):
    return lambda point: math.sin(salt + sum(map(hash_value, point.values())))


def hash_value(value):
    return ord(value) if isinstance(value, str) else float(value)


@settings(max_examples=200, deadline=None)
@given(spaces, st.integers(1, 14), st.none() | st.integers(0, 5), st.floats(0, 6))
def test_every_search(space, trials, refine, salt):
    score = score_by(salt)
    tried, refused = follow(
        space, trials, score, refine, lambda p: all(hash_value(v) >= 0 for v in p.values())
    )
    points = [tuple(t["point"].items()) for t in tried]
    assert len(set(points)) == len(points)  # none twice
    assert len(tried) <= trials
    product = math.prod(map(len, space.values()))
    fine = any(len(values) > 1 and isinstance(values[0], float) for values in space.values())
    if fine and refine != 0:
        assert len(tried) == trials  # exactly
    assert len(tried) >= min(trials, product)
    for key, values in list_extensions(tried).items():
        ends = space[key][0], space[key][-1]
        assert sum(v > ends[1] for v in values) <= REACH
        assert sum(v < ends[0] for v in values) <= REACH
        assert not any(ends[0] <= v <= ends[1] for v in values)
    assert all(t["point"].keys() == space.keys() for t in tried)
    assert follow(space, trials, score, refine, lambda p: all(hash_value(v) >= 0 for v in p.values())) == (
        tried,
        refused,
    )


@given(spaces, st.integers(1, 14))
def test_every_value_is_in_the_first_part_where_that_is_possible(space, wanted):
    found = spread(space, wanted)
    assert len(found) == min(wanted, math.prod(map(len, space.values())))
    for key, values in space.items():
        assert len({point[key] for point in found}) == min(len(values), len(found))


@pytest.mark.parametrize("peak", [0.004, 0.05, 0.7, 4.0])
def test_a_search_of_one_rate_comes_near_its_peak(peak):
    """Within a factor of 1.4, from a grid whose ends lie a step and more from two of them."""
    tried, _ = follow({LR: [0.03, 0.1, 0.3]}, 8, lambda p: -abs(math.log(p[LR] / peak)))
    assert abs(math.log(find_best(tried)["point"][LR] / peak)) < math.log(1.4)
