"""Maverick: the three terms by hand, what an edge makes of anomalous models, and what devices keep."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, finished, lines, pool, small, values, weights
from support import SPEC, Desk, Line, answer, close, local, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge import PUBLISHED as FEDEDGE
from potluck.algorithms.fededge.algorithm import fededge
from potluck.algorithms.maverick import PUBLISHED
from potluck.algorithms.maverick.algorithm import maverick
from potluck.algorithms.maverick.device import Contrast
from potluck.algorithms.maverick.negatives import Learning, Negatives, find_farthest
from potluck.core.errors import ConfigError
from potluck.core.job import Batch
from potluck.core.messages import Task
from potluck.core.rule import Got
from potluck.execute.reference import Item, train
from potluck.fleet import place_attackers
from potluck.jobs import SGD, Private, Train
from potluck.rules.edges import Edge, EvenCloud
from potluck.rules.guard import guard
from potluck.rules.robust import AdaptiveKrum, MultiKrum, Verdict


class Free(Line):
    """Representations are w itself, whatever the row; logits (0, b)."""

    def features(self, params, x, key=None):
        return params["w"].expand(len(x), -1)

    def head(self, params, z):
        return torch.cat([torch.zeros(len(z), 1), params["b"].expand(len(z), 1)], dim=-1)


class Turn(Line):
    """Representations (cos w, sin w): w is their angle; logits (0, w x + b)."""

    def features(self, params, x, key=None):
        w = params["w"] * torch.ones_like(x)
        return torch.cat([w.cos(), w.sin()], dim=-1)

    def head(self, params, z):
        return super().head(params, torch.atan2(z[..., 1:], z[..., :1]))


def seeing(*w, b=0.0):
    return {"w": torch.tensor(w, dtype=torch.float64), "b": torch.tensor([b], dtype=torch.float64)}


def at_angle(cosine):
    """A direction with this cosine to (1, 0)."""
    return seeing(cosine, math.sqrt(1 - cosine**2))


def inbox(edge, cloud, odd=(), share=()):
    share = torch.tensor(share, dtype=torch.float64)
    return {"params": edge, "global": cloud, "odd": list(odd), "share": share}


def loss_and_slope(objective, sent, params, net):
    """The loss of one row (class 1), what is told of it, and its gradient."""
    x = torch.ones(1, 1, dtype=torch.float64)
    batch = Batch(x, torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.float64), None, None)
    batch = batch._replace(seen=objective.look(None, net, sent, None, batch))
    params = {name: p.clone().requires_grad_() for name, p in params.items()}
    loss, told = objective.loss(net, params, batch, objective.hold(sent, None, None))
    slopes = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    return (
        float(loss.detach()),
        {k: float(v) for k, v in told.items()},
        dict(zip(params, slopes, strict=True)),
    )


# ------------------------------------------------------------------------------------------------- the terms

POINTS = ((0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5), (10, 10), (-6, 0))
SHARE = (0.67289, 0.32711)  # 13.44247 and 6.53461 of their sum


def judged(points=POINTS, start=(0.0, 0.0)):
    """A verdict on updates to these points of the plane."""
    sent = {"params": numbers(*start)}
    replies = [answer(Task(i, Train(), sent), *map(float, p)) for i, p in enumerate(points)]
    return AdaptiveKrum().judge(replies)


def test_the_three_terms_and_their_sum():
    """tau 0.5, s(L,I) = 0.8, s(L,G) = 0.2, s(L,A) = (-0.5, 0.1).

    l_p = ln(1 + e^((0.2 - 0.8) / 0.5)) = ln(1 + e^-1.2) = 0.263282
    l_a = 0.67289 ln(1 + e^-2.6) + 0.32711 ln(1 + e^-1.4) = 0.120309
    1.2 + 10 l_p + 1 l_a = 3.953134
    """
    ours = seeing(1.0, 0.0, b=-math.log(math.exp(1.2) - 1))  # cross-entropy 1.2
    sent = inbox(at_angle(0.8), at_angle(0.2), [at_angle(-0.5), at_angle(0.1)], SHARE)
    loss, told, _ = loss_and_slope(Contrast(10.0, 1.0, 0.5), sent, ours, Free())
    assert told["loss"] == pytest.approx(1.2, abs=1e-12)
    assert told["loss_personal"] == pytest.approx(0.263282, abs=1e-6)
    assert told["loss_anomalous"] == pytest.approx(0.120309, abs=1e-5)
    assert loss == pytest.approx(3.953134, abs=1e-4)
    equal = {**sent, "share": torch.tensor([0.5, 0.5])}
    _, told, _ = loss_and_slope(Contrast(), equal, ours, Free())
    assert told["loss_anomalous"] == pytest.approx(0.146031, abs=1e-6)
    alone, told, _ = loss_and_slope(Contrast(10.0, 1.0), inbox(sent["params"], sent["global"]), ours, Free())
    assert told["loss_anomalous"] == 0.0  # without anomalous models there is no such term
    assert alone == pytest.approx(1.2 + 2.63282, abs=1e-4)


def test_a_model_that_overflows_spoils_no_loss():
    """What it sees is like nothing, s(L,A) = 0: l_a = ln(1 + e^(-0.8 / 0.5)) = 0.183901."""
    ours, sent = seeing(1.0, 0.0), inbox(at_angle(0.8), at_angle(0.2), [seeing(math.inf, 1.0)], [1.0])
    loss, told, slope = loss_and_slope(Contrast(10.0, 1.0, 0.5), sent, ours, Free())
    assert told["loss_anomalous"] == pytest.approx(0.183901, abs=1e-6)
    assert math.isfinite(loss)
    assert all(g is None or torch.isfinite(g).all() for g in slope.values())


@pytest.mark.parametrize("angle", [0.3, 0.4, 0.6])  # 0.25 is half-way
def test_a_hinge_pulls_nowhere_where_features_are_nearest_to_the_edge_already(angle):
    """The edge at 0.4, the global model at 0.1, an anomalous one at 1.3."""
    sent = inbox(seeing(0.4), seeing(0.1), [seeing(1.3)], [1.0])
    held, told, slope = loss_and_slope(Contrast(10.0, 1.0, 0.5, hinge=True), sent, seeing(angle), Turn())
    plain, _, alone = loss_and_slope(Contrast(0.0, 0.0), sent, seeing(angle), Turn())
    assert (told["loss_personal"], told["loss_anomalous"]) == (0.0, 0.0)
    assert (held, float(slope["w"])) == (plain, float(alone["w"]))
    pushed = loss_and_slope(Contrast(10.0, 1.0, 0.5), sent, seeing(angle), Turn())[2]
    assert abs(float(pushed["w"]) - float(alone["w"])) > 1.0  # the paper's pushes on


def test_a_hinge_pulls_where_another_model_is_nearer():
    """At 0.2: l_p = (cos 0.1 - cos 0.2) / 0.5; its slope is (sin(0.2 - 0.4) - sin(0.2 - 0.1)) / 0.5."""
    sent = inbox(seeing(0.4), seeing(0.1), [seeing(1.3)], [1.0])
    _, told, slope = loss_and_slope(Contrast(10.0, 1.0, 0.5, hinge=True), sent, seeing(0.2), Turn())
    *_, alone = loss_and_slope(Contrast(0.0, 0.0), sent, seeing(0.2), Turn())
    assert told["loss_personal"] == pytest.approx((math.cos(0.1) - math.cos(0.2)) / 0.5, abs=1e-12)
    assert told["loss_anomalous"] == 0.0  # the edge's is nearer than the anomalous one's
    pull = 10 * (math.sin(-0.2) - math.sin(0.1)) / 0.5
    assert float(slope["w"]) == pytest.approx(float(alone["w"]) + pull, abs=1e-12)
    assert pull < 0  # against the slope, so towards the edge


@pytest.mark.parametrize("edge, other", [(0.4, -0.7), (-0.4, 0.7)])
def test_both_contrasts_turn_towards_the_edge_and_away_from_the_other(edge, other):
    """At angle 0 between the two; a step goes against the slope. Weights far above what the data ask for."""
    towards = math.copysign(1.0, edge)
    personal = inbox(seeing(edge), seeing(other))
    *_, slope = loss_and_slope(Contrast(50.0, 0.0), personal, seeing(0.0), Turn())
    assert float(slope["w"]) * towards < -1
    away = inbox(seeing(edge), seeing(edge), [seeing(other)], [1.0])  # edge and global alike: no pull of l_p
    *_, slope = loss_and_slope(Contrast(0.0, 50.0), away, seeing(0.0), Turn())
    assert float(slope["w"]) * towards < -1
    nearer, farther = (loss_and_slope(Contrast(), personal, seeing(w), Turn())[1] for w in (edge / 2, 0.0))
    assert nearer["loss_personal"] < farther["loss_personal"]


def test_gradient_by_hand():
    """s = cos(w - v), so d/dw softplus((s_G - s_I) / tau) = sigmoid(.) (sin(w - I) - sin(w - G)) / tau."""
    w, edge, cloud, odd, tau = 0.3, 0.9, -0.4, 2.0, 0.25

    def by_hand(other):
        ahead = (math.cos(w - other) - math.cos(w - edge)) / tau
        return (math.sin(w - edge) - math.sin(w - other)) / tau / (1 + math.exp(-ahead))

    plain = -1 / (1 + math.exp(w))  # of ln(1 + e^-w)
    sent = inbox(seeing(edge), seeing(cloud), [seeing(odd), seeing(-odd)], [0.75, 0.25])
    *_, slope = loss_and_slope(Contrast(3.0, 2.0, tau), sent, seeing(w), Turn())
    expected = plain + 3 * by_hand(cloud) + 2 * (0.75 * by_hand(odd) + 0.25 * by_hand(-odd))
    assert float(slope["w"]) == pytest.approx(expected, abs=1e-12)


def test_where_all_begin_alike_the_contrast_is_log_2_and_pulls_nowhere():
    sent = inbox(seeing(0.4), seeing(0.4))
    for w in (0.4, 1.3):  # at the first step, and later in the first round
        loss, told, slope = loss_and_slope(Contrast(10.0, 1.0), sent, seeing(w), Turn())
        plain, _, alone = loss_and_slope(Contrast(0.0, 0.0), sent, seeing(w), Turn())
        assert told["loss_personal"] == pytest.approx(math.log(2), abs=1e-15)
        assert loss == pytest.approx(plain + 10 * math.log(2), abs=1e-12)
        assert float(slope["w"]) == float(alone["w"])


def test_a_device_keeps_what_it_trained_and_tells_three_terms():
    job = Train(objective=Contrast(), optim=SGD(0.5), batch=1)
    sent = inbox(seeing(0.3), seeing(-0.2), [seeing(2.0)], [1.0])
    result = train(Item(job, local([1.0, 2.0], [1, 0], sent, models={SPEC: Turn()})))
    assert not close(result.body["delta"], seeing(0.0), 0.01)
    trained = {name: p + result.body["delta"][name] for name, p in sent["params"].items()}
    assert close(result.keep, {"personal": trained})
    assert result.body.keys() == {"delta"}
    assert result.metrics.keys() == {"loss", "loss_personal", "loss_anomalous"}
    Train(objective=Contrast(), privacy=Private(1.0, 1.0))  # all that leaves is the change


def test_nothing_is_paid_for_a_contrast_with_nobody():
    """Without the global model's term: nothing, or a pass of the edge's and of each anomalous one."""
    job, plain = Train(objective=Contrast(mu_p=0.0), batch=1), Train(batch=1)
    for odd, passes in ((0, 0), (2, 3)):
        at = local([1.0, 2.0], [0, 1], inbox(numbers(), numbers(), [numbers()] * odd, [0.5] * odd))
        assert job.cost(at).ops == plain.cost(at).ops + passes * 2 * Line.ops


@pytest.mark.parametrize("odd", [0, 3])
def test_every_frozen_model_costs_a_pass_over_every_row(odd):
    at = local([1.0, 2.0, 3.0], [0, 1, 1], inbox(numbers(), numbers(), [numbers()] * odd, [1.0] * odd))
    plain, contrast = Train(batch=1, epochs=5), Train(objective=Contrast(), batch=1, epochs=5)
    assert contrast.cost(at).ops == plain.cost(at).ops + (2 + odd) * 3 * Line.ops


# ------------------------------------------------------------------------------------------ anomalous models


def test_the_farther_off_the_more_it_counts():
    found = judged(start=(1.0, -1.0))
    assert [r.task.to for r in found.odd] == [5, 6]
    assert found.far == pytest.approx([13.44247, 6.53461], abs=1e-5)
    models, share = zip(*find_farthest(found, 3), strict=True)
    assert share == pytest.approx(SHARE, abs=1e-5)
    assert close(models, [numbers(11.0, 9.0), numbers(-5.0, -1.0)])  # what was sent, and the change


def test_at_most_so_many_are_shown_and_their_shares_add_up():
    ((one, share),) = find_farthest(judged(), 1)
    assert close(one, numbers(10.0, 10.0))
    assert share == 1.0
    near = replace(judged(), far=[2.0, 6.0])  # the second is the farther one now
    models, share = zip(*find_farthest(near, 2), strict=True)
    assert close(models, [numbers(-6.0, 0.0), numbers(10.0, 10.0)])
    assert share == (0.75, 0.25)
    ((_, share),) = find_farthest(replace(judged(), far=[0.0, 6.0]), 2)  # one is where the genuine ones are
    assert share == 1.0
    assert find_farthest(judged(), 0) == find_farthest(Verdict([], [], []), 3) == []


def edge(robust=AdaptiveKrum(), top=3, alike=False, **settings):
    return Edge(Negatives(FedAvg(99, Train(SPEC)), robust, top, alike), learns=Learning(10.0), **settings)


def asked(rule, m, ctx):
    m, commands = rule.plan(m, None, ctx)
    return m, tasks(commands)


def heard(rule, m, sent, points, ctx):
    replies = [answer(t, *map(float, p)) for t, p in zip(sent, points, strict=True)]
    return rule.merge(m, None, Got(replies, []), ctx)


def test_models_and_weights_of_the_same_round_are_sent_together():
    ctx = Desk(children=range(7), parent=99)
    rule = edge()
    cloud = numbers(5.0, 0.0)
    m = rule.adopt(rule.start(ctx), Task(100, Train(), {"params": cloud}), ctx)
    m, first = asked(rule, m, ctx)
    assert first[0].send.keys() == {"params", "global", "odd", "share"}
    assert all(t.send is first[0].send for t in first)  # so that they are stacked, and counted once
    assert first[0].send["odd"] == []
    m, commands = heard(rule, m, first, POINTS, ctx)
    told = dict(notes(commands))
    assert told["anomalous"] == [first[5].to, first[6].to]
    assert told["guarded"]["odd"] == 2
    m, second = asked(rule, m, ctx.later(busy=set()))
    assert close(second[0].send["global"], cloud)
    assert close(second[0].send["params"], numbers(5.5, 0.5))  # the mean of the five genuine ones
    assert close(second[0].send["odd"], [numbers(15.0, 10.0), numbers(-1.0, 0.0)])
    assert second[0].send["share"].tolist() == pytest.approx(SHARE, abs=1e-5)
    mild = [(math.cos(i * math.tau / 7), math.sin(i * math.tau / 7)) for i in range(7)]  # nobody stands out
    m, commands = heard(rule, m, second, mild, ctx)
    assert "anomalous" not in dict(notes(commands))
    _, third = asked(rule, m, ctx.later(busy=set()))
    assert third[0].send["odd"] == []
    assert len(third[0].send["share"]) == 0


def test_they_can_be_made_to_count_alike():
    ctx, rule = Desk(children=range(7), parent=99), edge(alike=True)
    m = rule.adopt(rule.start(ctx), Task(100, Train(), {"params": numbers()}), ctx)
    m, sent = asked(rule, m, ctx)
    m, _ = heard(rule, m, sent, POINTS, ctx)
    _, sent = asked(rule, m, ctx.later(busy=set()))
    assert sent[0].send["share"].tolist() == [0.5, 0.5]
    assert maverick(alike=True).at("edge").inner.inner.alike


def test_without_a_judge_everybody_is_genuine():
    ctx, rule = Desk(children=range(7), parent=99), edge(robust=None)
    m = rule.adopt(rule.start(ctx), Task(100, Train(), {"params": numbers()}), ctx)
    m, sent = asked(rule, m, ctx)
    m, commands = heard(rule, m, sent, POINTS, ctx)
    assert "anomalous" not in dict(notes(commands))
    mean = [sum(p[i] for p in POINTS) / 7 for i in (0, 1)]
    assert close(rule.serve(m, 100, ctx)["global"].send["params"], numbers(*mean))


# ----------------------------------------------------------------------------------------- mixing, the cloud


def test_half_of_the_edge_and_half_of_the_cloud():
    ctx, rule = Desk(children=range(1), parent=99), edge(None, mix="half", edge_view="mixed")
    m = rule.adopt(rule.start(ctx), Task(100, Train(), {"params": numbers()}), ctx)
    m, sent = asked(rule, m, ctx)
    m, _ = heard(rule, m, sent, [(2.0, 0.0)], ctx)
    first = Task(100, Train(), {"params": numbers()})
    assert close(rule.report(m, first, ctx)[0]["delta"], numbers(2.0, 0.0))  # nothing to mix yet
    ctx = ctx.later(busy=set())
    m, sent = asked(rule, m, ctx)
    m, _ = heard(rule, m, sent, [(0.0, 0.0)], ctx)
    came = Task(100, Train(), {"params": numbers(0.0, 4.0)})
    m = rule.adopt(m, came, ctx)
    assert close(rule.serve(m, 100, ctx)["global"].send["params"], numbers(1.0, 2.0))
    body, weight, *_ = rule.report(m, came, ctx)
    assert close(body["delta"], numbers(1.0, -2.0))  # from (0, 4) to (1, 2)
    assert weight == 1.0


def test_every_edge_has_one_vote():
    ctx = Desk(children=[101, 102])
    rule = EvenCloud(FedAvg(99, Train(SPEC)))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    pair = [
        answer(t, *d, weight=w) for t, d, w in zip(tasks(commands), ((1, 2), (3, 4)), (1, 9), strict=True)
    ]
    m, _ = rule.merge(m, None, Got(pair, []), ctx)
    assert close(m.params, numbers(2.0, 3.0))


# ------------------------------------------------------------------------------------------------------ runs


def published(**settings):
    """As in the paper, with two local rounds between answers."""
    return algorithms.make("maverick", LOCAL, **{**PUBLISHED, "local_rounds": 2, **settings})


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
def test_without_its_terms_it_is_fededge(plan):
    federation = small(edges=2)
    plain = finished(federation, algorithms.make("fededge", LOCAL, **FEDEDGE, local_rounds=2), plan=plan)
    without = finished(federation, published(mu_p=0.0, mu_a=0.0), plan=plan)
    torch.testing.assert_close(weights(without), weights(plain), rtol=0, atol=1e-12)
    assert values(without, "anomalous") == values(plain, "anomalous") != []
    contrast = finished(federation, published(), plan=plan)
    assert not torch.allclose(weights(contrast), weights(plain), rtol=0, atol=1e-6)


def test_each_term_changes_what_is_learnt():
    federation, kinds = small(edges=2), ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    runs = [weights(finished(federation, published(mu_p=mu_p, mu_a=mu_a))) for mu_p, mu_a in kinds]
    assert not torch.allclose(runs[0], runs[1], rtol=0, atol=1e-6)
    assert not torch.allclose(runs[0], runs[2], rtol=0, atol=1e-6)


def test_terms_are_noted_for_every_local_round_of_every_edge():
    sim = finished(small(edges=2), published(), rounds=3)
    for node in (11, 12):
        held = sum(values(sim, "local_rounds", group=node))
        for name in ("train_loss", "train_loss_personal", "train_loss_anomalous"):
            assert held <= len(values(sim, name, group=node)) <= held + 2  # what the end cut short
        first, *later = values(sim, "train_loss_personal", group=node)
        assert first == pytest.approx(math.log(2), abs=1e-12)
        assert all(abs(term - math.log(2)) > 1e-4 for term in later)


def test_models_of_attackers_are_what_devices_learn_not_to_become():
    federation, liars = small([12] * 20, edges=2, data=pool(900)), [0, 1, 2, 10, 11, 12]
    federation = replace(
        federation, fleet=place_attackers(federation.fleet, 3, kind="sign_flip", nodes=liars, scale=3.0)
    )
    sim = finished(federation, published(local_rounds=1, top=2), rounds=4)
    for node, theirs in ((21, {0, 1, 2}), (22, {10, 11, 12})):
        found = values(sim, "anomalous", group=node)
        assert len(found) >= 3
        assert all(set(odd) <= theirs for odd in found)
        assert sum(map(len, found)) >= 0.8 * 3 * len(values(sim, "local_rounds", group=node))
        assert len(sim.points[node].own.state.model.inner.odd) <= 2
    assert all(term > 0 for term in values(sim, "train_loss_anomalous")[2:])


def test_at_its_defaults_edges_train_while_the_cloud_is_silent():
    """A cloud 2 s away, one way: what the records say of the rounds between two answers."""
    federation = small(edges=2, compute=2e4, tiers={"edge": {"latency": 2.0}})
    sim = finished(federation, maverick(LOCAL), rounds=4)
    for node in (11, 12):
        first, *later = values(sim, "local_rounds", group=node)
        assert first == 1
        assert len(later) >= 2
        assert all(held > 1 for held in later)  # those but the last ended before the cloud's model came
    assert sim.accounts.down["edge"] < sim.accounts.down["device"]


def test_at_its_defaults_models_that_a_judge_finds_odd_are_shown_and_nothing_is_paid_otherwise():
    federation, liars = small([12] * 20, edges=2, data=pool(900)), [0, 1, 2, 10, 11, 12]
    lied = place_attackers(federation.fleet, 3, kind="sign_flip", nodes=liars, scale=3.0)
    judged = finished(replace(federation, fleet=lied), guard(maverick(LOCAL), AdaptiveKrum()), rounds=3)
    assert {0, 1, 2} & {node for odd in values(judged, "anomalous", group=21) for node in odd}
    plain, trusting = (finished(federation, make(LOCAL), rounds=3) for make in (fededge, maverick))
    assert trusting.accounts.down == plain.accounts.down
    assert trusting.now == plain.now
    torch.testing.assert_close(weights(trusting), weights(plain), rtol=0, atol=1e-12)


def test_stacks_are_not_given_up_and_workers_agree():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what can't be mapped is trained one by one, with a warning
        finished(small(edges=2), maverick(LOCAL), plan=STACKED)
    loop, workers = (finished(small(edges=2), maverick(LOCAL), plan=plan) for plan in (LOOP, WORKERS))
    assert lines(loop) == lines(workers)


def test_devices_are_served_their_own_models_first():
    sim = finished(small(edges=2), maverick(LOCAL, local_rounds=1), rounds=2)
    assert list(sim.serve(sim.root)) == ["global"]
    for node in range(10):
        views = sim.serve(node)
        assert list(views) == ["personal", "edge", "global"]
        job, memory = views["personal"].job, sim.memories.get(node, None)
        own, _ = job.begin(sim.federation.models[job.model], views["personal"].send, memory, None)
        assert close(own, memory["personal"])
        assert not close(own, views["edge"].send["params"], 1e-6)
    assert sim.accuracy == pytest.approx(values(sim, "accuracy_mean", view="personal")[-1], abs=1e-12)


def test_a_file_can_say_it_all():
    made = algorithms.make(
        "maverick", LOCAL, mu_p=1.0, local_rounds=[2, 1], robust={"kind": "MultiKrum", "attackers": 1}
    )
    assert made.at("edge").inner.inner.robust == MultiKrum(1)
    assert made.at("edge").inner.rounds == (2, 1)
    assert made.at("edge").inner.learns.take(LOCAL).objective == Contrast(1.0, 1.0, 0.5, hinge=True)


@pytest.mark.parametrize(
    "settings, said",
    [
        (dict(mu_p=-1.0), "mu_p = -1.0"),
        (dict(mu_a=math.nan), "mu_a = nan"),
        (dict(tau=0.0), "tau = 0.0"),
        (dict(top=-1), "top = -1"),
        (dict(local_rounds=0), "local_rounds = 0"),
        (dict(local_rounds=()), "local_rounds = ()"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError) as error:
        maverick(**settings)
    assert str(error.value).startswith(said)
