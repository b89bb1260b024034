"""MOON: the contrast by hand, what devices keep, and what is served."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, finished, lines, small, values, weights
from support import SPEC, Desk, Line, close, local, numbers, tasks

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.moon.algorithm import moon
from potluck.algorithms.moon.device import Moon
from potluck.algorithms.oort.selection import Oort
from potluck.core.errors import ConfigError
from potluck.core.job import Batch
from potluck.core.messages import Task
from potluck.execute.reference import Item, train
from potluck.jobs import SGD, Kept, Private, Tally, Train


class Angle(Line):
    """Representations (x, w x): w is the tangent of their angle. Logits (0, w x + b)."""

    def features(self, params, x, key=None):
        return torch.cat([x, params["w"] * x], dim=-1)

    def head(self, params, z):
        return super().head(params, z[..., 1:])


def device(sent, own=None, y=1):
    """One row, x = 1, at a device that last trained the model `own`."""
    keep = None if own is None else {"personal": numbers(own)}
    return local([1.0], [y], {"params": numbers(sent)}, keep, models={SPEC: Angle()})


def loss_and_slope(objective, at, w):
    """The loss of one step at the model w, what is told of it, and its derivative by w."""
    job, net = Train(objective=objective, batch=1), Angle()
    keep = job.blank(at.inbox) if at.keep is None else at.keep
    own = whole(at)
    own = own._replace(seen=job.look(at.models, net, at.inbox, keep, own))
    _, held = job.begin(net, at.inbox, keep, own)
    params = {name: p.requires_grad_() for name, p in numbers(w).items()}
    loss, told = job.loss(net, params, own, held)
    (slope,) = torch.autograd.grad(loss, [params["w"]])
    return float(loss.detach()), {name: float(v) for name, v in told.items()}, float(slope)


def whole(at):
    return Batch(at.x, at.y, torch.ones(len(at.y), dtype=torch.float64), torch.tensor(0), None)


# ------------------------------------------------------------------------------------------- the objective


def test_contrast_of_known_cosines():
    """At w = 0, cosines with the sent and the own model are 0.8 and 0.2: log(1 + e^((0.2 - 0.8) / 0.5))."""
    at = device(sent=math.tan(math.acos(0.8)), own=math.tan(math.acos(0.2)))
    _, told, _ = loss_and_slope(Moon(tau=0.5), at, w=0.0)
    assert told["contrast"] == pytest.approx(0.263282, abs=1e-6)
    swapped = device(sent=math.tan(math.acos(0.2)), own=math.tan(math.acos(0.8)))
    _, told, _ = loss_and_slope(Moon(tau=0.5), swapped, w=0.0)
    assert told["contrast"] == pytest.approx(0.263282 + 0.6 / 0.5, abs=1e-6)


@pytest.mark.parametrize("w", [-1.0, 0.5, 2.0])
def test_loss_and_gradient_by_hand(w):
    mu, tau, sent, own = 0.7, 0.25, 1.0, -0.5

    def cosine(v):  # of the angles whose tangents are w and v
        return (1 + w * v) / math.sqrt((1 + w * w) * (1 + v * v))

    def turn(v):  # its derivative by w
        return (v - w) / ((1 + w * w) ** 1.5 * math.sqrt(1 + v * v))

    ahead = math.exp(cosine(sent) / tau)
    behind = math.exp(cosine(own) / tau)
    contrast = -math.log(ahead / (ahead + behind))
    data = math.log(1 + math.exp(-w))  # logits (0, w), class 1
    slope = -1 / (1 + math.exp(w)) + mu * behind / (ahead + behind) * (turn(own) - turn(sent)) / tau
    got, told, at_w = loss_and_slope(Moon(mu, tau), device(sent, own), w)
    assert got == pytest.approx(data + mu * contrast, abs=1e-12)
    assert told == pytest.approx({"loss": data, "contrast": contrast}, abs=1e-12)
    assert at_w == pytest.approx(slope, abs=1e-12)


def test_a_step_turns_towards_the_sent_model_and_away_from_the_own():
    """Between the two, at w = 0.5: whichever was sent attracts, by more than the data do."""
    *_, slope = loss_and_slope(Moon(mu=50.0), device(sent=1.0, own=0.0), w=0.5)
    assert slope < -1
    *_, slope = loss_and_slope(Moon(mu=50.0), device(sent=0.0, own=1.0), w=0.5)
    assert slope > 1


def test_without_an_own_model_the_contrast_is_log_2_and_pulls_nowhere():
    fresh, plain = device(sent=0.4), loss_and_slope(Moon(0.0), device(sent=0.4), w=1.5)
    loss, told, slope = loss_and_slope(Moon(3.0), fresh, w=1.5)
    assert told["contrast"] == pytest.approx(math.log(2), abs=1e-15)
    assert loss == pytest.approx(plain[0] + 3 * math.log(2), abs=1e-12)
    assert slope == plain[2]


def test_the_device_keeps_what_it_trained():
    job = Train(objective=Moon(), optim=SGD(0.5), batch=1)
    result = train(Item(job, device(sent=0.3, own=-1.0)))
    assert not close(result.body["delta"], numbers(), 0.01)
    trained = {name: p + result.body["delta"][name] for name, p in numbers(0.3).items()}
    assert close(result.keep, {"personal": trained})
    assert result.body.keys() == {"delta"}


def test_both_frozen_models_cost_a_pass_over_every_row():
    at = local([1.0, 2.0, 3.0], [0, 1, 1], {"params": numbers()})
    plain, contrast = Train(batch=1, epochs=5), Train(objective=Moon(), batch=1, epochs=5)
    assert contrast.cost(at).ops == plain.cost(at).ops + 2 * 3 * Line.ops


def test_utilities_and_noise_work_on_top():
    Train(objective=Moon(), privacy=Private(1.0, 1.0))  # all that leaves is the change
    _, told, _ = loss_and_slope(Tally(Moon()), device(sent=1.0, own=0.0), w=2.0)
    assert told["squares"] == pytest.approx(math.log(1 + math.exp(-2)) ** 2, abs=1e-12)


def test_kept_uses_what_it_has_and_the_sent_model_for_the_rest():
    sent = {"params": numbers(1.0, 2.0)}
    part = {"personal": {"b": torch.tensor([5.0])}}
    assert close(Kept().start(sent, Kept().blank(sent), None), numbers(1.0, 2.0))
    assert close(Kept().start(sent, {"personal": numbers(3.0, 4.0)}, None), numbers(3.0, 4.0))
    assert close(Kept().start(sent, part, None), numbers(1.0, 5.0))


@pytest.mark.parametrize(
    "settings, said",
    [
        (dict(mu=-1.0), "mu = -1.0"),
        (dict(mu=math.nan), "mu = nan"),
        (dict(tau=0.0), "tau = 0.0"),
        (dict(tau=math.inf), "tau = inf"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError) as error:
        moon(**settings)
    assert str(error.value).startswith(said)


# ------------------------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
def test_without_weight_it_is_fedavg(plan):
    plain = finished(small(), FedAvg(4, LOCAL), plan=plan)
    assert torch.equal(weights(finished(small(), moon(LOCAL, 4, mu=0.0), plan=plan)), weights(plain))
    first = finished(small(), moon(LOCAL, 4, mu=5.0), plan=plan, rounds=1)  # nobody has a model of its own
    again = finished(small(), FedAvg(4, LOCAL), plan=plan, rounds=1)
    torch.testing.assert_close(weights(first), weights(again), rtol=0, atol=1e-12)
    later = finished(small(), moon(LOCAL, 4, mu=5.0), plan=plan)
    assert not torch.allclose(weights(later), weights(plain), rtol=0, atol=1e-6)


def test_stacks_are_not_given_up():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what can't be mapped is trained one by one, with a warning
        finished(small(), moon(LOCAL, 4), plan=STACKED)


def test_devices_are_served_the_global_model_and_their_own():
    sim = finished(small(), moon(LOCAL, 3), rounds=2)
    assert list(sim.serve(sim.root)) == ["global"]
    (_, shared), kept = sim.find_models()["global"], 0
    for node in range(10):
        views = sim.serve(node)
        assert list(views) == ["global", "personal"]
        job, memory = views["personal"].job, sim.memories.get(node, None)
        assert len(job.draw(local([], [], {})).index) == 0
        memory = job.blank(views["personal"].send) if memory is None else memory
        used, _ = job.begin(sim.federation.models[job.model], views["personal"].send, memory, None)
        kept += not close(used, shared)
    assert kept == sum(sim.accounts.took_part > 0) >= 3
    assert values(sim, "accuracy_mean", view="personal") != values(sim, "accuracy_mean", view="global")


def test_it_can_be_a_cohort_and_choose_its_devices():
    smaller = moon(LOCAL, 8, mu=0.3).resize(3, 0.5)
    assert (smaller.inner.clients, smaller.inner.local.optim.lr) == (3, 0.05)
    assert list(smaller.serve(smaller.start(Desk({LOCAL.model: Line()})), 1, Desk())) == [
        "global",
        "personal",
    ]
    sim = finished(small(), moon(LOCAL, 3, select=Oort()), rounds=3)
    assert sim.round == 3


# ------------------------------------------------------------------------------------------ below a parent


@dataclass
class Tiers:
    """A cloud that averages two edges, which run some rule."""

    edge: object
    tiers: ClassVar[tuple[str, ...]] = ("edge",)

    def at(self, tier):
        return FedAvg(2, LOCAL) if tier == "cloud" else self.edge


def test_an_edge_adopts_and_reports():
    rule, ctx = moon(replace(LOCAL, model=SPEC), 1), Desk(parent=200)
    m = rule.start(ctx)
    asked = Task(100, Train(), {"params": numbers(2.0, 1.0)})
    m = rule.adopt(m, asked, ctx)
    assert rule.report(m, asked, ctx) is None
    m, commands = rule.plan(m, None, ctx)
    (task,) = tasks(commands)
    assert close(task.send["params"], numbers(2.0, 1.0))
    assert isinstance(task.job.objective, Moon)


def test_it_runs_below_a_cloud():
    runs = [finished(small(edges=2), Tiers(moon(LOCAL, 3)), plan=p) for p in (LOOP, WORKERS, STACKED)]
    loop, workers, stacked = runs
    assert lines(workers) == lines(loop)
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    assert loop.round == 3
    assert set(loop.serve(0)) == {"global", "personal"}
    plain = finished(small(edges=2), Tiers(FedAvg(3, LOCAL)))
    assert not torch.allclose(weights(loop), weights(plain), rtol=0, atol=1e-6)
