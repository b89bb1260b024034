"""FedPVR: its two rules by hand, what is corrected, what stays on a device, and what is served."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, chained, finished, lines, small, values, weights
from support import SPEC, Desk, Line, answer, close, fit, local, numbers, tasks

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedpvr.algorithm import fedpvr, find_last_layers
from potluck.algorithms.fedpvr.device.own_part import OwnPart
from potluck.algorithms.fedpvr.device.spared import SparedSGD
from potluck.algorithms.scaffold import scaffold
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.messages import Task
from potluck.core.rule import Got
from potluck.jobs import SGD, Adam, Correct, Train
from potluck.models import Models
from potluck.rules import Rounds

PLAIN = replace(LOCAL, optim=SGD(0.1))
EQUAL = (6,) * 8  # as many rows everywhere: votes by samples are equal votes
DATA = {0: (2.0, 1), 1: (-1.0, 1), 2: (0.5, 0), 3: (1.0, 0)}  # of a device: its only row


def desk(w=0.3, b=-0.2, **more):
    return Desk(models={SPEC: Line(w, b)}, children=range(4), **more)


def slopes(at, x, y):
    """Of the cross-entropy of logits (0, w x + b), by w and b."""
    off = 1 / (1 + math.exp(-(at[0] * x + at[1]))) - y
    return off * x, off


# ------------------------------------------------------------------------------------ control for the head


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_rounds_by_hand(momentum):
    """Two of four devices, two steps of one row each. Only b, the head, is corrected; only w has momentum."""
    lr, server_lr, steps = 0.5, 0.8, 2
    rule = fedpvr(Train(optim=SGD(lr, momentum), batch=1, steps=steps), 2, server_lr=server_lr)
    ctx = desk()
    m, kept = rule.start(ctx), {}
    (w, b), c, own = (0.3, -0.2), 0.0, dict.fromkeys(DATA, 0.0)
    for turn in range(2):
        m, commands = rule.plan(m, None, ctx.later(busy={0} if turn else {3}))
        replies, moved, changes = [], [], []
        for task in tasks(commands):
            assert task.send["control"].keys() == {"b"}
            x, y = DATA[task.to]
            body, keep, _ = fit(task.job, local([x], [y], task.send, kept.get(task.to)))
            kept[task.to] = keep
            replies.append(
                replace(answer(task, weight=7.0 * (1 + task.to)), body=body)
            )  # weights don't count

            (v, h), speed = (w, b), 0.0
            for _ in range(steps):
                by_w, by_b = slopes((v, h), x, y)
                speed = momentum * speed + by_w
                v, h = v - lr * speed, h - lr * (by_b - own[task.to] + c)
            new = own[task.to] - c + (b - h) / (steps * lr)
            moved.append((v - w, h - b))
            changes.append(new - own[task.to])
            own[task.to] = new
            assert close(body["delta"], numbers(*moved[-1]))
            assert close(body["control"], {"b": torch.tensor([changes[-1]], dtype=torch.float64)})
            assert close(keep, {"b": torch.tensor([new], dtype=torch.float64)})
        m, _ = rule.merge(m, None, Got(replies, []), ctx)
        (dw, db), (ew, eb) = moved
        w, b = w + server_lr * (dw + ew) / 2, b + server_lr * (db + eb) / 2
        c += sum(changes) / 4
        assert close(m.inner.params, numbers(w, b))
        assert close(m.control, {"b": torch.tensor([c], dtype=torch.float64)})
        assert m.round == turn + 1
    assert abs(c) > 0.01  # the second round had a correction to make


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
def test_between_fedavg_and_scaffold(plan):
    """Nothing corrected: FedAvg. Both layers corrected: SCAFFOLD. The head alone: neither."""

    def end(rule):
        return weights(finished(small(EQUAL), rule, plan=plan))

    assert torch.equal(end(fedpvr(LOCAL, 4, layers=0)), end(FedAvg(4, LOCAL)))
    assert torch.equal(end(fedpvr(PLAIN, 4, layers=2)), end(scaffold(PLAIN, 4)))
    head = end(fedpvr(PLAIN, 4))
    assert not torch.allclose(head, end(FedAvg(4, PLAIN)), rtol=0, atol=1e-6)
    assert not torch.allclose(head, end(scaffold(PLAIN, 4)), rtol=0, atol=1e-6)


def test_only_the_last_layers_controls_travel():
    at = local([1.0], [1], {"params": numbers(), "control": {"b": torch.zeros(1, dtype=torch.float64)}})
    sends = Train(objective=Correct(("b",))).cost(at).sends
    assert sends.keys() == {"delta", "control"}
    assert sends["control"].keys() == {"b"}
    assert Correct().sends(numbers())["control"].keys() == {"w", "b"}


@pytest.mark.parametrize(
    "name, layers, expected",
    [
        ("lenet5", 0, 0),
        ("lenet5", 1, 2),
        ("lenet5", 3, 6),  # the classifier: three layers with a bias each
        ("lenet5", 5, 10),
        ("resnet8", 1, 2),
        ("mobilenetv1", 1, 2),
    ],
)
def test_layers_are_counted_from_the_head(name, layers, expected):
    net = Models((3, 32, 32), 10)[ModelSpec(name, width=0.25)]
    params = net.init(0)
    found = find_last_layers(net, params, layers)
    assert list(found) == list(params)[len(params) - expected :]
    assert layers != 1 or set(found) == set(net.head_names)


def test_more_layers_than_there_are():
    with pytest.raises(ConfigError, match="layers = 3: must be at most 2"):
        fedpvr(layers=3).start(desk())


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("rates", ["one", "each"])
def test_momentum_spares_some_places(decay, rates):
    params = [
        torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in range(3)
    ]
    others = [p.clone().requires_grad_() for p in params]
    groups = [{"params": [p], "momentum": 0.0 if i == 1 else 0.9} for i, p in enumerate(others)]
    theirs, ours = torch.optim.SGD(groups, 0.1, weight_decay=decay), SparedSGD(0.1, 0.9, decay, (1,))
    state, lr = ours.start(params), 0.1 if rates == "one" else [torch.tensor(0.1)] * 3
    assert len(state[0]) == 2
    for count in range(1, 5):
        grads = [p.sin() + count for p in params]
        for p, g in zip(others, grads, strict=True):
            p.grad = g.clone()
        theirs.step()
        ours.step(params, grads, state, lr, count)
        assert all(torch.allclose(p, q, rtol=0, atol=1e-7) for p, q in zip(params, others, strict=True))


def test_an_edge_keeps_its_control():
    rule, ctx = fedpvr(Train(optim=SGD(0.5), batch=1), 2), desk(parent=200)
    m = rule.start(ctx)
    asked = Task(100, Train(), {"params": numbers(2.0, 1.0)})
    m = rule.adopt(m, asked, ctx)
    m, commands = rule.plan(m, None, ctx)
    one, two = tasks(commands)
    control = {"b": torch.tensor([4.0], dtype=torch.float64)}
    replies = [answer(one, 1.0, weight=5.0, control=control), answer(two, 2.0, weight=1.0, control=control)]
    m, _ = rule.merge(m, None, Got(replies, []), ctx)
    body, weight = rule.report(m, asked, ctx)
    assert close(body, {"delta": numbers(1.5)})
    assert weight == 2  # devices
    m = rule.adopt(m, Task(100, Train(), {"params": numbers(7.0)}), ctx)
    assert close(m.inner.params, numbers(7.0))
    assert close(m.control, {"b": torch.tensor([2.0], dtype=torch.float64)})  # 2 x 4 / 4 devices


# --------------------------------------------------------------------------------- heads that stay at home


def test_two_rounds_of_own_heads_by_hand():
    """w is averaged by samples; every device goes on with its own b, at first with the one that is sent."""
    lr, (w, b) = 0.5, (0.3, -0.2)
    rule, ctx = fedpvr(Train(optim=SGD(lr), batch=1, steps=2), 2, local_head=True), desk()
    m, kept, heads = rule.start(ctx), {}, dict.fromkeys(DATA, b)
    for turn in range(2):
        m, commands = rule.plan(m, None, ctx.later(busy={0} if turn else {3}))
        replies, moved = [], []
        for task in tasks(commands):
            x, y = DATA[task.to]
            body, keep, _ = fit(task.job, local([x], [y], task.send, kept.get(task.to)))
            kept[task.to] = keep
            assert body["delta"].keys() == {"w"}  # the head's change stays
            opened = task.job.unpack(body, task.send, ctx.models)
            weight = 1.0 + task.to
            replies.append(replace(answer(task, weight=weight), body=opened))

            v, h = w, heads[task.to]
            for _ in range(2):
                by_w, by_b = slopes((v, h), x, y)
                v, h = v - lr * by_w, h - lr * by_b
            heads[task.to] = h
            moved.append((v - w, weight))
            assert close(keep, {"personal": {"b": torch.tensor([h], dtype=torch.float64)}})
            assert close(opened["delta"], numbers(v - w))
        m, _ = rule.merge(m, None, Got(replies, []), ctx)
        w += sum(d * n for d, n in moved) / sum(n for _, n in moved)
        assert close(m.params, numbers(w, b))  # nobody trains the head that is sent
    for node, head in heads.items():
        views = rule.serve(m, node, ctx)
        assert list(views) == ["personal", "global"]
        job, sent = views["personal"].job, views["personal"].send
        keep = kept.get(node) or job.blank(sent)
        used, _ = job.begin(Line(), sent, keep, None)
        assert close(used, numbers(w, head))
    assert list(rule.serve(m, ctx.me, ctx)) == ["global"]


def test_what_is_promised_is_sent_by_all_executors():
    rule = fedpvr(LOCAL, 4, local_head=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what can't be mapped is trained one by one, with a warning
        loop, workers, stacked = (finished(small(), rule, plan=p) for p in (LOOP, WORKERS, STACKED))
    assert lines(workers) == lines(loop)
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    resumed, _ = chained(small(), rule)
    assert lines(resumed) == lines(loop)
    assert not loop.accounts.lost
    assert values(loop, "accuracy_mean", view="personal") != values(loop, "accuracy_mean", view="global")
    more = finished(small(), FedAvg(4, LOCAL))
    units, classes = 6, 4  # of the model: the head's weights and biases, 8 bytes each, aren't sent
    saved = more.accounts.up["device"] - loop.accounts.up["device"]
    assert saved == 12 * 8 * (units * classes + classes)


def test_own_part_has_its_places():
    sent = {"params": numbers(1.0, 2.0)}
    assert close(OwnPart(("b",)).blank(sent), {"personal": {"b": torch.tensor([2.0])}})
    opened = OwnPart(("w",)).unpack({"delta": {"b": torch.tensor([3.0])}}, sent, numbers(9.0, 9.0))
    assert list(opened["delta"]) == ["w", "b"]
    assert close(opened["delta"], numbers(0.0, 3.0))


# ----------------------------------------------------------------------------------------------- both rules


@dataclass
class Tiers:
    """A cloud that averages two edges, which run some rule."""

    edge: object
    tiers: ClassVar[tuple[str, ...]] = ("edge",)

    def at(self, tier):
        return FedAvg(2, LOCAL) if tier == "cloud" else self.edge


@pytest.mark.parametrize("own", [False, True])
def test_it_runs_below_a_cloud(own):
    rule = Tiers(fedpvr(LOCAL, 3, local_head=own))
    loop, stacked = (finished(small(edges=2), rule, plan=p) for p in (LOOP, STACKED))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    assert loop.round == 3
    assert list(loop.serve(0)) == (["personal", "global"] if own else ["global"])
    plain = finished(small(edges=2), Tiers(FedAvg(3, LOCAL)))
    assert not torch.allclose(weights(loop), weights(plain), rtol=0, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
def test_rules_and_their_states_can_be_stored(own):
    rule = fedpvr(local_head=own)
    assert codec.decode(codec.encode(rule)) == rule
    s, _ = Rounds(rule).init(desk())
    assert codec.encode(codec.decode(codec.encode(s))) == codec.encode(s)
    smaller = rule.resize(3, 0.5)
    average = smaller.inner if own else smaller.inner.inner
    assert (average.clients, average.local.optim.lr) == (3, 0.05)
    assert type(smaller) is type(rule)


@pytest.mark.parametrize(
    "settings, said",
    [
        (dict(layers=-1), "layers = -1"),
        (dict(layers=0, local_head=True), "layers = 0"),
        (dict(server_lr=0.0), "server_lr = 0.0"),
        (dict(local=Train(optim=Adam())), "train.optimizer = 'adam'"),
        (dict(local=Train(optim=SGD(0.0))), "train.lr = 0.0"),
        (dict(local=Train(part="head")), "train.part = 'head'"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError) as error:
        fedpvr(**settings)
    assert str(error.value).startswith(said)
    fedpvr(Train(optim=Adam()), local_head=True)  # divides by nothing
