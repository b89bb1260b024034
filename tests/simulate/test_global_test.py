"""The global test is of the models that devices use, each counted as often as it is used."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import LOCAL, SPEC, finished, pool, small, values

import potluck
from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedrac.results import count_tiers, find_members, trace_tier
from potluck.core.codec import value
from potluck.core.messages import Task
from potluck.core.trees import scale
from potluck.engine.schedule import EvaluateAt
from potluck.fleet import Attack
from potluck.jobs.train import fine_tune, use_model

EXAMPLES = Path(__file__).parents[2] / "examples"
THREE = (20, 20, 20)


@value
class TwoModels(FedAvg):
    """Devices 0 and 1 use the model, device 2 its opposite; the cloud's last word is neither."""

    def serve(self, m, node, ctx):
        job, turned = use_model(self.local.model), scale(m.params, -1.0)
        if node == ctx.me:
            still = scale(m.params, 0.0)
            return {
                "turned": Task(node, job, {"params": turned}),
                "nothing": Task(node, job, {"params": still}),
            }
        return {"mine": Task(node, job, {"params": turned if node == 2 else m.params})}


@value
class Tuned(FedAvg):
    """Devices tune the model before they use it, and nothing else is served."""

    def serve(self, m, node, ctx):
        job = use_model(self.local.model) if node == ctx.me else fine_tune(self.local)
        return {"tuned": Task(node, job, {"params": m.params})}


def told(sim):
    """The last global test: view, accuracy, models, whether they are used."""
    record = [r for r in sim.records if r["metric"] == "global_test"][-1]
    return record["view"], *(record["value"][key] for key in ("accuracy", "models", "used"))


def measure(federation, params):
    """Accuracy on the global test set."""
    rows = torch.from_numpy(np.flatnonzero(pool().test))
    predicted = federation.models[SPEC](params, federation.pool.x[rows]).argmax(-1)
    return (predicted == federation.pool.y[rows]).double().mean().item()


def measure_both(federation, sim):
    shared, turned = (sim.serve(node)["mine"].send["params"] for node in (0, 2))
    return measure(federation, shared), measure(federation, turned)


def test_every_device_counts_once_by_the_model_that_it_uses():
    federation = small(THREE)
    sim = finished(federation, TwoModels(3, LOCAL), rounds=4)
    shared, turned = measure_both(federation, sim)
    assert shared != turned
    assert told(sim) == ("mine", pytest.approx((2 * shared + turned) / 3), 2, True)
    # What the cloud serves itself is recorded by view as ever, and is nobody's number.
    assert values(sim, "global_accuracy", view="turned")[-1] == pytest.approx(turned)
    assert values(sim, "global_accuracy", view="nothing")[-1] not in (shared, turned)


def test_attackers_and_those_outside_of_the_panel_dont_count():
    federation = small(THREE)
    attack, who = Attack("sign_flip"), np.array([False, True, False])
    attacked = replace(federation.fleet, attack=attack, attackers=who)
    sim = finished(replace(federation, fleet=attacked), TwoModels(3, LOCAL), rounds=2)
    shared, turned = measure_both(federation, sim)
    assert told(sim)[1] == pytest.approx((shared + turned) / 2)
    two = finished(federation, TwoModels(3, LOCAL), rounds=2, often=EvaluateAt(panel=2))
    shared, turned = measure_both(federation, two)
    used = [turned if node == 2 else shared for node in two.panel]
    assert told(two)[1] == pytest.approx(np.mean(used))


def test_models_of_ones_own_are_not_tested_the_shared_one_is_and_it_is_said():
    federation = small(THREE)
    alone = finished(federation, Tuned(3, LOCAL), rounds=3)
    shared = measure(federation, alone.find_models()["tuned"][1])
    assert told(alone) == ("tuned", pytest.approx(shared), 1, False)
    beside = finished(federation, algorithms.make("ftfa", LOCAL, clients=3), rounds=3)
    shared = measure(federation, beside.find_models()["global"][1])
    assert told(beside) == ("global", pytest.approx(shared), 1, False)


def test_on_validation_rows_there_is_none():
    sim = finished(small(THREE), TwoModels(3, LOCAL), rounds=2, often=EvaluateAt(on="validation"))
    assert values(sim, "global_test") == []


@pytest.mark.parametrize(
    ("name", "view", "used"),
    [
        ("fedavg", "global", True),
        ("moon", "global", True),
        ("ifca", "chosen", True),
        ("heterofl", "level", True),
        ("fedrac", "tier", False),
        ("auxo", "cohort", True),
        ("fedpvr", "global", True),
        ("dmpfl", "global", False),
    ],
)
def test_each_kind_of_algorithm_says_whose_number_it_is(name, view, used):
    sim = finished(small(), algorithms.make(name, LOCAL), rounds=3)
    found, accuracy, models, is_used = told(sim)
    assert (found, is_used) == (view, used)
    assert 0 <= accuracy <= 1
    assert models >= 1
    served = values(sim, "global_accuracy")
    assert min(served) <= accuracy <= max(served)


def test_fedracs_number_is_of_all_tiers_by_their_members_not_of_the_smallest_model():
    own = {"mode": "published", "schedule.head_start": 10, "distillation.a": 0.5}  # tiers on their own
    told = [f"algorithms.fedrac.{key}={value}" for key, value in own.items()]
    experiment = potluck.Experiment.from_file(EXAMPLES / "fedrac.toml")
    experiment = experiment.with_overrides(["stop.seconds=30", *told])
    run = potluck.run(experiment)
    ends = [trace_tier(run, tier)[-1].value for tier in range(count_tiers(run))]
    members = find_members(run)
    assert len(members) == 40
    assert run.summary["global_accuracy"] == pytest.approx(np.mean([ends[t] for t in members.values()]))
    assert abs(run.summary["global_accuracy"] - ends[0]) < 0.1  # near its leader's
    assert run.summary["global_accuracy"] > ends[-1] + 0.02  # which is the view that is written last
    told = (run.summary["view"], run.summary["global_view"], run.summary["global_models"])
    assert told == ("tier", "tier", len(set(members.values())))
