"""ClassTer in small federations, asynchronous too; what it refuses, and how it is told in a file."""

import tomllib
import warnings
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, pool, small, values, weights
from support import tasks

from potluck import algorithms
from potluck.algorithms.classter.device.augment import ByShape, Crop
from potluck.algorithms.classter.device.detect import Detect
from potluck.algorithms.classter.device.distil import Distillation
from potluck.core import keys
from potluck.core.errors import ConfigError
from potluck.data import Phase, divide, reserve_rows
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment, toml
from potluck.experiment.prepare import prepare
from potluck.jobs import LabelSet, Train
from potluck.jobs.switch import Threshold

DATA = reserve_rows(pool(), 0.1, 1)


class Watched:
    """A rule, and what it planned and heard."""

    def __init__(self, rule):
        self.rule, self.planned, self.heard = rule, [], []

    def __getattr__(self, name):
        return getattr(self.rule, name)

    def plan(self, m, lane, ctx):
        after, commands = self.rule.plan(m, lane, ctx)
        self.planned += [(ctx.now, lane, task, m) for task in tasks(commands)]
        return after, commands

    def merge(self, m, lane, got, ctx):
        self.heard += [(ctx.now, lane, reply) for reply in got.replies]
        return self.rule.merge(m, lane, got, ctx)


def skewed(classes=2, devices=8, key=1):
    return divide(DATA, "shards", devices, key, classes_per_client=classes)


def crowd(held=None, **more):
    held = skewed() if held is None else held
    federation = small((9,) * held.clients, data=DATA, compute=4e5)
    return replace(federation, partition=held, **more)


def rule(name="classter", **params):
    few = {"mode": "published", "clients": 4, "distil": {"every": 8}, "personal": {"epochs": 1}}
    return algorithms.make(name, LOCAL, **few | params)


def run(what="classter", where=None, rounds=6, plan=LOOP, often=EvaluateAt(), **params):
    """A simulation that has ended, what was planned and heard in it, and its last state."""
    watched = Watched(rule(what, **params) if isinstance(what, str) else what)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a stack that is trained one by one says so
        sim = finished(where or crowd(), watched, rounds=rounds, plan=plan, often=often)
    return sim, watched, sim.points[sim.root].own.state.model


def enrolments(watched):
    return [(now, task.to) for now, _, task, _ in watched.planned if isinstance(task.job, LabelSet)]


def answers(watched):
    """Those of devices that trained."""
    return [r for _, lane, r in watched.heard if lane != "distil" and not isinstance(r.task.job, LabelSet)]


def classes_of(federation, node, when=0.0):
    rows = federation.find_partition(when).rows(node, "train").copy()
    return tuple(federation.pool.y[torch.tensor(rows)].unique().tolist())


# ------------------------------------------------------------------------------------------------- in rounds


def test_devices_enrol_once_and_train_what_they_hold():
    sim, watched, m = run(rounds=8)
    who = [node for _, node in enrolments(watched)]
    assert len(who) == len(set(who)) == len(m.members) >= 6
    for node, member in m.members.items():
        assert member.classes == classes_of(sim.federation, node)
        assert member.rows == len(sim.federation.partition.rows(node, "train"))
    assert len(answers(watched)) == m.total == 32  # 8 rounds of 4
    assert all(r.task.tag[0] in m.members[r.task.to].classes for r in answers(watched))


def test_the_least_trained_come_first():
    everybody = divide(DATA, "iid", 8, 1)
    _, _, m = run(where=crowd(everybody), rounds=9, clients=3)
    assert m.total == 27
    assert max(m.updates) - min(m.updates) <= 1
    _, _, chance = run(where=crowd(everybody), rounds=9, clients=3, schedule="random")
    assert max(chance.updates) - min(chance.updates) > 1


@pytest.mark.parametrize(("name", "rounds"), [("classter", 10), ("classter_async", 80)])
def test_devices_of_one_class_learn_it_from_noise(name, rounds):
    sim, _, m = run(name, crowd(skewed(classes=1)), rounds, distil={"every": 10**6})
    assert {len(member.classes) for member in m.members.values()} == {1}
    assert min(m.updates) >= 3
    net, free = sim.federation.models[rule().local.model], torch.from_numpy(DATA.free.copy())
    noise = keys.normal(keys.as_tensor(9), (300, 5), torch.float64)
    for c, model in enumerate(m.models):
        x = DATA.x[free[DATA.y[free] == c]]
        assert float(net(model, x).mean()) > float(net(model, noise).mean()) + 0.3


@dataclass(frozen=True)
class Slow(Train):
    """Takes twenty seconds more."""

    def cost(self, at):
        return replace(Train.cost(self, at), seconds=20.0)


def test_distillation_takes_time_and_holds_nobody_up():
    one = rule()
    parts = {f.name: getattr(one.distil, f.name) for f in fields(one.distil)}
    sim, watched, m = run(replace(one, distil=Slow(**parts)))
    started = [now for now, lane, *_ in watched.planned if lane == "distil"]
    first, taken = next((now, r.spent.total) for now, lane, r in watched.heard if lane == "distil")
    assert taken > 20
    assert first == pytest.approx(started[0] + taken)
    times = [now for now, lane, *_ in watched.planned if lane == "train"]
    assert any(started[0] < now < first for now in times)
    closed = [now for now, lane, _ in watched.heard if lane == "train"]
    assert {now for now in closed if now < closed[-1]} <= set(times)  # the next round begins at once
    assert values(sim, "distilled")[0] == {"updates": 8, "seconds": taken}
    assert m.distilled == m.total == 24  # the last is waited for at the stop


def test_the_general_model_is_served_after_the_first_distillation_and_the_last_is_at_the_stop():
    sim, watched, m = run(distil={"every": 10}, often=EvaluateAt(rounds=1))
    first = next(r["time"] for r in sim.records if r["metric"] == "distilled")
    scored = {r["time"] for r in sim.records if r["metric"] == "accuracy_mean"}
    switched = {r["time"] for r in sim.records if r["metric"] == "personal"}
    assert switched == {time for time in scored if time >= first}
    assert len(scored) > len(switched) >= 2
    assert [told["updates"] for told in values(sim, "distilled")][-1] == m.total == 24
    tags = {t.tag for _, lane, t, _ in watched.planned if lane == "distil"}
    assert tags == {12, 24}  # at least ten updates apart: three rounds
    assert [len(values(sim, "calibration", group=c)) for c in range(4)] == [2] * 4


def test_distillation_that_comes_to_nothing_ends_too():
    sim, _, m = run(rounds=4, distil=Distillation(every=8, lr=1e300))  # no file may say so
    assert m.general is None
    assert sim.accounts.lost["bad"] == len(values(sim, "bad_update")) >= 2
    assert np.isfinite(values(sim, "accuracy_mean")).all()


@pytest.mark.parametrize("name", ["classter", "classter_async"])
def test_a_run_ends_when_all_have_converged(name):
    soon = {"window": 2, "tolerance": 0.5}
    sim, _, m = run(name, rounds=500, convergence=soon, until_converged=True)
    assert sim.finished
    assert sim.round < 200
    assert sorted(m.converged) == [0, 1, 2, 3]
    assert m.distilled == m.total
    assert sorted(r["group"] for r in sim.records if r["metric"] == "converged") == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "rounds"), [("classter", 8), ("classter_async", 40)])
def test_who_holds_other_rows_by_now_is_asked_again(name, rounds):
    later = Phase(20.0, skewed(key=7), np.flatnonzero(DATA.test), np.ones(8, bool))
    sim, watched, m = run(name, crowd(changes=(later,)), rounds)
    strayed = [(now, reply.task.to) for now, _, reply in watched.heard if reply.weight == 0]
    assert strayed
    assert min(now for now, _ in strayed) > 20.0
    again = [(now, node) for now, node in enrolments(watched) if now > 20.0]
    fresh = {node for when, node in strayed if any(now >= when and who == node for now, who in again)}
    assert fresh
    for node in fresh & set(m.members):
        assert (
            m.members[node].classes
            == classes_of(sim.federation, node, 1e9)
            != classes_of(sim.federation, node)
        )
    assert m.total == sum(reply.weight > 0 for reply in answers(watched))


@pytest.mark.parametrize("switch", ["Entropy", "Threshold", "Cosine", "Familiar"])
def test_stacks_and_loops_agree(switch):
    held = skewed()
    nobody = replace(held, offsets=np.r_[held.offsets[:1].repeat(3), held.offsets])  # one holds nothing
    name = "classter_async" if switch == "Cosine" else "classter"
    how = {"where": crowd(nobody), "personal": {"switch": switch, "epochs": 2}, "rounds": 4}
    (loop, _, m), (stacked, _, _) = (run(name, plan=plan, **how) for plan in (LOOP, STACKED))
    assert m.general is not None
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    for metric in ("accuracy", "personal", "own", "general"):
        assert values(loop, metric) == values(stacked, metric)


# ---------------------------------------------------------------------------------------------- as they come


def test_assignments_see_published_counters_and_simulated_seconds():
    _, watched, m = run("classter_async", rounds=40, publish=7)
    kept_back = 0
    for _, lane, task, before in watched.planned:
        if lane != "distil" and task.tag is not None:
            seen, (c, version) = before.arrivals.published, task.tag
            assert seen[c] == min(seen[k] for k in before.members[task.to].classes)
            assert version == before.updates[c]
            kept_back += seen != before.updates
            assert 0 <= sum(before.updates) - sum(seen) < 7
    assert kept_back > 15
    spent = [r.spent.total for r in answers(watched)]
    assert m.arrivals.durations.count == len(spent) == 40
    assert m.arrivals.durations.mean == pytest.approx(np.mean(spent))
    assert m.arrivals.durations.deviation == pytest.approx(np.std(spent))
    assert np.mean(spent) > 0.5  # of the fleet's clock: this machine is done in milliseconds


# ----------------------------------------------------------------------------------------------------- files


def told(data=None, algorithm="classter", model="linear", train=None, **params):
    data = {"clients": 6, "limit": 400, "server": 0.2, "partition": "iid", **(data or {})}
    return Experiment(
        algorithm=algorithm,
        data=data,
        model={"name": model},
        train=train or {"batch": 8},
        stop={"rounds": 2},
        algorithms={algorithm: {"mode": "published", **params}},
        run={"executor": "loop"},
    )


VECTORS = {"source": "synthetic"}


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (told({"server": None}), r"data.server is missing: .*data.server = 0.1"),
        (
            told({"clients": 2, "partition": "shards", "classes_per_client": 1}),
            r"classes \[\d(, \d)*\]: no client holds one.*data.limit",
        ),
        (told(VECTORS, detect={"augment": "Crop"}), r"augment = 'Crop': doesn't fit rows of shape \(32,\)"),
        (told(detect={"augment": "Jitter"}), r"augment = 'Jitter': .*\(1, 8, 8\); Crop is for images"),
        (told(detect={"temperature": 0.0}), r"detect.temperature = 0.0: must be above 0, such as 0.25"),
        (told(detect={"contrast": -1.0}), r"detect.contrast = -1.0: must be 0 or more"),
        (told(detect={"augment": {"smallest": 0.5}}), r"detect.augment.smallest = 0.5: no such parameter"),
        (told(detect={"augment": {"kind": "Crop", "smallest": 0.0}}), r"augment.smallest = 0.0: .*above 0"),
        (told(distil={"temperature": -1.0}), r"distil.temperature = -1.0: must be above 0"),
        (told(distil={"noise": 1}), r"distil.noise = 1: must be at least 2"),
        (told(distil={"calibrate": "nois"}), r"distil.calibrate = 'nois'.*'noise'"),
        (told(distil={"every": 0}), r"distil.every = 0: must be at least 1"),
        (told(distil={"every": "often"}), r"algorithms.classter.distil.every = 'often'"),
        (told(personal={"switch": "Treshold"}), r"personal.switch.kind = 'Treshold'.*'Threshold'"),
        (told(personal={"switch": "Crop"}), r"personal.switch.kind = 'Crop': no such part"),
        (told(personal={"switch": {"kind": "Threshold", "quantile": 0.0}}), r"switch.quantile = 0.0: .*0.95"),
        (told(personal={"switch": {"kind": "Cosine", "limit": 1.5}}), r"switch.limit = 1.5: .*-1 and 1"),
        (told(personal={"epochs": -1}), r"personal.epochs = -1: must be at least 0"),
        (told(schedule="last"), r"schedule = 'last'.*'least'"),
        (told(class_width=0.0), r"class_width = 0.0: must be above 0 and at most 1"),
        (told(class_width=1.5), r"class_width = 1.5: must be above 0 and at most 1"),
        (told(convergence={"window": 0}), r"convergence.window = 0: must be at least 1"),
        (told(convergence={"tolerance": 1.0}), r"convergence.tolerance = 1.0: .*below 1"),
        (told(clients=0), r"clients = 0: must be at least 1"),
        (told(deadline=0.0), r"deadline = 0.0: must be above 0"),
        (told(train={"batch": 1}), r"train.batch = 1: must be at least 2"),
        (told(train={"privacy": {"clip": 1.0, "sigma": 1.0}}), r"train.privacy = "),
        (told(algorithm="classter_async", publish=0), r"publish = 0: must be at least 1"),
        (told(algorithm="classter_async", alpha=0.0), r"alpha = 0.0: must be above 0 and at most 1"),
        (told(algorithm="classter_async", period="incremnt"), r"period = 'incremnt'.*'increment'"),
        (told(algorithm="classter_async", clamp=False, slope=0.5), r"slope = 0.5: divides by 0"),
    ],
)
def test_what_is_wrong_is_named(experiment, message):
    with pytest.raises(ConfigError, match=rf"^experiment: .*{message}"):
        prepare(experiment)


def test_tokens_have_no_views():
    words = replace(DATA, x=torch.ones(len(DATA), 5, dtype=torch.int64))
    where = replace(crowd(), pool=words)
    with pytest.raises(ConfigError, match=r"doesn't fit tokens; .*contrast = 0 needs none"):
        algorithms.make("classter", LOCAL, mode="published").fits(where)
    algorithms.make("classter", LOCAL, detect={"contrast": 0.0}).fits(where)
    algorithms.make("classter_async", LOCAL, detect={"contrast": 0.0}).fits(where)


def test_tables_fill_in_what_they_leave_out():
    given = {"detect": {"contrast": 0.0}, "personal": {"switch": "Threshold"}, "distil": {"every": 20}}
    rule = prepare(told(**given)).algorithm
    assert rule.local.objective == Detect(contrast=0.0)
    assert rule.tuning.objective.chooser == Threshold(0.95)
    assert (rule.distillation.every, rule.distillation.epochs) == (20, 10)
    crop = {"kind": "ByShape", "images": {"flip": True}}
    assert algorithms.make("classter", LOCAL, detect={"augment": crop}) == algorithms.make(
        "classter", LOCAL, detect=Detect(0.0, augment=ByShape(Crop(flip=True)))
    )


@pytest.mark.parametrize("name", ["classter", "classter_async"])
def test_parameters_are_told_and_can_be_written_down(name):
    listed = {p.name: p.meaning for p in algorithms.describe(name).parameters}
    assert {"clients", "detect", "class_width", "schedule", "distil", "personal", "convergence"} <= set(
        listed
    )
    assert all(meaning for key, meaning in listed.items() if key != "local")
    for given in ({}, {"detect": {"temperature": 0.5}, "personal": {"switch": "Cosine"}, "clients": 3}):
        table = algorithms.complete(name, **given)
        again = tomllib.loads(toml.write(table))
        assert algorithms.make(name, LOCAL, **again) == algorithms.make(name, LOCAL, **given)
    own = {key for key in listed if "." not in key}  # not of a table in it
    assert set(algorithms.complete(name)) == own - {"local", "deadline"}
