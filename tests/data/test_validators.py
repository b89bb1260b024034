"""data.validation_from = "users": settings are chosen on people on whose rows nobody trains."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import try_rates
from test_partition import SPLITS, check, keys, pool_of, pools, quick, same
from test_partition_users import everything, written

import potluck
from potluck.core.errors import ConfigError, DataError
from potluck.data import divide, drop_class, from_rows, limit_rows, set_validators
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation

KINDS = {"iid": 4, "dirichlet": 4, "quantity": 4, "by_user": None, "split_users": None, "user_devices": None}


@quick
@given(pools(), st.sampled_from(sorted(KINDS)), st.integers(3, 12), st.floats(0.05, 0.6), keys)
def test_their_rows_are_dealt_once_and_nobody_trains_on_them(pool, kind, people, share, key):
    pool = written(pool, people, 1)
    users = np.unique(pool.user[pool.free])
    assume(max(1, round(share * len(users))) < len(users))
    apart = set_validators(pool, share)
    assert len(np.unique(pool.user[apart.validators])) == max(1, round(share * len(users)))
    try:
        partition = divide(apart, kind, KINDS[kind], key, devices_per_user=[1, 3], validation=share)
    except DataError:  # too few rows are left for some kind
        assume(False)
    check(partition, pool, 5)
    assert np.array_equal(everything(partition), np.unique(everything(partition)))
    asked = np.concatenate([partition.rows(c, "validation") for c in range(partition.clients)])
    assert np.array_equal(np.sort(asked), np.flatnonzero(apart.validators))
    sizes = [len(partition.rows(c, "validation")) for c in range(partition.clients)]
    assert max(sizes) - min(sizes) <= 1
    assert same(partition, divide(apart, kind, KINDS[kind], key, devices_per_user=[1, 3], validation=share))


def people(rows=600, count=10):
    return pool_of(np.arange(rows) % 4, user=np.arange(rows) % count)


def test_they_are_the_same_people_whatever_the_key_and_the_limit():
    pool = set_validators(people(), 0.3)
    few = limit_rows(pool, 40)
    assert len(few.free) == 40
    assert few.validators.sum() == pool.validators.sum() > 100
    assert few.test.sum() == pool.test.sum()
    assert np.array_equal(np.unique(few.user[few.validators]), np.unique(pool.user[pool.validators]))
    assert (drop_class(pool, 2).y[drop_class(pool, 2).validators] != 2).all()
    one, other = (divide(pool, "iid", 5, key) for key in (1, 2))
    assert not same(one, other)
    assert one.size(0) == 54  # five share 336 rows, and a fifth of each's tests: it needs none to validate


def own_file(folder):
    rng = np.random.default_rng(0)
    user = np.arange(400) % 10
    y = rng.integers(0, 4, 400)
    x = rng.standard_normal((400, 6)) + 2 * np.eye(4, 6)[y]
    np.savez(folder / "mine.npz", x=x.astype(np.float32), y=y, user=user, test=user >= 8)


def experiment(folder, **more):
    data = {"source": "npz", "path": "mine.npz", "root": str(folder), "clients": 6, "validation": 0.25}
    data |= {"validation_from": "users", **more}
    stop, run = {"rounds": 2}, {"executor": "loop"}
    return Experiment(seed=1, data=data, model={"name": "linear"}, stop=stop, run=run, train={"lr": 0.1})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"groups": {"kind": "affine", "count": 2}},
        {"changes": [{"at": 1e-3, "kind": "labels"}]},
        {"partition": "user_devices", "clients": None, "changes": [{"at": 1e-3, "kind": "labels"}]},
        {"server": 0.2},
    ],
    ids=["plain", "groups", "changes", "users", "server"],
)
def test_a_run_trains_on_the_others(tmp_path, more):
    own_file(tmp_path)
    federation = build_federation(experiment(tmp_path, **more).resolve())
    for when in (0.0, 1.0):
        held = federation.find_partition(when)
        seen = {
            split: {int(u) for c in range(held.clients) for u in federation.pool.user[held.rows(c, split)]}
            for split in SPLITS
        }
        assert len(seen["validation"]) == 2
        assert not seen["validation"] & (seen["train"] | seen["test"])
        assert not any(seen[split] & {8, 9} for split in SPLITS)
    potluck.run(experiment(tmp_path, **more), tmp_path / "run")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["user_devices", "dirichlet", "by_user"])
def test_crowded_clients_that_change_train_on_the_others(tmp_path, kind, seed):
    own_file(tmp_path)
    more = {"partition": kind, "alpha": 0.1, "smallest": 3, "devices_per_user": [5, 6]}
    more |= {"clients": 35 if kind == "dirichlet" else None, "validation": 0.6, "test": 0.4}
    more["changes"] = [{"at": 1e-3, "kind": "labels"}]
    federation = build_federation(experiment(tmp_path, **more).with_values(seed=seed).resolve())
    check(federation.find_partition(1.0), federation.pool, 3)
    for c in range(federation.partition.clients):
        for split in SPLITS:
            rows = federation.find_partition(1.0).rows(c, split)
            assert federation.pool.validators[rows].all() == (split == "validation")


def test_clients_given_by_their_rows():
    pool = set_validators(people(), 0.3)
    held = from_rows(np.array_split(pool.free, 7), pool)
    check(held, pool, 5)
    for client in range(7):
        assert pool.validators[held.rows(client, "validation")].all()
        assert not pool.validators[held.rows(client, "train")].any()
    assert np.array_equal(everything(held), np.flatnonzero(~pool.test))


def test_rates_are_chosen_on_them(tmp_path):
    own_file(tmp_path)
    wanted = experiment(tmp_path).with_values(tune=try_rates(0.01, 0.1))
    found = potluck.experiment.tune(wanted, ["fedavg"], tmp_path / "tuned")
    one = potluck.run(
        wanted.with_values(evaluate={"on": "validation"}, tune=None, train={"lr": 0.01}), tmp_path / "one"
    )
    assert found.results["fedavg"][0]["results"] == [one.summary["accuracy_mean"]]
    own = experiment(tmp_path, validation_from="rows").with_values(tune=try_rates(0.01, 0.1))
    assert potluck.experiment.tune(own, ["fedavg"], tmp_path / "own").results != found.results


@pytest.mark.parametrize(
    "more, message",
    [
        ({"source": "digits", "path": None}, "data.validation_from = 'users': digits doesn't say who wrote"),
        ({"validation": 0.95}, "data.validation = 0.95: 8 of 8 users .* lower it"),
        ({"partition": "procedural"}, "data.validation_from = 'users': procedural clients share rows"),
        ({"limit": 280, "clients": 50, "smallest": 3}, "fewer than the 50 clients; raise validation"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, more, message):
    own_file(tmp_path)
    more = {"validation": 0.125, **more}
    with pytest.raises((ConfigError, DataError), match=message):
        build_federation(experiment(tmp_path, **more).resolve())
