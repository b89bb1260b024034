"""HeteroFL: who trains which width, what narrow layers and absent classes do, and the owners' mean."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, SIZES, STACKED, finished, small, values, weights
from support import Desk, notes, tasks

import potluck
from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.heterofl.algorithm import HeteroFL
from potluck.algorithms.heterofl.device import InPlace, Narrow
from potluck.algorithms.heterofl.levels import Ladder, build_ladder
from potluck.core.errors import ConfigError
from potluck.core.job import Batch, Local, ModelSpec
from potluck.core.messages import Lost, Reply, Spent
from potluck.core.rule import Got
from potluck.engine.schedule import StopAt
from potluck.execute.reference import Item, train
from potluck.jobs import SGD, Private, Train
from potluck.models import Models
from potluck.rules import Rounds

D = torch.float64
MODELS = Models((2,), 3, D)
SPEC = ModelSpec("mlp", width=0.02)  # 4 hidden units
JOB = Train(SPEC, optim=SGD(0.1), batch=4)
HALVES = {"rates": (1.0, 0.5, 0.25), "masked": False}


class Crowd(Desk):
    """Devices of their own speed (ms) and memory (bytes)."""

    speeds = (5.0, 1.0, 4.0, 2.0, 3.0, 6.0)
    memory = (1e9,) * 6

    def profiles(self, nodes):
        n = list(nodes)
        return SimpleNamespace(compute=np.array(self.speeds)[n], memory=np.array(self.memory)[n])


def desk(**more):
    found = Crowd(models=MODELS, children=range(6))
    for name, column in more.items():
        setattr(found, name, column)
    return found


def levels(rule, ctx):
    return rule.levels(rule.start(ctx), list(range(6)), ctx)


# --------------------------------------------------------------------------------------------------- levels


def test_the_fastest_have_the_widest_models():
    # Sorted by ms: 1, 3, 4, 2, 0, 5. Thirds: {1, 3}, {4, 2}, {0, 5}.
    assert levels(HeteroFL(local=JOB, **HALVES), desk()) == [2, 0, 1, 0, 1, 2]
    # Shares 1/2, 1/2, 0: {1, 3, 4} and {2, 0, 5}.
    assert levels(HeteroFL(local=JOB, shares=(0.5, 0.5, 0.0), **HALVES), desk()) == [1, 0, 1, 0, 0, 1]


def test_devices_that_are_alike_have_the_widest():
    assert levels(HeteroFL(local=JOB, **HALVES), desk(speeds=(3.0,) * 6)) == [0] * 6


def test_memory_lowers_a_level():
    rule = HeteroFL(local=JOB, by="memory", **HALVES)
    needs = rule.start(desk()).ladder.needs
    assert needs[0] > needs[1] > needs[2]
    assert rule.start(desk()).ladder.needs == needs
    has = (needs[0], needs[0] - 1, needs[1], needs[2], needs[2] - 1, 1e9)
    assert levels(rule, desk(memory=has)) == [0, 1, 1, 2, None, 0]
    # By speed, too, nobody gets what it can't hold: device 1 would be on level 0, device 3 as well.
    assert levels(replace(rule, by="compute"), desk(memory=has)) == [2, 1, 1, 2, None, 2]


def test_given_levels():
    assert levels(HeteroFL(local=JOB, given=(2, 2, 0, 1, 0, 1), **HALVES), desk()) == [2, 2, 0, 1, 0, 1]


def test_lots_come_by_shares_and_stay():
    claims = SimpleNamespace(compute=np.ones(1), memory=np.ones(1))
    lots = build_ladder("lot", (0.2, 0.3, 0.5), (1, 1, 1), claims, key=3)
    found = lots.assign(range(10_000), claims)
    assert lots.assign(range(10_000), claims) == found
    assert [round(found.count(k) / 10_000, 1) for k in range(3)] == [0.2, 0.3, 0.5]


def test_bounds_belong_to_the_faster():
    claims = SimpleNamespace(compute=np.array([1.0, 2.0, 2.5, 3.0, 9.0]))
    assert Ladder("compute", (2.0, 3.0), (1, 1, 1)).assign(range(5), claims) == [0, 0, 1, 1, 2]


def test_those_who_can_train_nothing_are_passed_over():
    ctx = desk()
    rule = HeteroFL(clients=6, local=JOB, **HALVES)
    least = rule.start(ctx).ladder.needs[-1]
    ctx = desk(memory=(1e9, least - 1, 1e9, least - 1, 1e9, 1e9))
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert sorted(t.to for t in tasks(commands)) == [0, 2, 4, 5]
    assert dict(notes(commands))["levels"] == {"rates": [1.0, 0.5, 0.25], "devices": [0, 2, 2], "unable": 2}
    nobody = desk(memory=(1.0,) * 6)
    with pytest.raises(ConfigError, match=r"rates = .* no device has the .* add a lower rate"):
        rule.plan(rule.start(nobody), None, nobody)


def test_who_refuses_gets_less():
    ctx = desk()
    rule = HeteroFL(clients=6, local=JOB, given=(0, 1, 2, 0, 1, 2), **HALVES)
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    asked = {t.to: t for t in tasks(commands)}
    m, _ = rule.merge(m, None, Got([], [Lost(asked[0], "refused"), Lost(asked[2], "refused")]), ctx)
    assert rule.levels(m, list(range(6)), ctx) == [1, 1, None, 0, 1, 2]


# ------------------------------------------------------------------------------------------------- training


def test_narrow_layers_are_louder():
    net, params = MODELS[ModelSpec("mlp", width=0.005)], None  # one hidden unit
    w, b, v, c = net.shapes
    params = {
        w: torch.tensor([[1.0, 2.0]], dtype=D),
        b: torch.tensor([0.5], dtype=D),
        v: torch.tensor([[1.0], [0.0], [-1.0]], dtype=D),
        c: torch.zeros(3, dtype=D),
    }
    x = torch.tensor([[1.0, 1.0]], dtype=D)
    # 1 + 2 + 0.5 = 3.5; divided by a rate of 1/4: 14.
    job = Narrow(rate=0.25, scaled=(w, b))
    assert job.scale(net)(params, x).tolist() == [[14, 0, -14]]
    assert Narrow(rate=0.25).scale(net)(params, x).tolist() == [[3.5, 0, -3.5]]


def jobs(**settings):
    """What devices on levels 0, 1 and 2 are asked to do."""
    rule, ctx = HeteroFL(6, given=(0, 1, 2, 0, 1, 2), **{"local": JOB, **HALVES, **settings}), desk()
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    found = {t.to: t.job for t in tasks(commands)}
    return [found[node] for node in range(3)]


def test_only_layers_that_are_narrower_are_louder():
    w, b, *head = MODELS[SPEC].shapes
    assert [job.objective.scaled for job in jobs()] == [(), (w, b), (w, b)]  # the head has all its classes
    assert head
    assert [job.objective.rate for job in jobs()] == [1.0, 0.5, 0.25]
    assert [job.objective.scaled for job in jobs(scaler=False)] == [(), (), ()]


def test_gradients_are_as_long_as_the_authors_or_as_told():
    assert [job.clip for job in jobs()] == [1.0, 1.0, 1.0]
    assert [job.clip for job in jobs(clip=False)] == [None, None, None]
    assert [job.clip for job in jobs(local=replace(JOB, clip=2.0))] == [2.0, 2.0, 2.0]


def test_a_louder_layer_takes_a_step_of_the_clipped_length():
    """One hidden unit at a rate of 1/4: weight 1, head (1, 0, 0), no biases, row (1, 0), label 1."""
    net = MODELS[ModelSpec("mlp", width=0.005)]
    w, b, v, c = net.shapes
    start = {
        w: torch.tensor([[1.0, 0.0]], dtype=D),
        b: torch.zeros(1, dtype=D),
        v: torch.tensor([[1.0], [0.0], [0.0]], dtype=D),
        c: torch.zeros(3, dtype=D),
    }
    pool = SimpleNamespace(x=torch.tensor([[1.0, 0.0]], dtype=D), y=torch.tensor([1]))
    job = replace(jobs()[2], objective=Narrow(rate=0.25, scaled=(w, b)), batch=1)
    at = Local(0, np.array([0]), {"params": start}, None, 0, MODELS, pool)
    # The unit gives 1 / (1/4) = 4, the logits are (4, 0, 0): p = (e, 1, 1) / (e + 2) with e = exp(4). Slopes:
    # of the logits s = p - (0, 1, 0); of the head 4 s and s; of the unit's weight and bias s_0 x 1 x 4.
    e = np.exp(4.0)
    s = np.array([e, 1, 1]) / (e + 2) - [0, 1, 0]
    length = np.sqrt(17 * (s**2).sum() + 2 * (4 * s[0]) ** 2)
    assert length > 7
    delta = train(Item(job, at)).body["delta"]
    assert delta[w].tolist() == [pytest.approx([-0.1 * 4 * s[0] / length, 0.0], abs=1e-12)]
    assert delta[b].tolist() == pytest.approx([-0.1 * 4 * s[0] / length], abs=1e-12)
    assert delta[v].flatten().tolist() == pytest.approx(-0.1 * 4 * s / length, abs=1e-12)
    assert delta[c].tolist() == pytest.approx(-0.1 * s / length, abs=1e-12)


def test_absent_classes_are_silent():
    job = Narrow(classes=3)
    y = torch.tensor([0, 2, 1])
    own = Batch(torch.zeros(3, 2, dtype=D), y, torch.tensor([1.0, 1.0, 0.0], dtype=D), torch.tensor(0), None)
    held = job.hold({}, None, own)
    assert held[1].tolist() == [True, False, True]  # the row of class 1 is padding
    net = MODELS[SPEC]
    params = {name: torch.zeros(shape, dtype=D) for name, shape in net.shapes.items()}
    params[net.head_names[1]] = torch.tensor([1.0, 5.0, -1.0], dtype=D)
    params = {name: p.requires_grad_() for name, p in params.items()}
    batch = own._replace(x=own.x[:1], y=y[:1], weight=own.weight[:1])
    loss, _ = job.loss(net, params, batch, held)
    # Logits (1, 0, -1): log(e + 1 + 1/e) - 1.
    assert loss.item() == pytest.approx(np.log(np.e + 1 + 1 / np.e) - 1, abs=1e-12)
    slope = torch.autograd.grad(loss, params[net.head_names[1]])[0]
    assert slope[1] == 0
    assert (slope[[0, 2]] != 0).all()


def test_models_inside_learn_from_the_own_one():
    """Two hidden units, of which a narrower model has the first: row (1, 1) of class 0."""
    wide, small = ModelSpec("mlp", width=0.01), ModelSpec("mlp", width=0.005)
    w, b, v, c = MODELS[wide].shapes
    params = {
        w: torch.eye(2, dtype=D),
        b: torch.zeros(2, dtype=D),
        v: torch.tensor([[1.0, 0], [0, 1], [0, 0]], dtype=D),
        c: torch.zeros(3, dtype=D),
    }
    params = {name: p.requires_grad_() for name, p in params.items()}
    one = torch.ones(1, dtype=D)
    batch = Batch(torch.ones(1, 2, dtype=D), torch.tensor([0]), one, None, None)
    job = InPlace(Narrow(), ((small, Narrow(rate=0.5)),))
    loss, metrics = job.loss(MODELS[wide], params, batch, job.hold({}, None, batch))
    # The own model's logits are (1, 1, 0), the narrower one's (1, 0, 0).
    e, label = np.e, np.array([1, 0, 0])
    p, q = np.array([e, e, 1]) / (2 * e + 1), np.array([e, 1, 1]) / (e + 2)
    far = (p * np.log(p / q)).sum()
    assert metrics["loss"].item() == pytest.approx(-np.log(p[0]), abs=1e-12)
    assert metrics["loss_inside"].item() == pytest.approx(far, abs=1e-12)
    assert loss.item() == pytest.approx(far - np.log(p[0]), abs=1e-12)
    assert job.tells({}) == tuple(metrics)
    slopes = torch.autograd.grad(loss, list(params.values()))
    # Of logits: p - label by the labels, q - p by what the own model says, which is held fast. So q - label
    # where both models are, p - label for the second unit.
    found = dict(zip(params, slopes, strict=True))
    np.testing.assert_allclose(found[c], q - label, atol=1e-12)
    np.testing.assert_allclose(found[v], np.stack([q - label, p - label], 1), atol=1e-12)
    np.testing.assert_allclose(found[w], [[q[0] - 1] * 2, [p[1]] * 2], atol=1e-12)


def test_models_inside_are_charged_for():
    asked = jobs(inplace=True)
    assert [[spec.width for spec, _ in job.objective.parts] for job in asked] == [[0.01, 0.005], [0.005], []]
    assert [part.rate for _, part in asked[0].objective.parts] == [0.5, 0.25]
    at = SimpleNamespace(models=MODELS, inbox={})
    ops = [MODELS[replace(SPEC, width=width)].ops for width in (0.02, 0.01, 0.005)]
    found = [job.objective.ops(MODELS[job.model], at, passes=10) for job in asked]
    # One more look of the own model, three passes' worth of training for each of the others.
    assert found == [10 * (ops[0] + 3 * ops[1] + 3 * ops[2]), 10 * (ops[1] + 3 * ops[2]), 0]


def test_models_inside_in_a_loop_and_in_a_stack():
    local = replace(LOCAL, model=ModelSpec("mlp", width=0.1))
    rule = HeteroFL(10, local, given=(0, 1) * 5, rates=(1.0, 0.25), inplace=True)
    both = [finished(small(), Rounds(rule), stop=StopAt(rounds=3), plan=plan) for plan in (LOOP, STACKED)]
    torch.testing.assert_close(*map(weights, both), rtol=0, atol=1e-10)


def told(task, number, holds=None, weight=1.0):
    net = MODELS[task.job.model]
    body = {"delta": {n: torch.full(s, float(number), dtype=D) for n, s in net.shapes.items()}}
    more = {} if holds is None else {"holds": torch.tensor(holds)}
    return Reply(task, body | more, weight, {}, Spent())


@pytest.mark.parametrize(("weigh", "shared"), [("clients", 3.0), ("samples", 2.0)])
def test_a_round_by_hand(weigh, shared):
    ctx = desk()
    rule = HeteroFL(clients=6, local=JOB, given=(0, 1, 2, 0, 1, 2), weigh=weigh, **HALVES)
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    asked = {t.to: t for t in tasks(commands)}
    assert asked[0].send["params"] is asked[3].send["params"]  # one message for a level
    got = Got([told(asked[0], 4, weight=1), told(asked[1], 2, weight=1), told(asked[4], 3, weight=0)], [])
    if weigh == "samples":
        got.replies[1] = told(asked[1], 1, weight=2)
    after, _ = rule.merge(m, None, got, ctx)
    bias = list(MODELS[SPEC].shapes)[1]
    # Units 0 and 1: (4 + 2) / 2 = 3, or (1 * 4 + 2 * 1) / 3 = 2; units 2 and 3: 4. Without rows: no vote.
    change = after.params[bias] - m.params[bias]
    torch.testing.assert_close(change, torch.tensor([shared, shared, 4, 4], dtype=D))
    torch.testing.assert_close(after.parts[1][bias], after.params[bias][:2])
    assert after.round == 1


def test_absent_classes_have_no_vote():
    ctx = desk()
    rule = HeteroFL(clients=6, local=JOB, given=(0, 1, 2, 0, 1, 2), rates=HALVES["rates"])
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    asked = {t.to: t for t in tasks(commands)}
    replies = [told(asked[0], 4, [True, True, False]), told(asked[1], 2, [False, True, False])]
    after, _ = rule.merge(m, None, Got(replies, []), ctx)
    bias = MODELS[SPEC].head_names[1]
    # Class 0: 4. Class 1: (4 + 2) / 2 = 3. Class 2: nobody.
    torch.testing.assert_close(after.params[bias] - m.params[bias], torch.tensor([4.0, 3, 0], dtype=D))


def test_nothing_comes_of_nothing():
    ctx = desk()
    rule = HeteroFL(local=JOB, **HALVES)
    m = rule.start(ctx)
    after, _ = rule.merge(m, None, Got([], []), ctx)
    assert after.params is m.params
    assert after.round == 1


# ---------------------------------------------------------------------------------------------------- whole


def test_one_level_is_fedavg():
    """With the whole model for all, votes by rows and gradients as they are."""
    stop = StopAt(rounds=4)
    one = HeteroFL(4, LOCAL, rates=(1.0,), masked=False, weigh="samples", clip=False)
    mine = finished(small(), Rounds(one), stop=stop, plan=LOOP)
    fedavg = finished(small(), Rounds(FedAvg(4, LOCAL)), stop=stop, plan=LOOP)
    torch.testing.assert_close(weights(mine), weights(fedavg), rtol=0, atol=1e-12)


def test_views_and_bytes_by_level():
    rule = HeteroFL(
        10, replace(LOCAL, model=ModelSpec("mlp", width=0.1)), given=(0, 1) * 5, rates=(1.0, 0.25)
    )
    sim = finished(small(), Rounds(rule), stop=StopAt(rounds=3), plan=STACKED)
    views = sim.algorithms[sim.root].serve(sim.points[sim.root].own.state, 1, sim_context(sim))
    assert list(views) == ["level", "global"]
    sizes = [sum(p.numel() for p in views[v].send["params"].values()) for v in views]
    assert sizes == [5 * 5 + 5 + 5 * 4 + 4, 5 * 20 + 20 + 20 * 4 + 4]
    assert len(values(sim, "accuracy", view="level", node=1)) >= 1
    assert len(values(sim, "global_accuracy", view="rate 0.25")) >= 1
    assert values(sim, "levels") == [{"rates": [1.0, 0.25], "devices": [5, 5], "unable": 0}]


def sim_context(sim):
    from potluck.engine.context import EventContext

    return EventContext(sim, sim.root, (-7, 0, 0))


@pytest.mark.parametrize(("model", "floor"), [("mlp", 0.85), ("lenet5", 0.35)])
def test_the_models_that_devices_use_learn_without_norms(model, floor):
    run = potluck.run(
        potluck.Experiment(
            algorithm="heterofl",
            seed=1,
            model={"name": model},
            stop={"rounds": 40},
            evaluate={"rounds": 40},
            run={"executor": "loop"},
        )
    )
    assert run.summary["view"] == "level"
    assert run.summary["accuracy_mean"] > floor


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rates": [0.5, 0.25]}, "rates = .*must begin with 1"),
        ({"rates": [1.0, 0.25, 0.5]}, "rates = .*and fall"),
        ({"rates": []}, "rates = "),
        ({"clients": 0}, "clients = 0"),
        ({"by": "luck"}, "by = 'luck'"),
        ({"weigh": "age"}, "weigh = 'age'"),
        ({"given": [0, 5]}, "given = .*0 .the widest. to 4"),
        ({"shares": [1.0]}, "shares = .*5 shares"),
        ({"overcommit": 0.5}, "overcommit = 0.5"),
    ],
)
def test_wrong_settings(wrong, told):
    with pytest.raises(ConfigError, match=told):
        algorithms.make("heterofl", LOCAL, **wrong)


def test_what_it_can_not_cover():
    with pytest.raises(ConfigError, match=r"train\.privacy.*masked = false"):
        HeteroFL(local=replace(LOCAL, privacy=Private(1.0, 1.0)))
    assert HeteroFL(local=replace(LOCAL, privacy=Private(1.0, 1.0)), masked=False)
    with pytest.raises(ConfigError, match=r"train\.part"):
        HeteroFL(local=replace(LOCAL, part="head"))
    with pytest.raises(ConfigError, match=f"given = .*each of {len(SIZES)}"):
        HeteroFL(local=LOCAL, given=(0, 1)).fits(SimpleNamespace(devices=len(SIZES)))
