"""A rule may refuse a federation that can't carry it, before anything is run or written."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, finished, pool, simulate, small

import potluck
from potluck import federation as federations
from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.errors import ConfigError
from potluck.data import Flip, arrange, divide, reserve_rows
from potluck.experiment import Experiment
from potluck.rules import Rounds


@value
class NeedsRows(FedAvg):
    """Its server must have some rows."""

    def fits(self, federation):
        if federation.server < 10:
            raise ConfigError(f"data.server: needs 10 rows, has {federation.server}; raise it")


@pytest.mark.parametrize("made", [lambda rule: rule, Rounds], ids=["rule", "with its loop"])
def test_a_simulation_asks_its_rule(made):
    with pytest.raises(ConfigError, match=r"data.server: needs 10 rows, has 0"):
        simulate(small(), made(NeedsRows(2, LOCAL)))
    federation = small(data=reserve_rows(pool(), 0.05, 1))
    assert finished(federation, made(NeedsRows(2, LOCAL)), rounds=1).round == 1


def test_nothing_is_written_where_it_does_not_fit(tmp_path):
    told = Experiment(name="mine", data={"clients": 6}, model={"name": "linear"}, stop={"rounds": 1})
    with pytest.raises(ConfigError, match=r"^experiment: data.server: needs 10 rows"):
        potluck.run(told, tmp_path / "out", algorithm=NeedsRows(2))
    assert not (tmp_path / "out").exists()


def test_what_a_rule_may_ask():
    federation = small(data=reserve_rows(pool(), 0.05, 1))
    asked = federation.devices, federation.shape, federation.tokens, federation.classes, federation.server
    assert asked == (10, (5,), False, 4, 16)  # a twentieth of 320
    rows = np.concatenate([federation.partition.rows(node, "train") for node in range(10)])
    assert federation.count_labels().tolist() == torch.bincount(pool().y[rows], minlength=4).tolist()
    assert federation.count_labels().sum() == sum(SIZES)
    words = replace(
        federation, pool=replace(federation.pool, x=torch.ones(len(federation.pool), 5, dtype=torch.int64))
    )
    assert words.tokens


def test_labels_are_counted_as_devices_see_them():
    held = divide(pool(), "shards", 4, 1, classes_per_client=1)
    made = arrange(pool(), held, 1, flip=Flip(1.0, "next"))
    federation = replace(small((9,) * 4), pool=made.pool, partition=made.phases[0].partition)
    before = replace(federation, pool=pool(), partition=held).count_labels()
    assert federation.count_labels().tolist() == np.roll(before, 1).tolist()


def test_of_millions_the_first_are_looked_at(monkeypatch):
    held = divide(pool(), "procedural", 10**6, 1, largest=10)
    federation = replace(small(), partition=held)
    monkeypatch.setattr(federations, "LOOKED_AT", 5)
    assert federation.count_labels().sum() == sum(held.size(client) for client in range(5))
