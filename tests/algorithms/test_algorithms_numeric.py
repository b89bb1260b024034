"""One hand-computed test per algorithm: plan, made-up replies, merge, numbers."""

import math
from dataclasses import replace

import pytest
import torch
from support import SPEC, Desk, Line, answer, batches, close, fit, local, notes, numbers, tasks

from potluck.algorithms.fedadagrad import fedadagrad
from potluck.algorithms.fedadam import fedadam
from potluck.algorithms.fedasync import Blend, fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedbuff import fedbuff
from potluck.algorithms.fedprox import fedprox
from potluck.algorithms.fedyogi import fedyogi
from potluck.algorithms.scaffold import scaffold
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.messages import Lost, Task, Until
from potluck.core.rule import Got
from potluck.jobs import SGD, Adam, Prox, Train
from potluck.rules import Rounds


def desk(w=1.0, b=0.0, **more):
    return Desk(models={SPEC: Line(w, b)}, **more)


def a_round(rule, m, ctx, *deltas, weights=None):
    """One round in which every device answers with one of these changes of w."""
    m, commands = rule.plan(m, None, ctx)
    replies = [
        answer(task, w, weight=1.0 if weights is None else weights[i])
        for i, (task, w) in enumerate(zip(tasks(commands), deltas, strict=True))
    ]
    return rule.merge(m, None, Got(replies, []), ctx)[0]


# ------------------------------------------------------------------------------------- synchronous rounds


def test_fedavg_weights_changes_by_samples():
    rule, ctx = FedAvg(clients=2), desk()
    m = a_round(rule, rule.start(ctx), ctx, 0.4, 0.8, weights=[1.0, 3.0])
    assert close(m.params, numbers(1 + (1 * 0.4 + 3 * 0.8) / 4))  # 1.7
    assert (m.round, m.weight) == (1, 4.0)
    served = rule.serve(m, 5, ctx)
    assert served["global"].to == 5
    assert served["global"].send["params"] is m.params


def test_fedavg_without_answers_keeps_the_model_and_counts_the_round():
    rule, ctx = FedAvg(clients=2), desk()
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    gone = [Lost(task, "gone") for task in tasks(commands)]
    after, _ = rule.merge(m, None, Got([], gone), ctx)
    assert close(after.params, numbers(1.0))
    assert after.round == 1
    nothing = [answer(task, 9.0, weight=0.0) for task in tasks(commands)]  # devices without rows
    assert close(rule.merge(m, None, Got(nothing, []), ctx)[0].params, numbers(1.0))


def test_fedavg_overcommits_and_waits_for_the_first():
    ctx = desk()
    rule = FedAvg(clients=4, overcommit=1.5, deadline=60.0)
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert commands[0] == Until(60.0, 4)
    assert len({task.to for task in tasks(commands)}) == 6


def test_fedavg_below_a_parent_answers_with_its_change():
    rule, ctx = FedAvg(clients=1, inner_rounds=2), desk(parent=7)
    above = Task(100, Train(), {"params": numbers(5.0)})
    m = rule.adopt(rule.start(ctx), above, ctx)
    m = a_round(rule, m, ctx, 0.5, weights=[8.0])
    assert rule.report(m, above, ctx) is None
    m = a_round(rule, m, ctx, 0.25, weights=[6.0])
    body, weight = rule.report(m, above, ctx)
    assert close(body["delta"], numbers(0.75))
    assert weight == 6.0


def test_fedprox_pulls_towards_the_model_that_was_sent():
    rule, ctx = fedprox(clients=1, mu=0.2), desk(w=1.0, b=2.0)
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    (task,) = tasks(commands)
    at = local([3.0], [1], task.send)
    net, (batch,) = Line(), batches(task.job, at)
    _, held = task.job.begin(net, task.send, None, None)
    moved = numbers(1.5, 1.0)

    def slope(job, held):
        return torch.func.grad(lambda p: job.loss(net, p, batch, held)[0])(moved)

    plain = slope(Train(), Train().begin(net, task.send, None, None)[1])
    extra = {name: g - plain[name] for name, g in slope(task.job, held).items()}
    assert close(extra, numbers(0.2 * (1.5 - 1.0), 0.2 * (1.0 - 2.0)))  # mu (w - w_sent)
    # and the data's own part: (sigmoid(w x + b) - y) (x, 1)
    off = 1 / (1 + math.exp(-(1.5 * 3 + 1.0))) - 1
    assert close(plain, numbers(off * 3.0, off))


# Two updates, 0.2 and 0.05, with b1 = 0.9, b2 = 0.99, tau = 0.1, so v0 = 0.01 (b1 = 0 for Adagrad):
#   m1 = 0.1 * 0.2 = 0.02                 m2 = 0.9 * 0.02 + 0.1 * 0.05 = 0.023
#   yogi     v1 = 0.01 + 0.01 * 0.04   (v0 < d^2: grows)    v2 = 0.0104 - 0.01 * 0.0025   (v1 > d^2: falls)
#   adam     v1 = 0.99 * 0.01 + 0.01 * 0.04                 v2 = 0.99 * 0.0103 + 0.01 * 0.0025
#   adagrad  v1 = 0.01 + 0.04                               v2 = 0.05 + 0.0025
@pytest.mark.parametrize(
    "make, means, squares",
    [
        (fedyogi, (0.02, 0.023), (0.0104, 0.010375)),
        (fedadam, (0.02, 0.023), (0.0103, 0.010222)),
        (fedadagrad, (0.2, 0.05), (0.05, 0.0525)),
    ],
)
def test_adaptive_servers_take_their_steps(make, means, squares):
    rule, ctx = make(clients=1, server_lr=0.3, tau=0.1), desk()
    m, w = rule.start(ctx), 1.0
    for delta, mean, square in zip((0.2, 0.05), means, squares, strict=True):
        m = a_round(rule, m, ctx, delta)
        w += 0.3 * mean / (math.sqrt(square) + 0.1)
        assert close(m.params, numbers(w))
        assert close(m.opt.mean, numbers(mean))
        assert float(m.opt.square["w"]) == pytest.approx(square)
    assert float(m.opt.square["b"]) == pytest.approx({fedadam: 0.01 * 0.99**2}.get(make, 0.01))
    still, _ = rule.merge(m, None, Got([], []), ctx)  # nobody answered: no step on old momentum
    assert close(still.params, m.params)
    assert still.round == m.round + 1


def test_adaptive_servers_have_their_defaults():
    yogi = fedyogi().server
    assert (yogi.rule, yogi.lr, yogi.beta1, yogi.beta2, yogi.tau) == ("yogi", 0.01, 0.9, 0.99, 1e-3)
    assert (fedadam().server.rule, fedadagrad().server.rule) == ("adam", "adagrad")


# ------------------------------------------------------------------------------------------- asynchronous


@pytest.mark.parametrize(
    "mix, staleness, share",
    [
        (Blend(0.6, "constant"), 7, 0.6),
        (Blend(0.6, "polynomial", power=0.5), 0, 0.6),
        (Blend(0.6, "polynomial", power=0.5), 3, 0.6 / math.sqrt(4)),
        (Blend(0.6, "polynomial", power=2.0), 1, 0.6 / 4),
        (Blend(0.6, "hinge"), 4, 0.6),
        (Blend(0.6, "hinge"), 5, 0.6 / (10 * 1 + 1)),
        (Blend(0.6, "hinge", slope=2.0, patience=1), 4, 0.6 / (2 * 3 + 1)),
    ],
)
def test_fedasync_shares_fall_with_staleness(mix, staleness, share):
    assert mix.share(staleness) == pytest.approx(share, rel=1e-15)


@pytest.mark.parametrize(
    "damping, share", [("constant", 0.6), ("polynomial", 0.6 / math.sqrt(6)), ("hinge", 0.6 / 11)]
)
def test_fedasync_blends_by_staleness(damping, share):
    rule, ctx = fedasync(clients=2, damping=damping), desk()
    m, first = rule.plan(rule.start(ctx), 0, ctx)
    (old,) = tasks(first)
    assert old.job.objective == Prox(0.005)
    assert old.tag == 0
    w = 1.0
    for _ in range(5):  # lane 1 answers five times while lane 0 is at work; always fresh: w_k = w + 1
        m, commands = rule.plan(m, 1, ctx.later(busy=set()))
        m, out = rule.merge(m, 1, Got([answer(tasks(commands)[0], 1.0)], []), ctx)
        w = 0.4 * w + 0.6 * (w + 1)
        assert notes(out) == [("staleness", 0)]
        assert close(m.params, numbers(w))
    m, out = rule.merge(m, 0, Got([answer(old, 1.0)], []), ctx)
    assert notes(out) == [("staleness", 5)]
    assert close(m.params, numbers((1 - share) * w + share * 2.0))  # w_k = 1 (as sent) + 1
    assert (m.version, m.round) == (6, 6)


def test_fedasync_counts_lost_tasks_as_rounds_but_not_as_versions():
    rule, ctx = fedasync(clients=1, deadline=30.0), desk()
    m, commands = rule.plan(rule.start(ctx), 0, ctx)
    (task,) = tasks(commands)
    assert commands[0] == Until(30.0)
    m, out = rule.merge(m, 0, Got([], [Lost(task, "gone")]), ctx)
    assert (m.round, m.version, out) == (1, 0, [])
    assert close(m.params, numbers(1.0))
    # a device without rows sends back what it got: blending that in would only undo others' work
    m, out = rule.merge(m, 0, Got([answer(task, weight=0.0)], []), ctx)
    assert (m.round, m.version, out) == (2, 0, [])


def test_fedasync_keeps_lanes_busy_and_parks_those_without_a_device():
    loop, ctx = Rounds(fedasync(clients=3)), desk(children=range(2))
    s, commands = loop.init(ctx)
    assert len({task.to for task in tasks(commands)}) == 2  # the third lane is parked
    assert loop.waiting(s, ctx) == [2]
    done, other = tasks(commands)
    s, commands = loop.receive(s, answer(done, 1.0), ctx.later(busy={other.to}))
    (again,) = tasks(commands)
    assert again.to == done.to
    assert again.tag == 1
    assert loop.round(s) == 1
    assert float(again.send["params"]["w"]) == pytest.approx(1.6)
    s, _ = loop.receive(s, Lost(other, "gone"), ctx.later(busy={again.to}))
    assert loop.round(s) == 2


def test_fedbuff_adds_the_mean_of_scaled_updates():
    rule, ctx = fedbuff(clients=3, buffer=2, server_lr=0.5), desk()
    m, commands = rule.plan(rule.start(ctx), 0, ctx)
    (slow,) = tasks(commands)
    w = 1.0
    for step in range(3):  # three full buffers of fresh updates, 1 and 2: + 0.5 * 1.5 each
        for delta in (1.0, 2.0):
            m, commands = rule.plan(m, 1, ctx.later(busy=set()))
            before = m
            m, _ = rule.merge(m, 1, Got([answer(tasks(commands)[0], delta)], []), ctx)
            if delta == 1.0:
                assert m.params is before.params
                assert m.round == step
        w += 0.5 * (1 + 2) / 2
        assert close(m.params, numbers(w))
        assert (m.round, m.version) == (step + 1, step + 1)
    m, commands = rule.plan(m, 1, ctx.later(busy=set()))
    m, _ = rule.merge(m, 1, Got([answer(tasks(commands)[0], 1.0)], []), ctx)
    m, out = rule.merge(m, 0, Got([answer(slow, 3.0)], []), ctx)
    assert notes(out) == [("staleness", 3)]
    assert close(m.params, numbers(w + 0.5 * (1.0 + 3.0 / math.sqrt(1 + 3)) / 2))


def test_fedbuff_counts_lost_tasks_but_averages_what_came():
    rule, ctx = fedbuff(clients=1, buffer=3), desk()
    m, commands = rule.plan(rule.start(ctx), 0, ctx)
    (task,) = tasks(commands)
    lost, came = Got([], [Lost(task, "late")]), Got([answer(task, 0.5)], [])
    for got in (lost, came, lost):
        m, _ = rule.merge(m, 0, got, ctx)
    assert close(m.params, numbers(1.5))
    assert (m.round, m.version) == (1, 1)
    for _ in range(3):
        m, _ = rule.merge(m, 0, lost, ctx)
    assert close(m.params, numbers(1.5))
    assert (m.round, m.version) == (2, 1)


# ----------------------------------------------------------------------------------------------- SCAFFOLD


def test_scaffold_two_rounds_by_hand():
    """Two of four devices, two steps of one row each; everything below in plain numbers, b too."""
    lr, server_lr, steps = 0.5, 0.8, 2
    data = {0: (2.0, 1), 1: (-1.0, 1), 2: (0.5, 0), 3: (1.0, 0)}
    rule = scaffold(Train(optim=SGD(lr), batch=1, steps=steps), clients=2, server_lr=server_lr)
    ctx = desk(w=0.3, b=-0.2, children=range(4))
    m, kept = rule.start(ctx), {}
    model, control = [0.3, -0.2], [0.0, 0.0]  # x, c
    own = {node: [0.0, 0.0] for node in data}  # c_i
    for turn in range(2):
        m, commands = rule.plan(m, None, ctx.later(busy={0} if turn else {3}))
        replies, deltas, changes = [], [], []
        for task in tasks(commands):
            x, y = data[task.to]
            body, keep, _ = fit(task.job, local([x], [y], task.send, kept.get(task.to)))
            kept[task.to] = keep
            replies.append(answer(task, weight=7.0 * (1 + task.to)))  # weights must not matter
            replies[-1] = replace(replies[-1], body=body)

            at = list(model)
            for _ in range(steps):  # y <- y - lr (g - c_i + c)
                off = 1 / (1 + math.exp(-(at[0] * x + at[1]))) - y
                slope = (off * x, off)
                at = [
                    p - lr * (g - ci + c)
                    for p, g, ci, c in zip(at, slope, own[task.to], control, strict=True)
                ]
            new = [  # c_i+ = c_i - c + (x - y) / (K lr)
                ci - c + (p - q) / (steps * lr)
                for ci, c, p, q in zip(own[task.to], control, model, at, strict=True)
            ]
            deltas.append([q - p for p, q in zip(model, at, strict=True)])
            changes.append([a - b for a, b in zip(new, own[task.to], strict=True)])
            own[task.to] = new
            assert close(keep, numbers(*new))
            assert close(body["delta"], numbers(*deltas[-1]))
            assert close(body["control"], numbers(*changes[-1]))
        m, _ = rule.merge(m, None, Got(replies, []), ctx)
        assert len(replies) == 2
        model = [p + server_lr * (d + e) / 2 for p, d, e in zip(model, *deltas, strict=True)]
        control = [c + (2 / 4) * (d + e) / 2 for c, d, e in zip(control, *changes, strict=True)]
        assert close(m.inner.params, numbers(*model))
        assert close(m.control, numbers(*control))
        assert m.round == turn + 1
    assert max(map(abs, control)) > 0.01  # the second round had a correction to make
    assert rule.serve(m, 1, ctx)["global"].send["params"] is m.inner.params


def test_scaffold_leaves_out_who_had_nothing_to_train_on():
    rule, ctx = scaffold(clients=2), desk(children=range(4))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    one, two = tasks(commands)
    body, keep, _ = fit(one.job, local([], [], one.send))
    assert close(body["delta"], numbers())
    assert close(body["control"], numbers())
    assert close(keep, numbers())
    idle = answer(one, weight=0.0, control=body["control"])
    worked = answer(two, 0.5, weight=3.0, control=numbers(-2.0))
    m, _ = rule.merge(m, None, Got([idle, worked], []), ctx)
    assert close(m.inner.params, numbers(1.5))
    assert close(m.control, numbers(-0.5))
    m, _ = rule.merge(m, None, Got([], [Lost(one, "gone"), Lost(two, "late")]), ctx)
    assert close(m.inner.params, numbers(1.5))
    assert close(m.control, numbers(-0.5))
    assert m.round == 2


def test_scaffold_can_be_a_cohort():
    small = scaffold(clients=8).resize(3, 0.25)
    assert small.inner.clients == 3
    assert small.inner.local.optim.lr == 0.25 * Train().optim.lr


# ------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "make, settings, said",
    [
        (fedprox, dict(mu=-0.1), "mu = -0.1"),
        (fedprox, dict(mu=math.nan), "mu = nan"),
        (fedyogi, dict(server_lr=0.0), "server_lr = 0.0"),
        (fedyogi, dict(beta1=1.0), "beta1 = 1.0"),
        (fedadam, dict(beta2=-0.5), "beta2 = -0.5"),
        (fedadagrad, dict(tau=0.0), "tau = 0.0"),
        (fedasync, dict(alpha=0.0), "alpha = 0.0"),
        (fedasync, dict(alpha=1.5), "alpha = 1.5"),
        (fedasync, dict(damping="hing"), "damping = 'hing': did you mean 'hinge'"),
        (fedasync, dict(power=-1.0), "power = -1.0"),
        (fedasync, dict(slope=-1.0), "slope = -1.0"),
        (fedasync, dict(patience=-1), "patience = -1"),
        (fedasync, dict(clients=0), "clients = 0"),
        (fedasync, dict(deadline=0.0), "deadline = 0.0"),
        (fedbuff, dict(buffer=0), "buffer = 0"),
        (fedbuff, dict(server_lr=-1.0), "server_lr = -1.0"),
        (scaffold, dict(server_lr=0.0), "server_lr = 0.0"),
        (scaffold, dict(local=Train(optim=SGD(0.1, momentum=0.9))), "train.momentum = 0.9"),
        (scaffold, dict(local=Train(optim=Adam())), "train.optimizer = 'adam'"),
        (scaffold, dict(local=Train(optim=SGD(0.0))), "train.lr = 0.0"),
    ],
)
def test_bad_settings_are_refused_by_name(make, settings, said):
    with pytest.raises(ConfigError) as error:
        make(**settings)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("make", [FedAvg, fedprox, fedyogi, scaffold])
def test_nobody_a_round_is_refused(make):
    with pytest.raises(ConfigError, match="clients = 0"):
        make(clients=0).start(desk())


@pytest.mark.parametrize("make", [FedAvg, fedprox, fedyogi, fedadam, fedadagrad, fedasync, fedbuff, scaffold])
def test_rules_and_their_states_can_be_stored(make):
    rule, ctx = make(), desk()
    assert codec.decode(codec.encode(rule)) == rule
    s, _ = Rounds(rule).init(ctx)
    again = codec.decode(codec.encode(s))
    assert again.serial == s.serial
    assert again.open.keys() == s.open.keys()
    assert codec.encode(again) == codec.encode(s)
