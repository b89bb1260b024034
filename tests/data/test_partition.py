import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.data import Cut, Pool, divide
from potluck.data.holding import draw_distinct

SPLITS = ("train", "validation", "test")
quick = settings(max_examples=40, deadline=None)
keys = st.integers(0, 2**64 - 1)


def pool_of(labels, test=None, user=None):
    """A pool whose rows have nothing but labels."""
    y = np.asarray(labels)
    held_out = np.arange(len(y)) // 10 % 5 == 4 if test is None else np.asarray(test)
    classes = max(2, int(y.max()) + 1)
    return Pool(torch.zeros(len(y), 1), torch.tensor(y), classes, held_out, user, "a pool")


def all_rows(partition, client):
    return np.concatenate([partition.rows(client, split) for split in SPLITS])


def same(one, other):
    return one.clients == other.clients and all(
        np.array_equal(one.rows(c, s), other.rows(c, s)) for c in range(one.clients) for s in SPLITS
    )


@st.composite
def pools(draw):
    """Few to many rows of unequal classes, some of which may be rare or absent."""
    weights = np.array(draw(st.lists(st.integers(0, 20), min_size=2, max_size=8)))
    assume((weights > 0).sum() >= 2)
    rows = draw(st.integers(20, 400))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return pool_of(rng.choice(len(weights), rows, p=weights / weights.sum()))


def check(partition, pool, smallest):
    """What every partition promises."""
    for client in range(partition.clients):
        sizes = [len(partition.rows(client, split)) for split in SPLITS]
        rows = all_rows(partition, client)
        assert min(sizes) >= 1
        assert len(rows) >= smallest
        assert len(np.unique(rows)) == len(rows)
        assert not pool.test[rows].any()
        assert partition.size(client) == sizes[0]
        assert not partition.rows(client, "train").flags.writeable


@quick
@given(
    pools(),
    st.sampled_from(["iid", "dirichlet"]),
    st.integers(1, 40),
    keys,
    st.floats(1e-6, 1e6),
    st.integers(3, 9),
)
def test_iid_and_dirichlet_are_complete_and_disjoint(pool, kind, clients, key, alpha, smallest):
    assume(clients * smallest <= (~pool.test).sum())
    partition = divide(pool, kind, clients, key, alpha=alpha, smallest=smallest)
    check(partition, pool, smallest)
    rows = np.concatenate([all_rows(partition, client) for client in range(clients)])
    assert np.array_equal(np.sort(rows), np.flatnonzero(~pool.test))
    assert same(partition, divide(pool, kind, clients, key, alpha=alpha, smallest=smallest))


@quick
@given(pools(), st.integers(1, 30), keys, st.integers(1, 8), st.integers(3, 6))
def test_shards_give_exactly_so_many_classes(pool, clients, key, each, smallest):
    assume(each <= pool.classes)
    try:
        partition = divide(pool, "shards", clients, key, classes_per_client=each, smallest=smallest)
    except DataError:  # rare classes may make it impossible
        return
    check(partition, pool, smallest)
    labels = pool.y.numpy()
    assert all(len(np.unique(labels[all_rows(partition, c)])) == each for c in range(clients))
    rows = np.concatenate([all_rows(partition, client) for client in range(clients)])
    assert len(np.unique(rows)) == len(rows)
    here = np.flatnonzero(~pool.test)
    if clients * each >= len(np.unique(labels[here])):
        assert np.array_equal(np.sort(rows), here)


@quick
@given(pools(), keys, st.integers(2, 30), st.integers(3, 9), st.data())
def test_users_are_clients(pool, key, people, smallest, data):
    user = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-5, people - 5, len(pool)) * 7
    pool = pool_of(pool.y, user=user)
    found, counts = np.unique(user[~pool.test], return_counts=True)
    fit = found[counts >= smallest]
    assume(len(fit))
    everybody = divide(pool, "by_user", None, key, smallest=smallest)
    check(everybody, pool, smallest)
    assert everybody.left_out == len(found) - len(fit)
    for client, person in enumerate(fit):
        mine = np.flatnonzero((user == person) & ~pool.test)
        assert np.array_equal(np.sort(all_rows(everybody, client)), mine)
    clients = data.draw(st.integers(1, len(fit)))
    some = divide(pool, "by_user", clients, key, smallest=smallest)
    owners = [np.unique(user[all_rows(some, client)]).tolist() for client in range(clients)]
    assert all(len(owner) == 1 for owner in owners)
    assert owners == sorted(owners)
    assert some.clients == clients


@quick
@given(keys, st.integers(0, 10**6 - 20), st.sampled_from([None, 1, 3]))
def test_procedural_clients(key, start, each):
    pool = pool_of(np.arange(1500) % 5)
    options = dict(smallest=4, largest=25, classes_per_client=each)
    partition = divide(pool, "procedural", 10**6, key, **options)
    again = divide(pool, "procedural", 10**6, key, **options)
    splits = {split: set() for split in SPLITS}
    labels = pool.y.numpy()
    for client in range(start, start + 20):
        rows = all_rows(partition, client)
        assert 4 <= len(rows) <= 25
        assert len(np.unique(rows)) == len(rows)
        assert not pool.test[rows].any()
        assert each is None or len(np.unique(labels[rows])) <= each
        for split in SPLITS:
            mine = partition.rows(client, split)
            assert len(mine) >= 1
            assert np.array_equal(mine, again.rows(client, split))
            splits[split] |= set(mine.tolist())
        assert partition.size(client) == len(partition.rows(client, "train"))
    # what one client tests on, none trains on
    assert not splits["train"] & splits["test"]
    assert not splits["train"] & splits["validation"]
    assert not splits["validation"] & splits["test"]


def test_procedural_clients_differ_and_use_the_whole_pool():
    pool = pool_of(np.arange(1000) % 10)
    partition = divide(pool, "procedural", 10**6, 1, classes_per_client=2, largest=30)
    train = [partition.rows(client, "train") for client in range(2000)]
    assert len({tuple(rows) for rows in train}) == 2000
    assert len(np.unique(np.concatenate(train))) == 560  # 800 rows are no test rows, 7 of 10 are to train on
    pairs = {tuple(np.unique(pool.y.numpy()[all_rows(partition, client)])) for client in range(2000)}
    assert len([pair for pair in pairs if len(pair) == 2]) == 45
    totals = [len(all_rows(partition, client)) for client in range(2000)]
    assert set(totals) == set(range(5, 31))


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "procedural"])
def test_keys_decide(kind):
    pool = pool_of(np.arange(2000) % 10)
    made = [divide(pool, kind, 20, key) for key in (0, 1, 2, 2**63)]
    assert same(made[1], divide(pool, kind, 20, 1))
    assert not any(same(one, other) for i, one in enumerate(made) for other in made[:i])


def test_splits_of_users_follow_the_key():
    pool = pool_of(np.arange(2000) % 10, user=np.arange(2000) % 30)
    one, other = (divide(pool, "by_user", None, key) for key in (1, 2))
    assert np.array_equal(np.sort(all_rows(one, 3)), np.sort(all_rows(other, 3)))
    assert not np.array_equal(one.rows(3, "test"), other.rows(3, "test"))
    assert not same(divide(pool, "by_user", 5, 1), divide(pool, "by_user", 5, 2))


def spread(partition, pool):
    """How far clients' labels are from the pool's: mean total variation."""
    labels, rows = pool.y.numpy(), [all_rows(partition, client) for client in range(partition.clients)]
    whole = np.bincount(labels, minlength=pool.classes) / len(labels)
    shares = [np.bincount(labels[r], minlength=pool.classes) / len(r) for r in rows]
    return float(np.mean([abs(share - whole).sum() / 2 for share in shares]))


def test_alpha_is_skew():
    pool = pool_of(np.arange(5000) % 10)
    skews = [spread(divide(pool, "dirichlet", 20, 7, alpha=alpha), pool) for alpha in (1e-3, 0.1, 1, 1e4)]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.85
    assert skews[-1] < 0.1


def test_shards_pair_classes_freely():
    pool = pool_of(np.arange(5000) % 10)
    partition = divide(pool, "shards", 200, 3)
    pairs = {tuple(np.unique(pool.y.numpy()[all_rows(partition, client)])) for client in range(200)}
    assert len(pairs) > 35  # of 45: dealing classes in order would give 5, and false clusters


def test_shards_beyond_the_classes_leave_some_out():
    pool = pool_of(np.arange(500) % 10)
    partition = divide(pool, "shards", 3, 3)
    rows = np.concatenate([all_rows(partition, client) for client in range(3)])
    assert len(np.unique(pool.y.numpy()[rows])) == 6
    assert len(rows) == 6 * 40


def test_shards_fill_up_small_clients_within_their_classes():
    labels = np.repeat(np.arange(4), [1, 15, 7, 12])  # a client of the rare class starts with too few
    pool = pool_of(labels, test=np.zeros(35, bool))
    partition = divide(pool, "shards", 6, 1964)
    check(partition, pool, 5)
    assert all(len(np.unique(labels[all_rows(partition, client)])) == 2 for client in range(6))


def test_a_partition_by_hand():
    """Ten rows for one client: shares of 0.2 and 0.3 are two and three rows."""
    pool = pool_of([0, 1] * 6, test=[False] * 10 + [True] * 2)
    partition = divide(pool, "iid", 1, 0, validation=0.2, test=0.3)
    assert [len(partition.rows(0, split)) for split in SPLITS] == [5, 2, 3]
    assert sorted(all_rows(partition, 0)) == list(range(10))


@quick
@given(st.floats(0.001, 0.998), st.floats(0.001, 0.998), st.lists(st.integers(3, 10**6), min_size=1))
def test_cuts_leave_every_split_a_row(validation, test, rows):
    assume(validation + test < 1)
    sizes = Cut(validation, test).sizes(np.array(rows))
    assert sizes.min() >= 1
    assert sizes.sum(1).tolist() == rows


@quick
@given(keys, st.integers(0, 300), st.integers(1, 300))
def test_distinct_numbers(key, count, total):
    assume(count <= total)
    drawn = draw_distinct(key, count, total)
    assert len(np.unique(drawn)) == len(drawn) == count
    assert ((drawn >= 0) & (drawn < total)).all()


@pytest.mark.parametrize(
    ("kind", "clients", "options", "error", "message"),
    [
        ("iid", 17, {}, DataError, r"clients = 17: the 80 rows of a pool that are .* enough for 16 clients"),
        ("dirichlet", 20, {}, DataError, r"clients = 20.*lower clients or smallest"),
        ("shards", 20, {}, DataError, r"clients = 20"),
        ("iid", 0, {}, ConfigError, r"clients = 0: must be at least 1"),
        ("procedural", 0, {}, ConfigError, r"clients = 0: must be at least 1"),
        ("iid", None, {}, ConfigError, r"clients is missing"),
        ("dirichlet", 4, {"alpha": 0}, ConfigError, r"alpha = 0: must be above 0"),
        ("dirichlet", 4, {"alpha": -1.5}, ConfigError, r"alpha = -1\.5"),
        ("dirichlet", 4, {"alpha": float("nan")}, ConfigError, r"alpha = nan"),
        ("dirichlet", 4, {"alpha": float("inf")}, ConfigError, r"alpha = inf.*iid"),
        ("shards", 4, {"classes_per_client": 0}, ConfigError, r"classes_per_client = 0.*1 to 4"),
        ("shards", 4, {"classes_per_client": 5}, ConfigError, r"classes_per_client = 5.*1 to 4"),
        ("procedural", 4, {"classes_per_client": 0}, ConfigError, r"classes_per_client = 0.*1 to 4"),
        ("procedural", 4, {"classes_per_client": 5}, ConfigError, r"classes_per_client = 5.*1 to 4"),
        ("procedural", 4, {"largest": 4}, ConfigError, r"largest = 4: must be at least smallest = 5"),
        ("procedural", 4, {"largest": 90}, DataError, r"largest = 90.*lower largest"),
        ("procedural", 4, {"classes_per_client": 1, "largest": 30}, DataError, r"rarest 1 classes"),
        ("by_user", None, {}, DataError, r"by_user: a pool doesn't say who wrote its rows"),
        ("dirichelt", 4, {}, ConfigError, r"'dirichelt'.*did you mean 'dirichlet'"),
        ("iid", 4, {"validation": 0}, ConfigError, r"validation = 0"),
        ("iid", 4, {"test": 1.0}, ConfigError, r"test = 1\.0"),
        ("iid", 4, {"validation": 0.5, "test": 0.5}, ConfigError, r"validation \+ test = 1"),
        ("iid", 4, {"smallest": 2}, ConfigError, r"smallest = 2: must be at least 3"),
    ],
)
def test_what_cannot_be_divided(kind, clients, options, error, message):
    with pytest.raises(error, match=message):
        divide(pool_of(np.arange(100) % 4), kind, clients, 0, **options)


def test_too_many_users_asked_for():
    pool = pool_of(np.arange(100) % 4, user=np.minimum(np.arange(100) // 3, 5))
    with pytest.raises(
        DataError, match=r"clients = 2: a pool has 1 users of 5 rows or more \(5 have fewer\)"
    ):
        divide(pool, "by_user", 2, 0)


def test_no_user_with_enough_rows():
    pool = pool_of(np.arange(100) % 4, user=np.arange(100) // 3)
    with pytest.raises(DataError, match=r"smallest = 5: no user of a pool .*\(the richest has 3\); lower it"):
        divide(pool, "by_user", None, 0)


def test_rare_classes_are_said_to_be_too_few():
    pool = pool_of([0] * 90 + [1] * 2, test=[False] * 91 + [True])
    with pytest.raises(PotluckError, match=r"classes_per_client = 2.*lower it, or clients"):
        divide(pool, "shards", 3, 0)
    pool = pool_of([0] * 90 + [1] * 4, test=[False] * 93 + [True])
    with pytest.raises(DataError, match=r"too few rows of classes \[1\]"):
        divide(pool, "shards", 3, 0, classes_per_client=1)


def test_unknown_clients_are_refused():
    pool = pool_of(np.arange(500) % 4)
    for kind in ("iid", "procedural"):
        partition = divide(pool, kind, 4, 0, largest=10)
        for client in (-1, 4):
            with pytest.raises(IndexError, match=f"client {client}"):
                partition.rows(client, "train")
            with pytest.raises(IndexError):
                partition.size(client)
