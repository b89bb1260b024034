"""What devices do with an offered model before they use it, by hand and above choices."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from federations import finished, small, values
from stacks import PLAIN, WHOLE, build, crowd

from potluck.algorithms.fedavg import FedAvg
from potluck.core.errors import JobError
from potluck.core.messages import Choice, Task
from potluck.engine.context import EventContext
from potluck.engine.seeds import EVALUATION
from potluck.jobs import Kept, fine_tune, use_model
from potluck.jobs.switch import Switch
from potluck.layers import stacked
from potluck.rules.guard import RobustRule, guard
from potluck.rules.robust import Median
from potluck.rules.serving import Served, Tuned, map_offer

TUNING = fine_tune(PLAIN, 2)


def offers(sim, rule, node):
    """What a rule above the one that a run was of would serve, at its end."""
    ctx = EventContext(sim, sim.root, (EVALUATION, 0, node))
    return rule.serve(sim.cloud.own.state.model, node, ctx)


def test_a_tuned_view_is_one_more_training_on_own_rows():
    """One step on all of a device's train rows: w - lr * the gradient of their mean cross-entropy."""
    where, node = small(), 5
    sim = finished(where, stacked("fedavg", WHOLE, {"clients": 4}, tuned={"lr": 0.7}), rounds=2)
    (spec, params), net = sim.find_models()["global"], where.models
    own, test = (torch.from_numpy(where.partition.rows(node, kind).copy()) for kind in ("train", "test"))
    begun = {name: p.clone().requires_grad_() for name, p in params.items()}
    F.cross_entropy(net[spec](begun, where.pool.x[own]), where.pool.y[own]).backward()
    moved = {name: (p - 0.7 * p.grad).detach() for name, p in begun.items()}
    for view, each in (("tuned", moved), ("global", params)):
        loss = F.cross_entropy(net[spec](each, where.pool.x[test]), where.pool.y[test])
        assert values(sim, "loss", node=node, view=view)[-1] == pytest.approx(float(loss), abs=1e-12)
    assert values(sim, "global_accuracy", view="tuned") == values(sim, "global_accuracy", view="global")


def test_every_task_of_a_choice_is_mapped():
    made = build("auxo", ())
    sim = finished(crowd(), made, rounds=5)
    views = offers(sim, Served(made, Tuned(TUNING)), 0)
    assert list(views) == ["tuned", "cohort"]
    tuned, plain = views["tuned"], views["cohort"]
    assert isinstance(plain, Choice)
    cohorts = [*sim.cloud.own.state.model.cohorts]
    assert len(cohorts) > 1
    assert list(tuned.tasks) == list(plain.tasks) == cohorts
    assert (tuned.job, tuned.send, tuned.slot) == (plain.job, plain.send, plain.slot)
    for name, task in plain.tasks.items():
        mine = tuned.tasks[name]
        assert (mine.to, mine.job, mine.slot) == (task.to, TUNING, task.slot)
        assert mine.send is task.send
    root = offers(sim, Served(made, Tuned(TUNING)), sim.root)
    assert list(root) == [f"cohort {name}" for name in cohorts]  # no one model of all


def test_the_model_is_the_offered_one():
    """Of its own width, and with what is around its answers: never that of local training."""
    made = build("heterofl", ())
    sim = finished(crowd(), made, rounds=2)
    tuning = replace(TUNING, objective=Switch())
    for node in range(10):
        views = offers(sim, Served(made, Tuned(tuning, "switch")), node)
        job, plain = views["switch"].job, views["level"].job
        assert (job.model, job.epochs) == (plain.model, 2)
        assert job.objective == replace(plain.objective, inner=Switch())


@pytest.mark.parametrize("job", [use_model(PLAIN.model, Kept()), PLAIN], ids=["kept", "training"])
def test_what_has_a_use_of_its_own_is_not_put_to_another(job):
    with pytest.raises(JobError, match="what is served has a use of its own"):
        map_offer(Task(0, job, {}), TUNING)


def test_shares_and_judges_are_passed_on():
    made = Served(FedAvg(4, PLAIN), Tuned(TUNING))
    half = made.resize(2, 0.5)
    assert half.inner == FedAvg(4, PLAIN).resize(2, 0.5)
    assert half.by.tuning == TUNING.scale_rate(0.5)
    judged = guard(made, Median())
    assert judged == replace(made, inner=RobustRule(FedAvg(4, PLAIN), Median()))
    assert guard(judged, Median()) == judged
