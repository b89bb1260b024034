"""Potluck's mode of ClassTer: means of detectors, a general model that begins from these, judging."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, pool, small, values, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SPEC, Desk, Line, close, local, numbers, tasks

from potluck import algorithms
from potluck.algorithms.classter.device.detect import Balanced, keep_back
from potluck.algorithms.classter.device.distil import Distil, Loudest, join_detectors
from potluck.algorithms.classter.device.question import DETECTORS, GENERAL, KINDS, Question
from potluck.algorithms.classter.judge import WAVES, Asking, Fitted, Standing, hear, is_possible
from potluck.algorithms.classter.state import Member, follow_means, start_detectors
from potluck.core.job import Batch
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.core.trees import leaves
from potluck.data import divide, reserve_rows
from potluck.engine.schedule import EvaluateAt
from potluck.jobs.calibrate import begin_search, share_of, sum_up, take_step
from potluck.jobs.prior import WEIGH
from potluck.jobs.switch import Prior, Switch

ONE = replace(SPEC, outputs=1)


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


# ---------------------------------------------------------------------------------------- means of detectors


def test_a_detector_is_heard_as_the_mean_of_its_last_updates():
    m = start_detectors([numbers(9.0), numbers(9.0)], None)
    for has, w, mean in (
        (1, 4.0, 4.0),
        (2, 8.0, 6.0),
        (3, 10.0, 8.0),
        (4, 0.0, 4.0),
    ):  # by halves from then on
        before, m = m.updates, replace(m, models=[numbers(w), m.models[1]], updates=[has, 0])
        m = follow_means(m, before, 2)
        assert close(m.heard, [numbers(mean), numbers(9.0)])
    twice = follow_means(replace(m, updates=[6, 0], models=[numbers(2.0), numbers(9.0)]), m.updates, 4)
    assert close(twice.heard[0], numbers(4 + 2 / 4 * (2 - 4)))  # two updates at once are two parts in four
    assert follow_means(m, [0, 0], 1) is m


def test_a_general_model_begins_as_the_mean_of_layers_below_all_heads():
    one, whole = SimpleNamespace(head_names=("b.w", "b.b")), SimpleNamespace(head_names=("b.w", "b.b"))
    models = [
        {"a": table([1.0, 2.0]), "b.w": table([3.0]), "b.b": table(5.0)},
        {"a": table([3.0, 6.0]), "b.w": table([7.0]), "b.b": table(9.0)},
    ]
    last = {"a": table([0.0, 0.0]), "b.w": table([0.0], [0.0]), "b.b": table(0.0, 0.0)}
    joined = join_detectors(one, whole, models, last)
    assert {name: p.tolist() for name, p in joined.items()} == {
        "a": [[2.0, 4.0]],
        "b.w": [[3.0], [7.0]],
        "b.b": [5.0, 9.0],
    }
    wider = {**last, "a": table([0.0, 0.0, 0.0])}
    assert join_detectors(one, whole, models, wider) is wider  # detectors of a smaller form
    deeper = {**last, "c": table(1.0)}
    assert join_detectors(one, whole, models, deeper) is deeper


# ------------------------------------------------------------------------------------------ rows kept back


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.floats(0, 1))
def test_rows_kept_back_are_always_the_same_and_never_all_of_a_class(labels, share):
    y = np.array(labels)
    kept = keep_back(y, share)
    assert all(not kept[y == c].all() for c in set(labels))
    assert (keep_back(y, share) == kept).all()
    assert not keep_back(y, 0.0).any()


def test_no_detector_trains_on_rows_kept_back():
    y = [1, 0] * 40
    at = local([0.0] * 80, y, {"target": torch.tensor(1)})
    kept = keep_back(np.array(y), 0.25)
    drawn = Balanced(0.25).draw(at, 10, 5, None)
    used = np.unique(drawn.index[drawn.weight > 0])
    assert 10 <= kept.sum() <= 30
    assert sorted(used) == np.flatnonzero(~kept).tolist()  # and on all others
    assert drawn.count == 80 == Balanced(0.25).most(at, 10)
    assert Balanced(0.25).passes(at, 10, 5, None) == drawn.weight.sum()


# ------------------------------------------------------------------------------------------------ the fit


class Said(Line):
    """A model of three classes, or one of them, whose logits are the rows as they are."""

    classes = 3

    def __init__(self, column=None):
        super().__init__()
        self.column = column

    def __call__(self, params, x, key=None):
        return x if self.column is None else x[:, self.column : self.column + 1]


class Columns(Line):
    """A detector that says the column which its parameters name."""

    def __call__(self, params, x, key=None):
        return x[:, int(params["w"]) :][:, :1]


def device(node, rows=30, seed=0):
    """A device with rows of three columns, which are told apart by the largest, mostly."""
    rng = np.random.default_rng([seed, node])
    y = rng.choice(3, rows, p=[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]][node % 2])
    x = rng.normal(size=(rows, 3)) + 2.0 * np.eye(3)[y]
    at = local([0.0] * rows, y.tolist(), {}, models={SPEC: Said(), ONE: Columns()})
    at.pool.x = torch.tensor(3.0 * x + [4.0, 0.0, -1.0])  # too sure, and partial to the first class
    return at


SENT = {
    "params": numbers(),
    "models": [numbers(0.0), numbers(1.0), numbers(2.0)],
    "trained": torch.ones(3).bool(),
}
JOB = Question(SPEC, ONE, 0.2)


def answer(at, send, keep, node):
    """What a device answers to a wave, and what it keeps."""
    at.inbox, at._keep = send, keep
    result = JOB.run(at)
    promised = JOB.cost(at)
    for kind in KINDS:
        assert {k: v.shape for k, v in result.body[kind].items()} == {
            k: v.shape for k, v in promised.sends[kind].items()
        }
    return Reply(Task(node, JOB, send), result.body, result.weight, {}, Spent()), result.keep or keep


def ask_all(devices, leave=()):
    """All waves; devices in `leave` answer only so many of them."""
    asking, keeps, waves = Asking(list(range(len(devices))), 7), [None] * len(devices), 0
    while True:
        send = SENT if not asking.wave else {"at": asking.at, "offset": asking.offset}
        replies = []
        for node in asking.nodes:
            if waves < dict(leave).get(node, 99):
                reply, keeps[node] = answer(devices[node], send, keeps[node], node)
                replies.append(reply)
        wave, waves = hear(asking, replies), waves + 1
        if wave.asking is None:
            return wave, waves
        asking = wave.asking


def pooled(devices):
    """The same fit where all rows are in one place."""
    x, y = torch.cat([at.pool.x for at in devices]), torch.cat([at.pool.y for at in devices])
    offset = share_of(torch.bincount(y, minlength=3).double()).log()
    search = begin_search(x, 3)
    for _ in range(WAVES - 1):
        search = take_step(search, sum_up(x, y, torch.ones(len(y)).double(), search.at, offset))
    return search.best, x, y


def test_devices_fit_what_all_their_rows_in_one_place_would():
    devices = [device(node) for node in range(6)]
    wave, waves = ask_all(devices)
    best, x, y = pooled(devices)
    assert waves == WAVES
    for kind in KINDS:  # detectors say the same as the general model here
        fitted = wave.fitted[kind]
        torch.testing.assert_close(torch.cat([fitted.slope.reshape(1), fitted.bias]), best)
    assert float(best[0]) < 0.9  # it was too sure
    assert float(best[1]) < float(best[2]) - 1  # and partial
    kept = [keep_back(at.y.numpy(), 0.2) for at in devices]
    assert wave.rows == sum(k.sum() for k in kept) > 10
    last = torch.tensor(np.concatenate(kept))
    plain = (x.argmax(-1) == y)[last].sum()
    assert wave.right[0] == wave.right[1] > float(plain)


def test_a_fit_goes_on_without_those_who_left():
    devices = [device(node) for node in range(4)]
    left, waves = ask_all(devices, leave={0: 3}.items())
    assert waves == WAVES
    fitted = left.fitted[GENERAL]
    offset = share_of(torch.bincount(torch.cat([d.pool.y for d in devices]), minlength=3).double()).log()
    x, y = (torch.cat([getattr(d.pool, n) for d in devices[1:]]) for n in "xy")
    at = torch.cat([fitted.slope.reshape(1), fitted.bias])
    slope = sum_up(x, y, torch.ones(len(y)).double(), at, offset).slope
    assert (slope + at - table(1.0, 0.0, 0.0, 0.0)).abs().max() < 0.05  # where their likelihood is flat
    assert ask_all(devices, leave=dict.fromkeys(range(4), 3).items())[0].fitted is None


def test_who_holds_other_rows_by_now_says_nothing():
    at = device(0)
    reply, keep = answer(at, SENT, None, 0)
    assert reply.weight == 30
    fresh = device(0, rows=20)
    again, _ = answer(
        fresh, {"at": {k: table(1.0, 0.0, 0.0, 0.0) for k in KINDS}, "offset": table(0.0, 0.0, 0.0)}, keep, 0
    )
    assert again.weight == 0
    assert float(again.body[GENERAL]["counts"].sum()) == 0


@pytest.mark.parametrize(
    "lie",
    [
        lambda b: b[GENERAL]["counts"].add_(50.0),
        lambda b: b[GENERAL]["counts"].sub_(20.0),
        lambda b: b[DETECTORS]["loss"].sub_(1e9),
        lambda b: b[DETECTORS]["slope"].mul_(1e6),
        lambda b: b[GENERAL]["curve"].neg_(),
        lambda b: b[GENERAL]["curve"].add_(torch.arange(16.0).reshape(4, 4)),
        lambda b: b["right"].copy_(table(1.0, 2.0, 0.0)),
        lambda b: b["right"].copy_(table(90.0, 2.0, 0.0)),
        lambda b: b["right"].copy_(table(30.0, 2.0, 30.0)),  # of 30 rows, as if all were kept back
    ],
)
def test_sums_that_no_rows_can_have_are_left_out(lie):
    one, two = (answer(device(node), SENT, None, node)[0] for node in (0, 1))
    assert is_possible(one.body, one.weight, 0.2)
    lie(one.body)
    assert not is_possible(one.body, one.weight, 0.2)
    assert hear(Asking([0, 1], 7), [one, two]).asking.nodes == [1]
    assert hear(Asking([0], 7), [one]).asking is None


def test_the_general_model_is_judged_as_it_would_be_used():
    weak = np.arange(60) % 4 == 0
    at = local([0.0] * 60, [0] * 60, {}, models={SPEC: Said(), ONE: Columns()})
    said = torch.where(torch.tensor(weak).unsqueeze(1), table(0.0, 0.5, -9.0), table(5.0, 0.0, 0.0))
    at._keep = {"said": torch.stack([said, said])}
    at.inbox = {"at": {k: table(1.0, 0.0, 0.0, 0.0) for k in KINDS}, "offset": table(0.0, 0.0, 0.0)}
    last = keep_back(at.y.numpy(), 0.4)
    plain = (last & ~weak).sum()
    assert plain < last.sum()
    # Three of four rows are of the first class beyond doubt: then the others are likely of it, too.
    assert Question(SPEC, ONE, 0.4, weighs=True).run(at).body["right"].tolist() == [
        last.sum(),
        plain,
        last.sum(),
    ]
    assert Question(SPEC, ONE, 0.4).run(at).body["right"].tolist() == [last.sum(), plain, plain]


def test_a_detector_that_nobody_trained_says_least():
    at = device(0)
    reply, keep = answer(at, {**SENT, "trained": torch.tensor([False, True, True])}, None, 0)
    assert (keep["said"][0, :, 0] < -1e3).all()
    assert torch.equal(keep["said"][1], at.pool.x)
    assert is_possible(reply.body, reply.weight, 0.2)


def test_older_judgements_count_half():
    s = Standing().after(10.0, (6.0, 5.0))
    assert not s.prefers_general
    s = s.after(10.0, (7.0, 8.0))
    assert (s.rows, s.right) == (15.0, (10.0, 10.5))
    assert s.prefers_general
    assert not Standing().prefers_general  # nobody was asked


# ----------------------------------------------------------------------------------- what fits are used for


def test_the_teacher_says_what_devices_found():
    scaling = {"slope": table(0.5)[0], "bias": table(0.0, 1.0, 0.0), "source": table(1.0, 1.0, 1.0) / 3}
    sent = {**SENT, "scaling": scaling}
    rows = Batch(table([4.0, 1.0, 0.0]), torch.zeros(1).long(), torch.ones(1).double(), None, None)
    said = Distil(ONE, 2.0).look({ONE: Columns()}, Said(), sent, None, rows)["teacher"]
    # Logits (2, 1.5, 0), with the bias, are halved once more by the teacher's temperature.
    expected = (table([2.0, 1.5, 0.0]).log_softmax(-1) / 2).softmax(-1)
    torch.testing.assert_close(said, expected)
    loudest = Loudest()
    form, held = loudest.form(sent), loudest.hold(sent, None, None)
    heard = loudest.answer(Columns(), form, rows, held)
    torch.testing.assert_close(heard, table([2.0, 1.5, 0.0]).log_softmax(-1))


# ----------------------------------------------------------------------------------------------- the rule


class Three(Line):
    classes = 3


def begun(name="classter", **params):
    r = algorithms.make(name, LOCAL, **{"clients": 3, "distil": {"every": 4}, **params})
    general = replace(LOCAL.model)
    desk = Desk(models={general: Three(), replace(general, outputs=1): Line()})
    return r, desk, r.start(desk)


def enrolled(m):
    return replace(m, members={node: Member((0, 1, 2), 10.0) for node in range(6)})


def distilled(r, m, desk):
    m, (task,) = r.plan(replace(m, updates=[2, 2, 1]), "distil", desk)
    metrics = {f"{name} {c}": 0.5 for name in ("mean", "deviation") for c in range(3)}
    return r.merge(m, "distil", Got([Reply(task, {"delta": numbers(1.0)}, 9.0, metrics, Spent())], []), desk)[
        0
    ]


def test_detectors_begin_alike_where_the_general_model_begins_from_them():
    r, desk, m = begun()
    assert all(close(model, m.models[0]) for model in m.models)
    assert r.lanes(m, desk) == ("train",)  # nothing to judge yet


def test_devices_judge_after_each_distillation_before_anybody_trains():
    r, desk, m = begun()
    m = distilled(r, enrolled(m), desk)
    assert r.lanes(m, desk) == ("judge", "train")
    m, commands = r.plan(m, "judge", desk)
    asked = tasks(commands)
    assert [t.job for t in asked] == [r.question] * 3
    assert {t.to for t in asked} <= set(m.members)
    assert asked[0].send["params"] is m.general
    assert asked[0].send["models"] is m.heard
    assert {t.slot for t in asked} == {"judge"}
    m, _ = r.merge(m, "judge", Got([], [Lost(t, "gone") for t in asked]), desk)
    assert r.lanes(m, desk) == ("train",)  # nobody answered: not before the next one
    assert m.judged == m.distilled == 5
    assert "scaling" not in r.serve(m, 4, desk)["classter"].send


def test_where_all_are_busy_they_are_asked_all_the_same():
    r, desk, m = begun()
    m = distilled(r, enrolled(m), desk)
    _, commands = r.plan(m, "judge", desk.later(busy=set(range(5))))
    assert len({t.to for t in tasks(commands)}) == 3
    m, commands = r.plan(replace(m, members={}), "judge", desk)
    assert commands == []
    assert r.lanes(m, desk) == ("train",)


@pytest.mark.parametrize(("right", "served"), [((5.0, 5.0), Switch), ((6.0, 5.0), Loudest)])
def test_the_better_one_is_served_and_told_how_sure_it_may_be(right, served):
    r, desk, m = begun()
    m = distilled(r, enrolled(m), desk)
    assert isinstance(r.serve(m, 4, desk)["classter"].job.objective, Loudest)  # until it was judged
    fitted = {kind: Fitted(table(n)[0], table(0.0, n, 0.0)) for n, kind in enumerate(KINDS, 1)}
    m = replace(m, fitted=fitted, standing=Standing().after(10.0, right))
    task = r.serve(m, 4, desk)["classter"]
    assert isinstance(task.job.objective, served)
    kind = GENERAL if served is Switch else DETECTORS
    assert close(task.send["scaling"], fitted[kind].told())
    mine, theirs = (leaves(r.serve(m, node, desk)["classter"].send) for node in (3, 4))
    assert all(
        a is b for a, b in zip(mine, theirs, strict=True)
    )  # else each would count as a model of its own
    assert ("params" in task.send) == (served is Switch)
    _, (again,) = r.plan(m, "distil", desk)
    assert close(again.send["scaling"], fitted[DETECTORS].told())  # its teachers


def test_its_defaults_weigh_classes_as_they_are_met_and_published_ones_do_not():
    mine, paper = (algorithms.make("classter", LOCAL, mode=mode) for mode in ("potluck", "published"))
    assert mine.tuning.objective.chooser == Prior()
    assert mine.local.sampler == Balanced(0.1)
    assert (paper.question, paper.average, paper.local.sampler) == (None, 1, Balanced())
    assert algorithms.make("classter_async", LOCAL).clients == 30
    assert algorithms.make("classter_async", LOCAL, mode="published").clients == 10
    assert algorithms.make("classter", LOCAL, distil={"calibrate": "rows"}).question is None


# ------------------------------------------------------------------------------------------- on its crowd

DATA = reserve_rows(pool(), 0.1, 1)


def run(name="classter", rounds=16, plan=LOOP, data=DATA, classes=2, dealt=None, **params):
    held = divide(dealt or data, "shards", 8, 1, classes_per_client=classes)
    where = replace(small((9,) * 8, data=data, compute=4e5), partition=held)
    made = algorithms.make(name, LOCAL, **{"clients": 4, "distil": {"every": 16}, **params})
    sim = finished(where, made, rounds=rounds, plan=plan, often=EvaluateAt(rounds=max(1, rounds // 4)))
    return sim, sim.points[sim.root].own.state.model


@pytest.mark.parametrize(("name", "rounds"), [("classter", 16), ("classter_async", 64)])
def test_detectors_are_trained_distilled_and_judged(name, rounds):
    sim, m = run(name, rounds)
    assert m.total == 64
    assert min(m.updates) > 4
    assert [told["updates"] for told in values(sim, "distilled")] == sorted(
        {told["updates"] for told in values(sim, "distilled")}
    )
    judged = values(sim, "judged")
    assert len(judged) >= 3
    assert m.judged == m.distilled == m.total  # the last one too
    assert all(told["rows"] > 0 for told in judged)
    # The forty rows that the server has are too few to distil by: the detectors stay the better ones.
    assert [told["served"] for told in judged] == [0.0] * len(judged)
    assert not values(sim, "personal")
    assert {type(sim.serve(n)["classter"].job.objective) for n in range(8)} == {Loudest}


@pytest.mark.parametrize(("name", "rounds"), [("classter", 16), ("classter_async", 64)])
def test_the_general_model_is_served_where_it_is_the_better_one(name, rounds):
    # The server has half of all rows, and a device holds one class, which its prior soon knows.
    sim, m = run(name, rounds, data=reserve_rows(pool(600), 0.5, 1), classes=1, kept=0.3)
    judged = values(sim, "judged")
    assert all(told["general"] >= told["detectors"] for told in judged)
    assert [told["served"] for told in judged] == [1.0] * len(judged)
    assert m.standing.prefers_general
    assert values(sim, "personal")  # devices have a model of their own beside it
    for node in range(8):
        task = sim.serve(node)["classter"]
        assert isinstance(task.job.objective, Switch)
        assert close(task.send["params"], m.general)


@pytest.mark.parametrize("form", WEIGH)
def test_its_prior_reads_no_label_of_a_test_row(form):
    data, switch = reserve_rows(pool(300), 0.5, 1), {"kind": "Prior", "form": form}
    tested = [divide(data, "shards", 8, 1, classes_per_client=1).rows(node, "test") for node in range(8)]

    def scores(labels):
        y = data.y.clone()
        for rows, own in zip(tested, labels, strict=True):
            y[torch.tensor(rows)] = own
        told = replace(data, y=y)
        sim, m = run(rounds=4, data=told, classes=1, dealt=data, kept=0.3, personal={"switch": switch})
        assert m.standing.prefers_general
        return [values(sim, "accuracy", node=node)[-1] for node in range(8)], weights(sim)

    # All rows said to be of one class, then of the next: the shares that are right are those answered by it.
    answered, models = zip(
        *(scores([torch.full((len(r),), c) for r in tested]) for c in range(4)), strict=True
    )
    assert np.sum(answered, 0) == pytest.approx(1.0)
    assert all(torch.equal(models[0], other) for other in models)


def test_stacks_and_loops_agree_on_what_devices_judge():
    (loop, one), (stacked, other) = (run(plan=plan, rounds=8) for plan in (LOOP, STACKED))
    assert one.fitted.keys() == other.fitted.keys() == set(KINDS)
    for kind in KINDS:
        torch.testing.assert_close(one.fitted[kind].bias, other.fitted[kind].bias, rtol=0, atol=1e-8)
    assert values(loop, "accuracy") == values(stacked, "accuracy")


def test_asynchronous_answers_meet_others_on_their_detector():
    sim, _ = run("classter_async", 80, clients=8)
    late = [n for n in values(sim, "staleness") if n > 0]
    assert len(late) > 40  # more at work than the four classes
