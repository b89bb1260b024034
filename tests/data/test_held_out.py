"""Which rows are tested on, by chance, by user or by time; and where every row goes."""

from dataclasses import asdict, replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from torch.utils.data import TensorDataset

import potluck
from potluck.core.errors import ConfigError, PotluckError
from potluck.data import assemble, choose_tests, count_rows, from_dataset, from_rows, load
from potluck.experiment.build import build_federation, deal_rows

SPLITS = ("train", "validation", "test")


def walks(users=10, each=40, **more):
    """Random walks, a user each: neighbours are nearly alike."""
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.normal(size=(users, each, 3)), axis=1).reshape(-1, 3)
    return assemble("walks", x, np.arange(users * each) % 2, user=np.arange(users).repeat(each), **more)


def dealt(pool, **table):
    return deal_rows(potluck.Experiment(data={"partition": "by_user", **table}).resolve(), pool)


# ------------------------------------------------------------------------------------------------------- time


def test_the_last_rows_of_each_user_are_tested_on():
    pool, partition = dealt(walks(time=np.arange(400)), test_from="time")
    assert np.flatnonzero(pool.test).tolist() == [40 * u + i for u in range(10) for i in range(32, 40)]
    for client in range(10):
        rows = {split: partition.rows(client, split) for split in SPLITS}
        assert rows["train"].max() < rows["validation"].min()
        assert rows["validation"].max() < rows["test"].min()
        assert rows["test"].max() < 40 * client + 32
        assert [len(rows[split]) for split in SPLITS] == [23, 3, 6]  # of 32


def test_moments_count_and_not_the_order_of_the_file():
    back = walks(time=np.arange(400)[::-1])
    pool, partition = dealt(back, test_from="time")
    assert np.flatnonzero(pool.test).tolist() == [40 * u + i for u in range(10) for i in range(8)]
    assert partition.rows(3, "train").min() > partition.rows(3, "test").max()
    days = walks(time=np.datetime64("2026-01-01") + np.arange(400)[::-1])
    assert np.array_equal(choose_tests(days, "time").test, pool.test)


def test_without_users_the_last_rows_of_all_are_tested_on():
    plain = replace(walks(time=np.arange(400)), user=None)
    pool, partition = dealt(plain, test_from="time", partition="iid", clients=5)
    assert np.flatnonzero(pool.test).tolist() == list(range(320, 400))
    for client in range(5):
        assert partition.rows(client, "train").max() < partition.rows(client, "test").min()


def test_named_test_rows_stay_and_own_rows_are_cut_by_time():
    named = np.arange(400) >= 360
    pool, partition = dealt(walks(time=np.arange(400), test=named), test_from="time")
    assert np.array_equal(pool.test, named)
    assert partition.rows(0, "train").max() < partition.rows(0, "validation").min()


def test_users_who_validate_are_others_and_the_rest_is_cut_by_time():
    pool, partition = dealt(
        walks(time=np.arange(400)), test_from="time", validation_from="users", validation=0.2
    )
    assert len(np.unique(pool.user[pool.validating])) == 2
    for client in range(8):
        train, validation, test = (partition.rows(client, split) for split in SPLITS)
        assert train.max() < test.min()
        assert np.isin(validation, pool.validating).all()


def test_partitions_from_elsewhere_are_cut_by_time():
    pool = choose_tests(walks(time=np.arange(400)), "time")
    partition = from_rows([pool.free[:50], pool.free[50:]], pool)
    assert partition.rows(1, "train").max() < partition.rows(1, "test").min()


def test_rows_that_resemble_their_neighbours_leak_less():
    """A nearest neighbour knows its twins: rows by chance flatter it, rows by time don't."""
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(2000, 8)), axis=0)
    y = rng.integers(2, size=200).repeat(10)  # nothing but memory can tell them
    pool = assemble("windows", x, y, time=np.arange(2000))
    rights = []
    for how in ("rows", "time"):
        made = choose_tests(pool, how)
        test, train = made.x[made.test], made.x[~made.test]
        near = torch.cdist(test, train).argmin(1)
        rights.append(float((made.y[~made.test][near] == made.y[made.test]).float().mean()))
    assert rights[0] > 0.8
    assert rights[1] < 0.65


# ------------------------------------------------------------------------------------------------------ users


def test_whole_users_are_the_global_test_set():
    pool, partition = dealt(walks(), test_from="users")
    tested = np.unique(pool.user[pool.test])
    assert len(tested) == 2
    assert pool.test.sum() == 80
    assert partition.clients == 8
    again, _ = dealt(walks(), test_from="users", server=0.1)
    assert np.array_equal(again.test, pool.test)
    # Whoever is named as test rows of whole users stays.
    named = walks(test=np.arange(400) >= 360)
    assert choose_tests(named, "users") is named


def test_names_are_numbered_in_sorted_order(tmp_path):
    rng = np.random.default_rng(0)
    people = np.array(["zoe", "ann", "Bob", "ann"]).repeat(10)
    arrays = dict(x=rng.normal(size=(40, 2)), y=np.arange(40) % 2)
    np.savez(tmp_path / "a.npz", **arrays, user=people)
    np.savez(tmp_path / "b.npz", **arrays, user=np.array([2, 1, 0, 1]).repeat(10))
    named, numbered = (load("npz", tmp_path, path=f"{name}.npz") for name in "ab")
    assert named.names == ("Bob", "ann", "zoe")
    assert numbered.names is None
    assert np.array_equal(named.user, numbered.user)
    partition = dealt(named)[1]
    assert partition.clients == 3
    assert np.array_equal(partition.order, dealt(numbered)[1].order)


def test_a_run_keeps_the_names(tmp_path):
    rows = TensorDataset(torch.randn(60, 3), torch.arange(60) % 2)
    pool = from_dataset(rows, user=np.array(["ann", "bob", "cy"]).repeat(20))
    wanted = potluck.Experiment(data={"partition": "by_user"}, model={"name": "linear"}, stop={"rounds": 1})
    assert potluck.run(wanted, tmp_path / "r", pool=pool).devices["name"] == ["ann", "bob", "cy"]
    assert potluck.load(tmp_path / "r").devices["name"] == ["ann", "bob", "cy"]
    mixed = wanted.with_values(data={"partition": "iid", "clients": 3})
    assert "name" not in potluck.run(mixed, pool=pool).devices


# ---------------------------------------------------------------------------------------------------- scaling


@pytest.mark.parametrize("how", ["users", "time"])
def test_values_are_scaled_by_what_is_not_tested_on(how):
    raw = walks(time=np.arange(400), normalise=False)
    pool = choose_tests(walks(time=np.arange(400)), how)
    train = raw.x[torch.tensor(~pool.test)].double()
    assert pool.mean == pytest.approx(float(train.mean()), abs=1e-5)
    assert pool.std == pytest.approx(float(train.std(correction=0)), rel=1e-5)
    assert torch.allclose(pool.x * pool.std + pool.mean, raw.x, atol=1e-3)
    kept = choose_tests(raw, how)
    assert torch.equal(kept.x, raw.x)
    assert np.array_equal(kept.test, pool.test)


# --------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("pool", "table", "why"),
    [
        (lambda: load("digits"), {"test_from": "time"}, "rows of digits have no order in time; use 'rows'"),
        (lambda: load("digits"), {"test_from": "users"}, "digits doesn't say who wrote its rows"),
        (lambda: walks(users=1), {"test_from": "users"}, "has rows of one user only"),
        (
            lambda: walks(test=np.arange(400) % 9 == 0),
            {"test_from": "users"},
            "walks names its test rows, and user 0 has some and others",
        ),
        (
            lambda: walks(time=np.arange(400)),
            {"test_from": "time", "partition": "procedural"},
            "data.test_from = 'time': procedural clients share rows",
        ),
        (
            lambda: walks(200, 2, time=np.arange(400)),
            {"test_from": "time"},
            "too few rows for a test set",
        ),
    ],
)
def test_what_can_not_be_had_is_told(pool, table, why):
    with pytest.raises(PotluckError, match=why):
        dealt(pool(), **table)


def test_an_experiment_names_a_way_that_there_is():
    with pytest.raises(ConfigError, match=r"data\.test_from = 'user'"):
        potluck.Experiment(data={"test_from": "user"})


def test_a_default_changes_nothing():
    wanted = potluck.Experiment(data={"clients": 5}).resolve()
    pool = load("digits")
    assert wanted.data.test_from == "rows"
    assert torch.equal(build_federation(wanted).pool.x, pool.x)


# ----------------------------------------------------------------------------------------- where every row is


@st.composite
def files_and_tables(draw):
    """Arrays of a file and a table of settings, of which most go together."""
    rows, classes = draw(st.integers(60, 200)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    y = np.concatenate([np.arange(classes), rng.integers(classes, size=rows - classes)])
    more = {"time": rng.permutation(rows)}
    known, named = draw(st.booleans()), draw(st.booleans())
    if known:
        user = rng.integers(draw(st.integers(4, 9)), size=rows)
        more["user"] = user if draw(st.booleans()) else np.array([f"u{i}" for i in user])
    if named:
        more["test"] = user == 0 if known else rng.random(rows) < 0.3
        more["test"][:2] = more["test"][:2] if known else (True, False)
    ways = ["iid", "dirichlet", "shards", "quantity", "procedural", "user_devices"]
    way = draw(st.sampled_from([*ways, *(["by_user", "split_users"] if known else [])]))
    table = {
        "partition": way,
        "smallest": draw(st.integers(3, 5)),
        "largest": 8,
        "rows_per_client": 8,
        "test_from": draw(st.sampled_from(["rows", *["users"] * known, *["time"] * (way != "procedural")])),
        "validation_from": draw(st.sampled_from(["rows", *["users"] * (known and way != "procedural")])),
    }
    if way == "user_devices":
        table |= {"users": 2, "devices_per_user": [1, 2]}
    elif way not in ("by_user", "split_users"):
        table["clients"] = draw(st.integers(1, 4))
    for key, values in (("limit", st.integers(40, 150)), ("without", st.integers(0, classes - 1))):
        if draw(st.integers(0, 3)) == 0:
            table[key] = draw(values)
    if draw(st.booleans()):
        table["server"] = draw(st.floats(0.02, 0.4))
    return (rng.normal(size=(rows, 2)), y, more), table


@settings(max_examples=150, deadline=None)
@given(files_and_tables())
def test_every_row_is_in_one_place(drawn):
    (x, y, more), table = drawn
    try:
        raw = assemble("drawn", x, y, **more)
        pool, partition = dealt(raw, **table)
    except PotluckError:  # too few rows for that
        reject()
    count = count_rows(len(y), pool, partition)
    assert sum(asdict(count).values()) == len(y)
    assert min(asdict(count).values()) >= 0
    apart = pool.test if pool.server is None else pool.test | pool.server
    held = {split: set[int]() for split in SPLITS}
    for client in range(partition.clients):
        for split in SPLITS:
            held[split].update(partition.rows(client, split).tolist())
    assert not any(apart[row] for rows in held.values() for row in rows)
    assert not held["train"] & held["test"]
    assert not held["train"] & held["validation"]
    found = [len(held[split]) for split in SPLITS]
    told = [count.train, count.validation, count.test]
    if table["partition"] == "procedural":  # what some may hold, nobody need
        assert all(few <= many for few, many in zip(found, told, strict=True))
    else:
        assert found == told
    if table["test_from"] == "time" and pool.validators is None:
        for client in range(partition.clients):
            first, second, third = (pool.time[partition.rows(client, split)] for split in SPLITS)
            assert first.max() < second.min() <= second.max() < third.min()
