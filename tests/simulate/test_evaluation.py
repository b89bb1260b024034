"""Evaluation only looks: numbers by hand, the same devices always, and no trace of it in the training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, SPEC, finished, lines, pool, small, values, weights

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.scaffold import scaffold
from potluck.core.codec import value
from potluck.core.job import Cost, Result
from potluck.core.messages import Move, Task, Tell
from potluck.core.trees import tmap
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.jobs import SGD, Objective
from potluck.simulate.evaluate import choose_panel, summarise

RULE = FedAvg(clients=4, local=LOCAL)


def test_spread_by_hand():
    few = summarise(np.array([0.5, 0.9, 0.7]))
    assert few == pytest.approx({"mean": 0.7, "worst10": 0.5, "best10": 0.9, "variance": 0.08 / 3})
    many = summarise(np.arange(20)[::-1] / 10)  # a tenth is two devices
    assert many["worst10"] == pytest.approx((0.0 + 0.1) / 2)
    assert many["best10"] == pytest.approx((1.8 + 1.9) / 2)
    assert many["mean"] == pytest.approx(0.95)
    assert many["variance"] == pytest.approx((20**2 - 1) / 12 / 100)
    assert summarise(np.array([0.25])) == {"mean": 0.25, "worst10": 0.25, "best10": 0.25, "variance": 0.0}


def test_the_panel_is_fixed():
    assert choose_panel(7, 200, 1).tolist() == list(range(7))
    chosen = choose_panel(1_000_000, 50, 1)
    assert len(set(chosen.tolist())) == 50
    assert (np.diff(chosen) > 0).all()
    assert (
        choose_panel(1_000_000, 50, 1).tolist() == chosen.tolist() != choose_panel(1_000_000, 50, 2).tolist()
    )


def test_scores_by_hand():
    federation = small()
    sim = finished(federation, RULE, rounds=3)
    (_, params) = sim.find_models()["global"]

    def accuracy(rows):
        rows = torch.tensor(rows)
        predicted = federation.models[SPEC](params, federation.pool.x[rows]).argmax(-1)
        return (predicted == federation.pool.y[rows]).double().mean().item()

    own = [accuracy(federation.partition.rows(node, "test")) for node in range(len(SIZES))]
    assert [values(sim, "accuracy", node=node)[-1] for node in range(len(SIZES))] == pytest.approx(own)
    assert values(sim, "accuracy_mean", view="global")[-1] == pytest.approx(np.mean(own)) == sim.accuracy
    assert values(sim, "accuracy_worst10")[-1] == pytest.approx(min(own))
    assert values(sim, "global_accuracy")[-1] == pytest.approx(accuracy(np.flatnonzero(pool().test)))
    assert values(sim, "tasks")[-1] == 12
    assert values(sim, "participants")[-1] == sim.accounts.took_part.sum()
    assert values(sim, "bytes_up", group="device")[-1] == 12 * federation.models[SPEC].nbytes


def test_both_ends_and_what_is_between():
    def looks(often, **stop):
        sim = finished(small(), RULE, stop=StopAt(**stop), often=often)
        return [(r["round"], r["time"]) for r in sim.records if r["metric"] == "accuracy_mean"]

    ends = looks(EvaluateAt(), rounds=5)
    assert [r for r, _ in ends] == [0, 5]
    assert ends[0][1] == 0.0
    assert [r for r, _ in looks(EvaluateAt(rounds=2), rounds=5)] == [0, 2, 4, 5]
    assert [r for r, _ in looks(EvaluateAt(rounds=5), rounds=5)] == [0, 5]  # the end is not told twice
    assert [t for _, t in looks(EvaluateAt(seconds=1.0), seconds=3.5)] == [0.0, 1.0, 2.0, 3.0, 3.5]


@value
class Counting:
    """Counts on its device, with a number drawn there."""

    def cost(self, at):
        return Cost(0.0, {})

    def run(self, at):
        before = 0 if at.keep is None else at.keep["count"]
        return Result({}, keep={"count": before + 1, "drawn": at.seed % 1000})


@value
class Busy(FedAvg):
    """Moves rows and tells devices something at the start of every round."""

    def plan(self, m, lane, ctx):
        m, commands = FedAvg.plan(self, m, lane, ctx)
        src, dst, told = (int(n) for n in ctx.rng.permutation(len(ctx.children))[:3])
        move = Move(src, dst, ((int(ctx.rng.integers(4)), 1),))
        return m, [move, Tell(told, Counting(), {}, slot="count"), *commands]


@pytest.mark.parametrize(
    "often",
    [EvaluateAt(rounds=1), EvaluateAt(seconds=0.05), EvaluateAt(rounds=2, seconds=0.3, panel=3)],
    ids=["every round", "often", "some"],
)
@pytest.mark.parametrize("name", ["busy", "scaffold"])
def test_looking_more_often_changes_nothing(name, often):
    rule = Busy(4, LOCAL) if name == "busy" else scaffold(replace(LOCAL, optim=SGD(0.1)), clients=4)
    rarely, often = finished(small(), rule, rounds=6), finished(small(), rule, rounds=6, often=often)
    assert torch.equal(weights(rarely), weights(often))
    assert rarely.now == often.now
    assert rarely.accounts.seconds == often.accounts.seconds
    assert len(lines(often)) > len(lines(rarely))
    for node in range(len(SIZES)):
        assert rarely.devices.rows(node).tolist() == often.devices.rows(node).tolist()
        for slot in (None, "count"):
            a, b = rarely.memories.get(node, slot), often.memories.get(node, slot)
            assert (a == b) if slot else all(torch.equal(a[k], b[k]) for k in a or {})


@value
class Remember(Objective):
    """Starts from what the device kept, and keeps what comes of it."""

    def blank(self, sent):
        return sent["params"]

    def start(self, sent, keep, own):
        return keep

    def finish(self, delta, sent, keep, held, trace):
        return {}, tmap(torch.add, keep, delta)


@value
class Tuned(FedAvg):
    """Serves what a device would get by training once more, from its own memory."""

    def serve(self, m, node, ctx):
        return {"own": Task(node, self.local, {"params": m.params})}


def test_memories_are_read_and_not_written():
    rule = Tuned(2, replace(LOCAL, objective=Remember()))
    rarely, often = (
        finished(small(), rule, rounds=3, often=often) for often in (EvaluateAt(), EvaluateAt(rounds=1))
    )
    assert torch.equal(weights(rarely), weights(often))
    took_part = [node for node in range(len(SIZES)) if rarely.memories.get(node, None) is not None]
    assert took_part == np.flatnonzero(rarely.accounts.took_part).tolist()
    assert 0 < len(took_part) < len(SIZES)
    for node in took_part:
        a, b = rarely.memories.get(node, None), often.memories.get(node, None)
        assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("which", ["global", "own", "validation"])
def test_test_rows_never_train(which):
    federation = small()
    x = pool().x.clone()
    if which == "global":
        x[torch.from_numpy(pool().test)] = float("nan")
    else:
        split = "test" if which == "own" else which
        for node in range(len(SIZES)):
            x[torch.tensor(federation.partition.rows(node, split))] = float("nan")
    spoilt = replace(federation, pool=replace(pool(), x=x))
    fine, other = (finished(w, RULE, rounds=5) for w in (federation, spoilt))
    assert torch.equal(weights(fine), weights(other))
    assert other.accounts.lost == {}
    losses = {"global": "global_loss", "own": "loss"}
    if which in losses:
        assert np.isnan(values(other, losses[which])).all()  # they are what is tested on


def test_settings_can_be_chosen_without_touching_test_rows():
    federation = small()
    x = pool().x.clone()
    x[torch.from_numpy(pool().test)] = float("nan")
    for node in range(len(SIZES)):
        x[torch.tensor(federation.partition.rows(node, "test"))] = float("nan")
    spoilt = replace(federation, pool=replace(pool(), x=x))
    sim = finished(spoilt, RULE, rounds=3, often=EvaluateAt(on="validation"))
    assert np.isfinite(values(sim, "loss")).all()
    assert len(values(sim, "loss")) == 2 * len(SIZES)
    assert values(sim, "global_accuracy") == []
    assert torch.equal(weights(sim), weights(finished(federation, RULE, rounds=3)))
