"""Partitions by quantity and by user, and those made elsewhere."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_partition import all_rows, check, keys, pool_of, pools, quick, same, spread

from potluck.core.errors import ConfigError, DataError
from potluck.data import Cut, columns, divide, from_flwr, from_rows


def written(pool, people, seed):
    """The pool, with writers who wrote unequally much."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(people, 1.0))
    return pool_of(pool.y, user=rng.choice(people, len(pool), p=shares) * 7 - 5)


def everything(partition):
    return np.sort(np.concatenate([all_rows(partition, c) for c in range(partition.clients)]))


# ----------------------------------------------------------------------------------------------- quantity


@quick
@given(
    pools(),
    st.sampled_from(["lognormal", "powerlaw"]),
    st.integers(1, 40),
    keys,
    st.floats(0, 10),
    st.integers(3, 9),
)
def test_quantity_is_complete_and_disjoint(pool, law, clients, key, skew, smallest):
    assume(clients * smallest <= (~pool.test).sum())
    options = dict(law=law, skew=skew, smallest=smallest)
    partition = divide(pool, "quantity", clients, key, **options)
    check(partition, pool, smallest)
    assert partition.clients == clients
    assert np.array_equal(everything(partition), pool.free)
    assert same(partition, divide(pool, "quantity", clients, key, **options))


@pytest.mark.parametrize("law", ["lognormal", "powerlaw"])
def test_quantity_skews_sizes_and_not_labels(law):
    pool = pool_of(np.arange(20_000) % 4)
    sizes = {}
    for skew in (0, 0.5, 1, 2):
        partition = divide(pool, "quantity", 50, 3, law=law, skew=skew)
        sizes[skew] = np.array([len(all_rows(partition, c)) for c in range(50)])
    assert np.ptp(sizes[0]) <= 1
    ratios = [s.max() / np.median(s) for s in sizes.values()]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 10
    assert spread(divide(pool, "quantity", 50, 3, law=law), pool) < 0.1
    if (
        law == "powerlaw"
    ):  # what is left after 5 each: half of the first for the second, a third for the third
        ranked = np.sort(sizes[1])[::-1] - 5
        assert ranked[0] / ranked[1] == pytest.approx(2, rel=0.01)
        assert ranked[0] / ranked[2] == pytest.approx(3, rel=0.01)


# -------------------------------------------------------------------------------------------------- users


@quick
@given(pools(), keys, st.integers(2, 20), st.integers(3, 9), st.integers(3, 60), st.data())
def test_users_cut_into_clients(pool, key, people, smallest, about, data):
    assume(about >= smallest)
    pool = written(pool, people, data.draw(st.integers(0, 99)))
    found, counts = np.unique(pool.user[~pool.test], return_counts=True)
    assume((counts >= smallest).any())
    options = dict(rows_per_client=about, smallest=smallest)
    partition = divide(pool, "split_users", None, key, **options)
    check(partition, pool, smallest)
    assert partition.left_out == (counts < smallest).sum()
    fit = pool.free[np.isin(pool.user[pool.free], found[counts >= smallest])]
    assert np.array_equal(everything(partition), fit)
    whose = [np.unique(pool.user[all_rows(partition, c)]) for c in range(partition.clients)]
    assert all(len(w) == 1 for w in whose)
    # numbered in order of their ids, without gaps
    assert np.array_equal(np.unique(np.concatenate(whose), return_inverse=True)[1], partition.user)
    for user, count in enumerate(counts[counts >= smallest]):
        sizes = [len(all_rows(partition, c)) for c in np.flatnonzero(partition.user == user)]
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == max(1, min(round(count / about), count // smallest))
    assert same(partition, divide(pool, "split_users", None, key, **options))
    clients = data.draw(st.integers(1, partition.clients))
    some = divide(pool, "split_users", clients, key, **options)
    check(some, pool, smallest)
    assert some.clients == clients == len(some.user)
    assert np.array_equal(np.unique(some.user), np.arange(some.user.max() + 1))


@quick
@given(pools(), keys, st.integers(1, 12), st.tuples(st.integers(1, 6), st.integers(0, 4)), st.data())
def test_devices_of_users(pool, key, people, ends, data):
    low, high, smallest = ends[0], ends[0] + ends[1], data.draw(st.integers(3, 6))
    known = data.draw(st.booleans())
    options = dict(
        devices_per_user=[low, high], smallest=smallest, alpha=data.draw(st.sampled_from([0.01, 0.5, 100]))
    )
    if known:
        pool = written(pool, people, data.draw(st.integers(0, 99)))
        counts = np.unique(pool.user[~pool.test], return_counts=True)[1]
        assume((counts >= low * smallest).any())
        users = None
    else:
        users = people
        assume(people * low * smallest <= (~pool.test).sum())
        counts = np.bincount(np.arange((~pool.test).sum()) % people)
    partition = divide(pool, "user_devices", None, key, users=users, **options)
    check(partition, pool, smallest)
    fit = counts[counts >= low * smallest]
    assert partition.left_out == len(counts) - len(fit)
    devices = np.bincount(partition.user)
    assert len(devices) == len(fit)
    assert (devices >= low).all()
    assert (devices <= np.minimum(high, fit // smallest)).all()
    assert (np.diff(partition.user) >= 0).all()  # a user's devices are neighbours
    rows = everything(partition)
    assert len(np.unique(rows)) == len(rows) == fit.sum()
    if known:
        for user in range(len(devices)):
            mine = np.concatenate([all_rows(partition, c) for c in np.flatnonzero(partition.user == user)])
            assert len(np.unique(pool.user[mine])) == 1
    assert same(partition, divide(pool, "user_devices", None, key, users=users, **options))


def test_devices_of_users_differ_in_labels():
    pool = pool_of(np.arange(6000) % 10)
    skews = [
        spread(divide(pool, "user_devices", None, 7, users=10, alpha=alpha), pool)
        for alpha in (1e-2, 0.5, 1e3)
    ]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.5
    assert skews[-1] < 0.15
    counts = np.bincount(divide(pool, "user_devices", None, 7, users=40).user)
    assert set(counts) == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("kind", "clients", "options", "error", "message"),
    [
        ("quantity", 4, {"skew": -1}, ConfigError, r"skew = -1: must be 0 .* to 10"),
        ("quantity", 4, {"law": "zipf"}, ConfigError, r"law = 'zipf': .*known: lognormal, powerlaw"),
        ("quantity", 17, {}, DataError, r"clients = 17: .* enough for 16 clients"),
        ("split_users", None, {"rows_per_client": 4}, ConfigError, r"rows_per_client = 4: .*smallest = 5"),
        (
            "split_users",
            None,
            {"smallest": 25},
            DataError,
            r"smallest = 25: no user .*\(the richest has 20\)",
        ),
        ("split_users", 99, {}, DataError, r"clients = 99: the 4 users of a pool can be cut into 4 clients"),
        ("user_devices", 5, {}, ConfigError, r"clients = 5: user_devices .*say how many users by users"),
        ("user_devices", None, {"devices_per_user": [6, 2]}, ConfigError, r"devices_per_user = \[6, 2\]: .*"),
        ("user_devices", None, {"devices_per_user": [2]}, ConfigError, r"devices_per_user = \[2\]"),
        ("user_devices", None, {"users": 9}, DataError, r"users = 9: 4 users of a pool have the 10 rows"),
        (
            *("user_devices", None, {"devices_per_user": [5, 6]}, DataError),
            r"devices_per_user = \[5, 6\]: no user of a pool has the 25 rows .* \(the richest has 20\)",
        ),
        ("user_devices", None, {"alpha": 0}, ConfigError, r"alpha = 0"),
    ],
)
def test_what_cannot_be_divided_by_user(kind, clients, options, error, message):
    pool = pool_of(np.arange(100) % 4, user=np.arange(100) % 4)
    with pytest.raises(error, match=message):
        divide(pool, kind, clients, 0, **options)


def test_pools_without_users():
    pool = pool_of(np.arange(100) % 4)
    with pytest.raises(DataError, match="split_users: a pool doesn't say who wrote its rows"):
        divide(pool, "split_users", None, 0)
    with pytest.raises(DataError, match=r"users is missing: .* say how many users to make, 1 to 8"):
        divide(pool, "user_devices", None, 0)
    with pytest.raises(
        DataError, match=r"users = 9: the 80 non-test rows .* enough for 8 users of 2 devices"
    ):
        divide(pool, "user_devices", None, 0, users=9)


# ---------------------------------------------------------------------------------------------- elsewhere


class Dataset:
    """As much of a Hugging Face dataset as a partitioner needs."""

    def __init__(self, table):
        self.table = {name: np.asarray(column) for name, column in table.items()}

    def __getitem__(self, column):
        return self.table[column].tolist()

    def select(self, places):
        return Dataset({name: column[places] for name, column in self.table.items()})


class RoundRobin:
    """A partitioner of flwr-datasets' shape: it is given a dataset, and then asked for partitions."""

    def __init__(self, partitions):
        self.num_partitions, self.dataset = partitions, None

    def load_partition(self, partition_id):
        count = len(self.dataset["index"])
        return self.dataset.select(np.arange(partition_id, count, self.num_partitions))


@quick
@given(pools(), st.integers(1, 10), keys)
def test_a_partitioner_of_flower(pool, clients, key):
    assume(len(pool.free) >= 5 * clients)
    partitioner = RoundRobin(clients)
    partitioner.dataset = Dataset(columns(pool))
    partition = from_flwr(partitioner, pool, key)
    check(partition, pool, 5)
    assert np.array_equal(everything(partition), pool.free)
    for client in range(clients):
        assert np.array_equal(np.sort(all_rows(partition, client)), pool.free[client::clients])
    assert same(partition, from_flwr(partitioner, pool, key))


def test_columns_for_partitioners():
    pool = pool_of(np.arange(50) % 3, user=np.arange(50) % 7)
    table = columns(pool)
    assert np.array_equal(table["label"], pool.y.numpy()[table["index"]])
    assert np.array_equal(table["user"], pool.user[table["index"]])
    partitioner = RoundRobin(4)
    partitioner.dataset = Dataset({"label": table["label"], "index": table["index"]})
    with pytest.raises(DataError, match=r"column = 'row': partition 0 has no such column"):
        from_flwr(partitioner, pool, column="row")


@quick
@given(pools(), st.integers(1, 8), keys, st.integers(3, 7))
def test_lists_of_rows(pool, clients, key, smallest):
    assume(len(pool.free) >= clients * smallest)
    lists = np.array_split(np.random.default_rng(0).permutation(pool.free), clients)
    partition = from_rows(lists, pool, key, Cut(smallest=smallest), user=np.arange(clients) // 2)
    check(partition, pool, smallest)
    assert all(np.array_equal(np.sort(all_rows(partition, c)), np.sort(lists[c])) for c in range(clients))
    assert partition.user.tolist() == [c // 2 for c in range(clients)]
    assert same(partition, from_rows(lists, pool, key, Cut(smallest=smallest)))


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([], "no clients"),
        ([range(5), [5, 6, 7]], "client 1 has 3 rows; give it 5, or lower smallest"),
        ([range(5), range(4, 9)], "client 1: row 4 is client 0's already"),
        ([[0, 1, 2, 3, 3]], "client 0: row 3 is listed twice"),
        ([[0, 1, 2, 3, 99]], "client 0: row 99 is out of range; the pool has rows 0 to 49"),
        ([[0, 1, 2, 3, -1]], "client 0: row -1 is out of range"),
        ([range(38, 43)], "client 0: row 40 is a test, validator or server row"),
        ([[0.0, 1, 2, 3, 4]], "client 0: give one column of row numbers, not float64"),
        ([[range(5), range(5)]], "client 0: give one column"),
    ],
)
def test_wrong_lists_of_rows(lists, message):
    with pytest.raises(DataError, match=message):
        from_rows(lists, pool_of(np.arange(50) % 3))


def test_wrong_lists_of_users():
    with pytest.raises(DataError, match="user has 2 entries: give one for each of 1 clients"):
        from_rows([range(5)], pool_of(np.arange(50) % 3), user=np.arange(2))
