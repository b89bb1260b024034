"""The loop: lanes, barriers, deadlines, boundaries. A toy rule records all that it is asked."""

from dataclasses import dataclass, field

import pytest
from support import Desk, answer, cancelled, notes, numbers, tasks

from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec
from potluck.core.codec import value
from potluck.core.messages import Answer, Lost, Move, Note, Stop, Task, Tell, Until, Wake
from potluck.jobs import Train
from potluck.rules import Rounds, as_algorithm

JOB = Train()


def ask(*nodes, tag=None):
    return [Task(node, JOB, {"params": numbers()}, tag) for node in nodes]


@value(frozen=False, eq=False)
class Log:
    round: int = 0
    model: float = 0.0
    open: tuple = ("a",)
    plans: list = None
    merges: list = None


@dataclass(frozen=True)
class Toy:
    """Lanes and plans are what the test says; every merge adds its answers to the model."""

    lanes_: object = None  # (log, ctx) -> lanes
    script: object = field(default=lambda m, lane, ctx: ask(1, 2, 3))
    due: int = 1  # merges since adopting before it reports

    def start(self, ctx):
        return Log(plans=[], merges=[])

    def lanes(self, m, ctx):
        if self.lanes_ is not None:
            return self.lanes_(m, ctx)
        return m.open if ctx.working else ()

    def plan(self, m, lane, ctx):
        m.plans.append(lane)
        return m, self.script(m, lane, ctx)

    def merge(self, m, lane, got, ctx):
        m.merges.append((lane, [r.task.to for r in got.replies], [(x.what.to, x.why) for x in got.lost]))
        m.round += 1
        m.model += sum(float(r.body["delta"]["w"]) for r in got.replies)
        return m, [Note("merged", lane)]

    def serve(self, m, node, ctx):
        return {"global": Task(node, JOB, {"model": m.model})}

    def adopt(self, m, task, ctx):
        m.model, m.round = task.send["model"], 0
        return m

    def report(self, m, task, ctx):
        return ({"change": m.model - task.send["model"]}, float(m.round)) if m.round >= self.due else None


def begin(rule, **desk):
    ctx, loop = Desk(**desk), Rounds(rule)
    return ctx, loop, *loop.init(ctx)


# ------------------------------------------------------------------------------------- barriers and lanes


def test_a_barrier_closes_when_all_have_answered_in_task_order():
    ctx, loop, s, out = begin(Toy())
    a, b, c = tasks(out)
    assert [t.id for t in (a, b, c)] == [("a", 1, 0), ("a", 1, 1), ("a", 1, 2)]
    s, out = loop.receive(s, answer(c, 1.0), ctx)
    s, more = loop.receive(s, answer(a, 1.0), ctx)
    assert out == more == []
    assert s.model.merges == []
    s, out = loop.receive(s, answer(b, 1.0), ctx)
    assert s.model.merges == [("a", [1, 2, 3], [])]  # not in order of arrival
    assert notes(out) == [("merged", "a")]
    assert cancelled(out) == []
    assert [t.id for t in tasks(out)] == [("a", 2, 0), ("a", 2, 1), ("a", 2, 2)]  # the next round is open
    assert loop.round(s) == 1


def test_lost_tasks_count_as_answered_and_are_told():
    ctx, loop, s, out = begin(Toy())
    a, b, c = tasks(out)
    for event in (Lost(b, "gone"), Lost(a, "bad")):
        s, _ = loop.receive(s, event, ctx)
    s, out = loop.receive(s, answer(c), ctx)
    assert s.model.merges == [("a", [3], [(1, "bad"), (2, "gone")])]
    for task in tasks(out):
        s, out = loop.receive(s, Lost(task, "refused"), ctx)
    assert s.model.merges[-1] == ("a", [], [(1, "refused"), (2, "refused"), (3, "refused")])
    assert len(tasks(out)) == 3  # a round in which all were lost is over too


def test_enough_answers_close_a_barrier_and_cancel_the_late():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Until(enough=2), *ask(1, 2, 3, 4)]))
    a, b, c, d = tasks(out)
    s, _ = loop.receive(s, answer(d), ctx)
    s, _ = loop.receive(s, Lost(a, "gone"), ctx)
    s, out = loop.receive(s, answer(b), ctx)
    assert s.model.merges == [("a", [2, 4], [(1, "gone"), (3, "late")])]
    assert cancelled(out) == [c.id]
    assert not any(isinstance(x, Until) for x in out)  # it is for the loop, not for the runtime


def test_enough_is_never_more_than_was_asked():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Until(enough=9), *ask(1, 2)]))
    for task in tasks(out):
        s, _ = loop.receive(s, answer(task), ctx)
    assert s.model.merges == [("a", [1, 2], [])]


def test_a_deadline_closes_a_barrier_by_a_wake_up():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [*ask(1, 2), Until(after=30.0)]), now=12.0)
    (wake,) = [c for c in out if isinstance(c, Wake)]
    assert wake == Wake(42.0, ("a", 1))
    a, b = tasks(out)
    s, _ = loop.receive(s, answer(a), ctx)
    s, out = loop.receive(s, wake, ctx.later(now=42.0))
    assert s.model.merges == [("a", [1], [(2, "late")])]
    assert cancelled(out) == [b.id]
    assert [c for c in out if isinstance(c, Wake)] == [Wake(72.0, ("a", 2))]
    s, out = loop.receive(s, wake, ctx.later(now=42.0))  # of a barrier that has closed
    assert out == []
    assert len(s.model.merges) == 1


def test_a_deadline_may_pass_without_any_answer():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Until(after=1.0), *ask(1)]))
    s, out = loop.receive(s, Wake(1.0, ("a", 1)), ctx.later(now=1.0))
    assert s.model.merges == [("a", [], [(1, "late")])]
    assert len(tasks(out)) == 1


def test_answers_of_a_closed_barrier_are_ignored():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Until(enough=1), *ask(1, 2)]))
    a, b = tasks(out)
    s, out = loop.receive(s, answer(a), ctx)
    before = codec.encode(s)
    for event in (answer(b), Lost(b, "gone"), answer(a)):
        s, out = loop.receive(s, event, ctx)
        assert out == []
        assert codec.encode(s) == before


def test_an_answer_of_the_same_node_from_an_earlier_round_does_not_count():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Until(after=5.0), *ask(1)]))
    (old,) = tasks(out)
    s, out = loop.receive(s, Wake(5.0, ("a", 1)), ctx.later(now=5.0))
    (new,) = tasks(out)
    s, _ = loop.receive(s, answer(old, 7.0), ctx)
    assert s.model.model == 0.0
    s, _ = loop.receive(s, answer(new, 2.0), ctx)
    assert s.model.model == 2.0


def test_lanes_are_apart():
    rule = Toy(lambda m, ctx: ("x", "y"), lambda m, lane, ctx: ask(1) if lane == "x" else ask(2, 3))
    ctx, loop, s, out = begin(rule)
    x, y, z = tasks(out)
    assert [t.id[0] for t in (x, y, z)] == ["x", "y", "y"]
    s, out = loop.receive(s, answer(x), ctx)
    assert s.model.merges == [("x", [1], [])]
    assert [t.id[0] for t in tasks(out)] == ["x"]
    s, out = loop.receive(s, answer(y), ctx)
    assert out == []
    s, out = loop.receive(s, answer(z), ctx)
    assert s.model.merges[-1] == ("y", [2, 3], [])


def test_lanes_come_and_go():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: ask(1)))
    s.model.open = ("a", "b")
    s, out = loop.receive(s, Wake(0.0, "look again"), ctx)
    (b,) = tasks(out)
    assert b.id[0] == "b"
    s.model.open = ("a",)
    s, out = loop.receive(s, answer(b), ctx)  # an open barrier ends even if its lane is to close
    assert s.model.merges == [("b", [1], [])]
    assert tasks(out) == []


def test_a_plan_without_tasks_parks_its_lane_until_the_next_event():
    free = []
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [Note("full", 0)] if not free else ask(*free)))
    assert tasks(out) == []
    assert notes(out) == [("full", 0)]
    assert loop.waiting(s, ctx) == ["a"]
    s, _ = loop.receive(s, Wake(1.0), ctx)
    assert s.model.plans == ["a", "a"]
    assert s.open == {}
    free.append(4)
    s, out = loop.receive(s, Wake(2.0), ctx)
    assert [t.to for t in tasks(out)] == [4]
    assert loop.waiting(s, ctx) == []


def test_other_commands_of_a_plan_are_passed_on_in_order():
    tell, move = Tell(5, JOB, {}), Move(1, 2, ((0, 3),))
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: [move, *ask(1), tell, Wake(9.0, "mine")]))
    assert [type(c) for c in out] == [Move, Task, Tell, Wake]
    s, out = loop.receive(s, Lost(move, "refused"), ctx)
    assert out == []
    assert s.open["a"].lost == {}


def test_tasks_keep_what_the_rule_said_of_them():
    script = [Task(3, JOB, {"x": 1}, tag=("v", 7), slot="cohort")]
    _, _, _, out = begin(Toy(script=lambda m, lane, ctx: script))
    (task,) = tasks(out)
    assert (task.to, task.job, task.send, task.tag, task.slot) == (3, JOB, {"x": 1}, ("v", 7), "cohort")
    assert task.send is script[0].send  # shared by identity: one batch, one copy in a snapshot


# -------------------------------------------------------------------------------------------------- the end


def test_stop_cancels_all_that_is_open_and_lets_only_closing_lanes_run():
    def lanes(m, ctx):
        if ctx.stop:
            return () if ("last", [8], []) in m.merges else ("last",)
        return ("x", "y")

    rule = Toy(lanes, lambda m, lane, ctx: ask(8) if lane == "last" else ask(1, 2))
    ctx, loop, s, out = begin(rule)
    x1, x2, y1, y2 = tasks(out)
    s, _ = loop.receive(s, answer(x1), ctx)
    s, _ = loop.receive(s, Lost(y2, "gone"), ctx)
    s, out = loop.receive(s, Stop(), ctx)
    assert cancelled(out) == [x2.id, y1.id]  # what has answered or is lost needs no cancelling
    (last,) = tasks(out)
    assert last.id[0] == "last"
    assert s.model.merges == []
    s, out = loop.receive(s, answer(x2), ctx)
    assert out == []
    s, out = loop.receive(s, answer(last), ctx)
    assert s.model.merges == [("last", [8], [])]
    assert tasks(out) == []
    assert s.open == {}
    assert loop.waiting(s, ctx) == []


# ------------------------------------------------------------------------------------------ below a parent


def parent_task(model, serial=1):
    return Task(100, JOB, {"model": model}, id=("up", serial, 0))


def test_below_a_parent_nothing_happens_until_it_asks():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: ask(1)), parent=7)
    assert out == []
    assert loop.waiting(s, ctx) == []
    above = parent_task(10.0)
    s, out = loop.receive(s, above, ctx)
    assert s.model.model == 10.0
    (task,) = tasks(out)
    s, out = loop.receive(s, answer(task, 2.0), ctx)
    (told,) = [c for c in out if isinstance(c, Answer)]
    assert told.task is above
    assert told.body == {"change": 2.0}
    assert told.weight == 1.0
    assert tasks(out) == []
    assert s.owed is None


def test_a_report_may_take_several_rounds():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: ask(1), due=3), parent=7)
    s, out = loop.receive(s, parent_task(0.0), ctx)
    for turn in range(3):
        assert not any(isinstance(c, Answer) for c in out)
        s, out = loop.receive(s, answer(*tasks(out), 1.0), ctx)
        assert len(tasks(out)) == (turn < 2)
    assert [c.body for c in out if isinstance(c, Answer)] == [{"change": 3.0}]


def test_a_task_in_mid_round_is_adopted_after_the_barrier_has_closed():
    rule = Toy(lambda m, ctx: ("a",), lambda m, lane, ctx: ask(1))  # goes on while its parent is silent
    ctx, loop, s, out = begin(rule, parent=7)
    (task,) = tasks(out)
    s, out = loop.receive(s, parent_task(10.0), ctx)
    assert out == []
    assert s.model.model == 0.0
    s, out = loop.receive(s, answer(task, 3.0), ctx)
    assert s.model.merges
    assert s.model.model == 10.0
    (task,) = tasks(out)
    assert not any(isinstance(c, Answer) for c in out)
    s, out = loop.receive(s, answer(task, 3.0), ctx)
    assert [c.body for c in out if isinstance(c, Answer)] == [{"change": 3.0}]


def test_several_lanes_drain_to_a_boundary():
    """Lanes that end at different times would else never all be closed, and a parent would wait for ever."""
    rule = Toy(lambda m, ctx: ("x", "y"), lambda m, lane, ctx: ask(1))
    ctx, loop, s, out = begin(rule, parent=7)
    x, y = tasks(out)
    s, _ = loop.receive(s, parent_task(10.0), ctx)
    s, out = loop.receive(s, answer(x, 1.0), ctx)
    assert tasks(out) == []
    assert s.model.model == 1.0
    s, out = loop.receive(s, answer(y, 1.0), ctx)
    assert s.model.model == 10.0
    assert len(tasks(out)) == 2


def test_a_newer_task_of_the_parent_replaces_the_older():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: ask(1)), parent=7)
    s, out = loop.receive(s, parent_task(1.0, 1), ctx)
    newer = parent_task(5.0, 2)
    s, _ = loop.receive(s, newer, ctx)
    s, out = loop.receive(s, answer(*tasks(out)), ctx)
    assert s.model.model == 5.0
    s, out = loop.receive(s, answer(*tasks(out), 1.0), ctx)
    assert [c.task for c in out if isinstance(c, Answer)] == [newer]


def test_stop_below_a_parent_ends_quietly():
    ctx, loop, s, out = begin(Toy(script=lambda m, lane, ctx: ask(1)), parent=7)
    s, out = loop.receive(s, parent_task(1.0), ctx)
    s, out = loop.receive(s, Stop(), ctx)
    assert len(cancelled(out)) == 1
    assert tasks(out) == []
    s, out = loop.receive(s, parent_task(2.0, 2), ctx)
    assert tasks(out) == []


# -------------------------------------------------------------------------------------------------- states


def test_a_state_survives_storing_in_mid_round():
    loop, ctx = Rounds(FedAvg(clients=3)), Desk()
    s, out = loop.init(ctx)
    a, b, c = tasks(out)
    s, _ = loop.receive(s, answer(a, 1.0), ctx)
    again = codec.decode(codec.encode(s))
    ends = []
    for state in (s, again):
        for event in (Lost(b, "gone"), answer(c, 2.0)):
            state, out = loop.receive(state, event, ctx.later(busy=set()))
        ends.append((float(state.model.params["w"]), state.model.round, [t.id for t in tasks(out)]))
    assert ends[0] == ends[1]
    assert ends[0][:2] == (1.5, 1)


def test_rules_are_placed_in_a_loop_and_algorithms_are_left_alone():
    loop = as_algorithm(FedAvg())
    assert loop == Rounds(FedAvg())
    assert as_algorithm(loop) is loop
    s, _ = loop.init(Desk())
    assert loop.serve(s, 3, Desk())["global"].to == 3


@pytest.mark.parametrize("tag", [None, "look", ("a",), ("a", 1, 2), ("zz", 1), ("a", 99)])
def test_wake_ups_that_belong_to_no_barrier_only_ask_again(tag):
    ctx, loop, s, out = begin(Toy())
    s, out = loop.receive(s, Wake(3.0, tag), ctx)
    assert out == []
    assert s.model.merges == []
