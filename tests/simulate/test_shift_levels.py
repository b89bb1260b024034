"""evaluate.shifts: what is served, at the end also scored on test rows that are shifted otherwise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import (
    LOCAL,
    LOOP,
    SPEC,
    STACKED,
    chained,
    finished,
    lines,
    pool,
    simulate,
    small,
    values,
    weights,
)

import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.ftfa import ftfa
from potluck.core.codec import value
from potluck.core.errors import ConfigError, DataError
from potluck.core.messages import Task
from potluck.data import Change, Groups, Shift, arrange, divide
from potluck.data.shift import count_replaced
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.reference import score_together
from potluck.experiment import Experiment, build
from potluck.experiment.launch.batch import RunBatch
from potluck.experiment.record_check import find_record_fault
from potluck.jobs import use_model
from potluck.jobs.objective import Objective, score_rows
from potluck.report.per_device import read_at_shift

LEVELS = (0.0, 0.4, 1.0)


def laid(kind="shards", shift=0.0, levels=LEVELS, **more):
    """Eight clients of one class each, whose test rows are laid out for some shares of shift."""
    options = {"classes_per_client": 1} if kind == "shards" else {}
    held = divide(pool(), kind, 8, 1, **options)
    made = arrange(pool(), held, 1, shift=shift, levels=levels, kind=kind, **more, **options)
    first, *later = made.phases
    federation = small((9,) * 8, compute=2e4)
    changes = tuple(later)
    return replace(
        federation, pool=made.pool, partition=first.partition, changes=changes, shifts=first.shifts
    )


def only(label):
    """Parameters of a model that always says this class."""
    net = small().models[SPEC]
    params = {name: torch.zeros_like(p) for name, p in net.init(0).items()}
    name = next(n for n in net.head_names if params[n].ndim == 1)
    params[name][label] = 1.0
    return params


@value
class Sure(Objective):
    """Also tells how sure the model is, as a score of its own."""

    def score(self, net, params, batch, held):
        logits = net(params, batch.x)
        return {**score_rows(logits, batch), "sure": logits.softmax(-1).max(-1).values}


@value
class OwnClass(FedAvg):
    """Serves every device a model that knows the device's one class, and that class only."""

    def serve(self, m, node, ctx):
        if node == ctx.me:
            return FedAvg.serve(self, m, node, ctx)
        rows = laid().partition.rows(node, "train")
        return {"own": Task(node, use_model(SPEC, Sure()), {"params": only(int(pool().y[rows[0]]))})}


def shifted(sim):
    return {r["value"]["shift"]: r["value"] for r in sim.records if r["metric"] == "accuracy_shifted"}


# ------------------------------------------------------------------------------------------------- levels


def test_who_knows_own_classes_only_loses_what_is_replaced():
    sim = finished(laid(), OwnClass(2, LOCAL), rounds=1, often=EvaluateAt(shifts=LEVELS))
    sizes = [len(laid().partition.rows(node, "test")) for node in range(8)]
    found = shifted(sim)
    assert list(found) == list(LEVELS)
    for share in LEVELS:
        # All own rows are right, all others wrong: of n rows, floor(share n + 1/2) are others.
        right = [1 - count_replaced(share, n) / n for n in sizes]
        assert found[share]["mean"] == pytest.approx(np.mean(right))
        assert found[share]["worst10"] == pytest.approx(min(right))
        # Logits are 1 for one class and 0 for three: e / (e + 3), whatever the row.
        assert found[share]["sure"] == pytest.approx(np.e / (np.e + 3))
    assert (found[0.0]["mean"], found[1.0]["mean"]) == (1.0, 0.0)
    assert values(sim, "accuracy_mean", view="own")[-1] == 1.0  # data.shift is 0


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize("rule", [FedAvg(3, LOCAL), ftfa(LOCAL, 3)], ids=["as is", "tuned"])
def test_the_level_of_the_run_is_its_last_evaluation(rule, plan):
    sim = finished(laid("dirichlet", 0.4), rule, often=EvaluateAt(rounds=2, shifts=LEVELS), plan=plan)
    views = {r["view"] for r in sim.records if r["metric"] == "accuracy_shifted"}
    assert views == {r["view"] for r in sim.records if r["metric"] == "accuracy_mean"}
    for view in views:
        told = next(v for v in values(sim, "accuracy_shifted", view=view) if v["shift"] == 0.4)
        assert told["mean"] == values(sim, "accuracy_mean", view=view)[-1]
        assert told["worst10"] == values(sim, "accuracy_worst10", view=view)[-1]
        losses = values(sim, "loss", view=view)[-8:]
        assert told["loss"] == pytest.approx(np.mean(losses), rel=1e-12)


def test_levels_share_rows():
    federation = laid("dirichlet", levels=(0.2, 0.4, 0.6))
    for node in range(8):
        own = set(federation.partition.rows(node, "test").tolist())
        levels = [federation.shifts[Shift(share)] for share in (0.2, 0.4, 0.6)]
        kept = [own & set(level.rows(node, "test").tolist()) for level in levels]
        assert own >= kept[0] >= kept[1] >= kept[2]
        for level in federation.shifts.values():
            assert np.array_equal(level.rows(node, "train"), federation.partition.rows(node, "train"))
            assert len(level.rows(node, "test")) == len(own)


def test_levels_are_of_the_present(monkeypatch):
    federation = laid("dirichlet", changes=[Change(2.0, "labels"), Change(1e6, "labels")])
    often = EvaluateAt(shifts=LEVELS)
    sim = simulate(federation, FedAvg(2, LOCAL), stop=StopAt(seconds=5.0), often=often)
    asked = []

    def scored(items):
        asked.append({item.at.node: item.at.test for item in items})
        return score_together(items)

    monkeypatch.setattr("potluck.simulate.served_scores.score_together", scored)
    sim.run()
    assert len(asked) == 2 + len(LEVELS)  # both ends, and once for each level
    for share, tests in zip(LEVELS, asked[2:], strict=True):
        assert sorted(tests) == list(range(8))
        for node, rows in tests.items():
            assert np.array_equal(rows, federation.changes[0].shifts[Shift(share)].rows(node, "test"))
    before, now = federation.shifts[Shift(1.0)].rows(0, "test"), asked[-1][0]
    assert not np.array_equal(before, now)


def test_rows_of_levels_are_seen_as_the_client_sees():
    groups = Groups("permutation", 4)
    held = divide(pool(), "shards", 8, 1, classes_per_client=1)
    made = arrange(pool(), held, 1, groups=groups, levels=(1.0,))
    views = groups.views(pool(), 1)
    for node in range(8):
        rows = made.phases[0].shifts[Shift(1.0)].rows(node, "test")
        names = torch.tensor(views[made.group[node]].labels or tuple(range(4)))
        assert torch.equal(made.pool.y[rows.copy()], names[pool().y[made.origin[rows]]])
        assert pool().test[made.origin[rows]].all()  # all of them are replaced


def test_a_kind_is_told_with_its_scores():
    levels = (*LEVELS, Shift(0.4, "onset"), Shift(1.0, "one"))
    sim = finished(laid(levels=levels), FedAvg(2, LOCAL), rounds=1, often=EvaluateAt(shifts=levels))
    told = [r for r in sim.records if r["metric"] == "accuracy_shifted" and r["view"] == "global"]
    kinds = [(r["value"]["shift"], r["value"].get("kind")) for r in told]
    assert kinds == [(0.0, None), (0.4, None), (1.0, None), (0.4, "onset"), (1.0, "one")]
    assert told[1]["value"]["mean"] == told[3]["value"]["mean"]  # the same rows in another order
    assert all(find_record_fault(r) is None for r in told)
    wrong = {**told[4], "value": {**told[4]["value"], "kind": 3}}
    assert find_record_fault(wrong) == "accuracy_shifted.kind should be a text"


# --------------------------------------------------------------------------------------- nothing else changes

SMALL = {
    "model": {"name": "linear"},
    "stop": {"seconds": 60.0},
    "run": {"executor": "loop"},
    "algorithms": {"fedavg": {"clients": 3}, "ftfa": {"clients": 3}},
}


def experiment(evaluate=None, algorithm="fedavg", **data):
    data = {"clients": 8, "limit": 400, **data}
    return Experiment(algorithm=algorithm, data=data, evaluate=evaluate or {}, **SMALL)


def rounded(record):
    return round(record["value"], 6) if record["metric"] == "global_loss" else record["value"]


@pytest.mark.parametrize("algorithm", ["fedavg", "ftfa"])
def test_a_run_is_the_same_but_for_what_is_told_at_its_end(algorithm):
    everything = dict(
        groups={"kind": "rotation", "count": 2},
        flip={"share": 0.3},
        changes=[{"at": 10, "kind": "labels", "share": 0.5}, {"at": 20.0, "kind": "rotation", "degrees": 90}],
    )
    plain = potluck.run(experiment({"seconds": 20.0}, algorithm, **everything))
    run = potluck.run(experiment({"seconds": 20.0, "shifts": [0, 0.5, 1]}, algorithm, **everything))
    told = [line for line in run.lines if line["metric"] == "accuracy_shifted"]
    rest = [line for line in run.lines if line["metric"] != "accuracy_shifted"]
    assert [line["value"]["shift"] for line in told] == sorted([0.0, 0.5, 1.0] * (len(told) // 3))
    # Rows of the global test set may stand in another order, and their mean loss be rounded otherwise.
    assert [r | {"value": rounded(r)} for r in rest] == [r | {"value": rounded(r)} for r in plain.lines]
    assert read_at_shift(run, 0.0) == run.summary["accuracy_mean"]
    assert read_at_shift(run, 0.0, "worst10") == run.summary["accuracy_worst10"]
    assert read_at_shift(run, 1.0, view="global") is not None
    for missing in (
        read_at_shift(run, 0.7),
        read_at_shift(run, 1.0, "sure"),
        read_at_shift(run, 1.0, view="none"),
    ):
        assert missing is None
    assert read_at_shift(plain, 0.0) is None


def test_resumed_at_any_event():
    federation, often = laid("dirichlet", 0.4), EvaluateAt(shifts=LEVELS)
    straight = finished(federation, ftfa(LOCAL, 3), rounds=2, often=often)
    sim, events = chained(federation, ftfa(LOCAL, 3), rounds=2, often=often)
    assert events > 4
    assert lines(sim) == lines(straight)
    assert len(values(sim, "accuracy_shifted")) == 2 * len(LEVELS)


def test_on_validation_levels_are_rehearsed_and_no_test_row_is_touched():
    rule, often = FedAvg(3, LOCAL), EvaluateAt(on="validation", shifts=LEVELS)
    federation = laid("dirichlet")
    x = federation.pool.x.clone()
    for held in (federation.partition, *federation.shifts.values()):
        for node in range(8):
            x[torch.tensor(held.rows(node, "test"))] = float("nan")
    sims = [
        finished(w, rule, often=often)
        for w in (federation, replace(federation, pool=replace(federation.pool, x=x)))
    ]
    assert lines(sims[0]) == lines(sims[1])
    assert torch.equal(weights(sims[0]), weights(sims[1]))
    told = [v["mean"] for v in values(sims[0], "accuracy_shifted", view="global")]
    assert told[0] == values(sims[0], "accuracy_mean")[-1]
    assert len(set(told)) == len(LEVELS)


def test_runs_of_a_batch_that_differ_in_levels():
    batch = RunBatch(3, 3.0)
    wanted = [None, {"shifts": [0.5]}, {"shifts": [0.5, 1.0]}]
    runs = [batch.run(str(i), experiment(e, partition="shards"), None) for i, e in enumerate(wanted)]
    assert [read_at_shift(run, 1.0) is None for run in runs] == [True, True, False]
    assert read_at_shift(runs[1], 0.5) == read_at_shift(runs[2], 0.5) is not None


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("shifts", "message"),
    [
        ([0.2, 1.5], r"evaluate.shifts.*should be less than or equal to 1"),
        ([-0.1], r"evaluate.shifts.*should be greater than or equal to 0"),
        ([0.2, 1.0, 0.2], r"evaluate.shifts = \[0.2, 1.0, 0.2\]: name each shift once"),
    ],
)
def test_wrong_shares(shifts, message):
    with pytest.raises(ConfigError, match=message):
        experiment({"shifts": shifts})
    with pytest.raises(ConfigError, match=r"evaluate.shifts = \["):
        EvaluateAt(shifts=tuple(shifts))


def test_a_world_must_be_laid_out_for_them():
    often = EvaluateAt(shifts=(0.0, 0.3))
    with pytest.raises(ConfigError, match=r"evaluate.shifts = \[0.0, 0.3\]: no rows are laid out"):
        simulate(laid(), FedAvg(2, LOCAL), often=often)


def test_too_few_rows_name_the_key():
    told = experiment({"shifts": [1.0]}, clients=2, test=0.8, limit=None, partition="iid").resolve()
    with pytest.raises(DataError, match=r"^evaluate.shifts: shift = 1.0: client 0 needs \d+ test rows"):
        build.build_federation(told)
