"""Any rule above users: what it plans waits until users were gauged, lane by lane, and goes as planned."""

from dataclasses import dataclass, field, replace

import pytest
from support import SPEC, Desk, answer, notes, numbers, tasks

from potluck.algorithms.shufflefl.device import Gauge
from potluck.algorithms.shufflefl.planner.search import Search
from potluck.algorithms.shufflefl.users import make_users
from potluck.core.job import Cost
from potluck.core.messages import Lost, Note, Reply, Spent, Task, Until
from potluck.core.rule import Got
from potluck.jobs import Train

JOB = Train(SPEC)
CLOUD, USERS = 100, (101, 102, 103, 104)
DESK = Desk(children=USERS, me=CLOUD, here=CLOUD)


@dataclass(frozen=True)
class Heard:
    round: int = 0
    heard: tuple = ()  # what merges brought


@dataclass(frozen=True)
class Errand:
    def cost(self, at):
        return Cost()


@dataclass(frozen=True)
class TwoLanes:
    """Half of the users in each lane, and errands in a third."""

    local: Train = JOB
    halves: dict = field(default_factory=lambda: {"a": USERS[:2], "b": USERS[2:]})

    def start(self, ctx):
        return Heard()

    def lanes(self, m, ctx):
        return ("errands", *self.halves)

    def plan(self, m, lane, ctx):
        if lane == "errands":
            return m, [Task(n, Errand(), {}) for n in USERS]
        send = {"params": numbers(1.0), "control": numbers(2.0)}
        each = [Task(n, JOB, send, tag=lane.upper(), slot=lane) for n in self.halves[lane]]
        return m, [Note("planned", lane), Until(60.0, 2), *each]

    def merge(self, m, lane, got, ctx):
        brought = [(r.task.to, r.task.tag, sorted(r.body)) for r in got.replies]
        return Heard(m.round + 1, (*m.heard, (lane, brought, [(x.what.to, x.why) for x in got.lost]))), []

    def serve(self, m, node, ctx):
        return {}

    def adopt(self, m, task, ctx):
        return m

    def report(self, m, task, ctx):
        return None


def overseen(cap=True, **more):
    settings = {"gateway": "pi4", "alpha": None, "gamma": 1.0, "adaptive": True, "balance_time": True}
    settings |= {"shuffle": True, "cap": cap, "transfer": True} | more
    return make_users(JOB, Search(), **settings).oversee(TwoLanes())


def gauge(rule, m, lane, asked, least, now=3.0):
    """What becomes of a round once users have answered, except for those who don't."""
    said = [
        Reply(t, {"beta": 1.0, "least": least[t.to]}, 1.0, {}, Spent(now)) for t in asked if t.to in least
    ]
    return rule.merge(m, lane, Got(said, []), DESK.later(now=now))


def test_a_lane_s_tasks_wait_for_its_users_and_go_as_planned():
    rule = overseen()
    m = rule.start(DESK)
    m, commands = rule.plan(m, "a", DESK)
    assert [(t.to, type(t.job)) for t in tasks(commands)] == [(101, Gauge), (102, Gauge)]
    assert notes(commands) == [("planned", "a")]
    m, commands = rule.plan(m, "b", DESK)
    m, _ = gauge(rule, m, "b", tasks(commands), {103: 4.0, 104: 8.0})
    assert rule.lanes(m, DESK) == ["a", "b", "errands"]  # who has begun comes before others choose the same
    m, commands = rule.plan(m, "b", DESK.later(now=3.0))
    sent = tasks(commands)
    assert [(t.to, t.job, t.tag, t.slot) for t in sent] == [(103, JOB, "B", "b"), (104, JOB, "B", "b")]
    assert all({"params", "control", "limit", "deadline"} <= set(t.send) for t in sent)
    assert {t.send["limit"] for t in sent} == {6.0}
    assert [c for c in commands if isinstance(c, Until)] == [Until(57.0, 2)]  # asking took of its time
    assert notes(commands) == [("limit", 6.0)]
    told = [answer(t, 1.0, level=5.0, spared=2.0) for t in sent]
    m, _ = rule.merge(m, "b", Got([replace(r, spent=Spent(7.0)) for r in told], []), DESK)
    assert m.inner.heard == (("b", [(103, "B", ["delta"]), (104, "B", ["delta"])], []),)  # as devices answer
    assert (m.took, m.alpha, set(m.open)) == ({103: 12.0, 104: 12.0}, 5.0, {"a"})


def test_who_left_while_others_were_gauged_is_lost_to_the_rule():
    rule = overseen()
    m, commands = rule.plan(rule.start(DESK), "a", DESK)
    m, _ = gauge(rule, m, "a", tasks(commands), {101: 4.0, 102: 4.0})
    m, commands = rule.plan(m, "a", DESK.later(busy={102}))
    (task,) = tasks(commands)
    m, _ = rule.merge(m, "a", Got([answer(task)], []), DESK)
    assert m.inner.heard == (("a", [(101, "A", ["delta"])], [(102, "gone")]),)


def test_where_all_have_left_the_round_waits_and_goes_to_all():
    rule = overseen()
    m, commands = rule.plan(rule.start(DESK), "a", DESK)
    m, _ = gauge(rule, m, "a", tasks(commands), {})
    m, commands = rule.plan(m, "a", DESK.later(busy={*USERS}))
    assert not tasks(commands)
    m, commands = rule.plan(m, "a", DESK.later())
    assert [t.to for t in tasks(commands)] == [101, 102]
    lost = [Lost(t, "late") for t in tasks(commands)]
    m, _ = rule.merge(m, "a", Got([], lost), DESK)
    assert m.inner.heard == (("a", [], [(101, "late"), (102, "late")]),)
    assert not m.took


def test_errands_of_a_rule_pass():
    rule = overseen()
    m, commands = rule.plan(rule.start(DESK), "errands", DESK)
    assert [(t.to, t.send) for t in tasks(commands)] == [(n, {}) for n in USERS]
    assert not m.open
    m, _ = rule.merge(
        m, "errands", Got([Reply(t, {}, 1.0, {}, Spent(1.0)) for t in tasks(commands)], []), DESK
    )
    assert m.inner.heard[0][0] == "errands"
    assert not m.took  # it tells nothing of how long a user trains


@pytest.mark.parametrize("settings", [{"cap": False}, {"cap": False, "adaptive": False}])
def test_nobody_is_asked_who_need_not_be(settings):
    rule = overseen(**settings)
    m, commands = rule.plan(rule.start(DESK), "a", DESK)
    assert all(t.job == JOB and "limit" not in t.send for t in tasks(commands))
    m, _ = rule.merge(m, "a", Got([answer(t, level=4.0) for t in tasks(commands)], []), DESK)
    m, commands = rule.plan(m, "a", DESK)  # now they are known
    asked = any(isinstance(t.job, Gauge) for t in tasks(commands))
    assert asked is settings.get("adaptive", True)


def test_a_parent_s_new_model_takes_the_place_of_what_was_planned():
    rule = overseen()
    m, commands = rule.plan(rule.start(DESK), "a", DESK)
    m, _ = gauge(rule, m, "a", tasks(commands), {101: 4.0, 102: 4.0})
    m = rule.adopt(m, Task(CLOUD, JOB, {"params": numbers(9.0)}), DESK)
    assert not m.open
    assert rule.report(m, Task(CLOUD, JOB, {}), DESK) is None
