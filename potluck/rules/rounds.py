"""The one loop: a rule's lanes, each a barrier that opens with a plan and closes with a merge.

A lane that should be open and isn't is planned; a plan without tasks parks it until the next event. Replies
are matched by (lane, serial, place), never by node. A barrier closes when everyone has answered or is lost,
when enough have, or at its deadline; what is late by then is cancelled and reported to the rule as lost.
Below a parent, its training is adopted and answered at a boundary only: when no barrier is open; what else it
asks for is an errand.

A merge that makes a number NaN or infinite is undone: the rule merges again, with all answers lost as bad.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import filterfalse
from typing import Generic

import numpy as np

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import DivergedError
from potluck.core.job import unpacks
from potluck.core.messages import (
    Answer,
    Cancel,
    Choice,
    Command,
    Event,
    Lane,
    Lost,
    Move,
    Node,
    Note,
    Reply,
    Stop,
    Task,
    TaskId,
    Tell,
    Until,
    Wake,
)
from potluck.core.replies import Replies, Sheet
from potluck.core.rule import Algorithm, Got, M, Rule, S
from potluck.rules.errands import ERRAND, Errand, begin_errand, drop, is_errand, pass_on, take_in
from potluck.rules.sound import NOT_FINITE, find_cause, find_largest, is_sound
from potluck.rules.wrap import is_inner

_ALL = Until()  # unless a plan says otherwise
MOST_UNDONE = 3  # merges in a row: then the run ends
NAMED = 5  # updates, the largest, that are told of an undone merge


@value(frozen=False, eq=False)
class Heard:
    """Replies of one sheet."""

    sheet: Sheet
    places: list[int]

    @property
    def tasks(self) -> list[Task]:
        return [self.sheet.tasks[i] for i in self.places]

    @property
    def replies(self) -> Replies:
        return Replies(self.sheet, np.array(self.places))


@value(frozen=False, eq=False)
class Barrier:
    """What one lane waits for."""

    serial: int
    due: list[Task]
    enough: int
    alarm: bool  # whether a deadline is set
    got: dict[int, Reply]
    lost: dict[int, Lost]
    astray: list[Lost]  # moves that came to nothing
    many: list[Heard] = field(default_factory=list)  # replies of tasks that started together

    @property
    def answered(self) -> int:
        """How many have answered."""
        alone = len(self.got)
        return alone + sum(len(heard.places) for heard in self.many) if self.many else alone

    @property
    def missing(self) -> dict[int, Task]:
        if self.answered + len(self.lost) == len(self.due):
            return {}  # as mostly: one task, and its reply
        there = {*self.got, *self.lost, *(task.id[2] for h in self.many for task in h.tasks if task.id)}
        return {i: t for i, t in enumerate(self.due) if i not in there}

    def is_closed(self) -> bool:
        """Whether nobody is waited for any more."""
        answered = self.answered
        return answered >= self.enough or answered + len(self.lost) == len(self.due)

    def list_replies(self) -> Sequence[Reply]:
        """In the order of the plan; as one table, if all came of one."""
        if not self.many:
            return [self.got[i] for i in sorted(self.got)]
        if len(self.many) == 1 and not self.got:
            return Replies(self.many[0].sheet, np.sort(np.array(self.many[0].places)))
        found = self.got | {r.task.id[2]: r for h in self.many for r in h.replies if r.task.id is not None}
        return [found[i] for i in sorted(found)]


@value(frozen=False, eq=False)
class LoopState(Generic[M]):
    """The state of a loop: the rule's model and what is open."""

    model: M
    open: dict[Lane, Barrier]
    serial: int = 0
    owed: Task | None = None  # the parent's task that is worked on
    fresh: bool = False  # it has come but isn't adopted yet
    queue: list[Task] = field(default_factory=list)  # and those that came after it
    stop: bool = False
    undone: int = 0  # merges since the last whose answers could be taken in
    errands: dict[int, Errand] = field(default_factory=dict)  # of the parent, by serial


@value
class Rounds(Generic[M]):
    """An algorithm out of a rule."""

    rule: Rule[M]  # Inner, below a parent

    def init(self, ctx: Context) -> tuple[LoopState[M], list[Command]]:
        s = LoopState(self.rule.start(ctx), {})
        return s, self._fill(s, ctx)

    def receive(
        self, s: LoopState[M], e: Event | Replies, ctx: Context
    ) -> tuple[LoopState[M], list[Command]]:
        out: list[Command] = []
        match e:
            case Reply():
                out = self._arrive(s, e.task.id, e, ctx)
            case Replies():
                out = self._arrive_together(s, e, ctx)
            case Lost(what=Task() as task):
                out = self._arrive(s, task.id, e, ctx)
            case Wake(tag=(lane, int(serial))) if lane in s.open and s.open[lane].serial == serial:
                s.open[lane].alarm = False
                out = self._close(s, lane, ctx)
            case Lost(what=Move(id=(lane, serial, _))) if lane in s.open and s.open[lane].serial == serial:
                s.open[lane].astray.append(e)
            case Task() if is_errand(e, self.rule):
                s.serial += 1
                s.errands[s.serial] = begin_errand(e, s.serial, ctx)
                out = [*s.errands[s.serial].due]
            case Task():
                s.queue.append(e)
            case Tell():
                out = pass_on(e, ctx)
            case Cancel():
                s.queue = [task for task in s.queue if task.id != e.id]
                for serial in [n for n, errand in s.errands.items() if errand.asked.id == e.id]:
                    out = drop(s.errands.pop(serial))
                if s.owed is not None and s.owed.id == e.id:
                    s.owed, s.fresh = None, False
            case Stop():
                out = [c for lane, b in s.open.items() for c in _cancel_rest(lane, b)]
                s.open, s.stop = {}, True
            case _:
                pass  # a wake-up of a barrier that has closed, or a call to look again
        return s, out + self._fill(s, ctx)

    def serve(self, s: LoopState[M], node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        return self.rule.serve(s.model, node, ctx)

    def round(self, s: LoopState[M]) -> int:
        return s.model.round

    def waiting(self, s: LoopState[M], ctx: Context) -> list[Lane]:
        seen = ctx.holding(s.owed, s.stop)
        return [lane for lane in self.rule.lanes(s.model, seen) if lane not in s.open]

    def _arrive(self, s: LoopState[M], at: TaskId | None, e: Reply | Lost, ctx: Context) -> list[Command]:
        if at is None:
            return []
        lane, serial, place = at
        if lane == ERRAND:
            if serial not in s.errands:
                return []  # it was called off
            said = take_in(s.errands[serial], place, e)
            if said:
                del s.errands[serial]
            return said
        b = s.open.get(lane)
        if b is None or b.serial != serial:
            return []  # of a barrier that has closed
        if isinstance(e, Reply):
            b.got[place] = e
        else:
            b.lost[place] = e
        return self._close(s, lane, ctx) if b.is_closed() else []

    def count_wanted(self, s: LoopState[M], lane: Lane, serial: int, ctx: Context) -> int:
        """How many replies of a barrier may be heard as one event: all but the last change nothing else.

        0: none, not even one by itself, as `Replies`. What follows from what `ctx` says of this moment may be
        otherwise when the next reply comes: whoever asks must see to that.
        """
        b = s.open.get(lane)
        if b is None or b.serial != serial or lane == ERRAND:
            return 0
        seen = ctx.holding(s.owed, s.stop)
        waits = s.fresh or all(other in s.open for other in self.rule.lanes(s.model, seen))
        left = len(b.due) - b.answered - len(b.lost)
        return min(left, b.enough - b.answered) if waits else 1

    def _arrive_together(self, s: LoopState[M], e: Replies, ctx: Context) -> list[Command]:
        at = e.sheet.tasks[int(e.places[0])].id
        assert at is not None
        lane, serial, _ = at
        b = s.open[lane]
        assert b.serial == serial, "only replies that `count_wanted` allows come together"
        same = next((heard for heard in b.many if heard.sheet is e.sheet), None)
        if same is None:
            b.many.append(same := Heard(e.sheet, []))
        same.places += e.places.tolist()
        return self._close(s, lane, ctx) if b.is_closed() else []

    def _close(self, s: LoopState[M], lane: Lane, ctx: Context) -> list[Command]:
        b = s.open.pop(lane)
        missing = b.missing
        lost = b.lost | {i: Lost(t, "late") for i, t in missing.items()} if missing else b.lost
        heard = _unpack_all(b.list_replies(), ctx)
        got = Got(heard, [lost[i] for i in sorted(lost)] + b.astray)
        if missing:
            ctx.release(t.to for t in missing.values())
        seen = ctx.holding(s.owed, s.stop)
        made, commands = self.rule.merge(s.model, lane, got, seen)
        if not is_sound(made, s.model):
            tasks = [*(r.task for r in b.got.values()), *(task for h in b.many for task in h.tasks)]
            bad = {task.id[2]: Lost(task, "bad") for task in tasks if task.id is not None}
            lost = lost | bad
            again = Got([], [lost[i] for i in sorted(lost)] + b.astray)
            made, commands = self._undo(s, lane, again, heard, seen)
            commands = [*bad.values(), *commands]
        elif heard:
            s.undone = 0
        s.model = made
        return [*_cancel_rest(lane, b), *commands] if missing or b.alarm else commands

    def _undo(
        self, s: LoopState[M], lane: Lane, again: Got, heard: Sequence[Reply], ctx: Context
    ) -> tuple[M, list[Command]]:
        """What the rule makes of the state before, with nothing in place of what was heard."""
        s.undone += 1
        updates, where = find_largest(heard, NAMED), _name_round(s, ctx)
        if s.undone >= MOST_UNDONE:
            raise DivergedError(
                f"{where}: {s.undone} merges in a row {NOT_FINITE} and were undone; {find_cause(updates)}"
            )
        made, commands = self.rule.merge(s.model, lane, again, ctx)
        if not is_sound(made, s.model):
            raise DivergedError(f"{where}: a merge of no answers at all {NOT_FINITE}; {find_cause(updates)}")
        facts = {"answers": len(heard), "nodes": [*updates], "largest": [*updates.values()]}
        return made, [Note("undone", facts, lane if ctx.parent is None else ctx.me), *commands]

    def _fill(self, s: LoopState[M], ctx: Context) -> list[Command]:
        out: list[Command] = []
        if s.owed is None and s.queue:
            s.owed, s.fresh = s.queue.pop(0), True
        if s.owed is not None and not s.open:
            rule, seen = self.rule, ctx.holding(s.owed, s.stop)
            assert is_inner(rule), "a rule below a parent adopts its models and reports"
            if s.fresh:
                made = rule.adopt(s.model, s.owed, seen)
                if not is_sound(made, s.model):
                    raise DivergedError(f"{_name_round(s, ctx)}: taking up the parent's model {NOT_FINITE}")
                s.model, s.fresh = made, False
            answer = rule.report(s.model, s.owed, seen)
            if answer is not None:
                out.append(Answer(s.owed, *answer))
                s.owed = None
                if s.queue:
                    return out + self._fill(s, ctx)
        if s.fresh:
            return out  # it waits for a boundary: what is open may end, but nothing new begins
        seen = ctx.holding(s.owed, s.stop)
        for lane in filterfalse(s.open.__contains__, self.rule.lanes(s.model, seen)):
            out += self._open(s, lane, seen)
        return out

    def _open(self, s: LoopState[M], lane: Lane, ctx: Context) -> list[Command]:
        s.model, commands = self.rule.plan(s.model, lane, ctx)
        s.serial += 1
        serial, until = s.serial, _ALL
        due: list[Task] = []
        out: list[Command] = []
        for c in commands:
            if type(c) is Task:
                c = Task(c.to, c.job, c.send, c.tag, c.slot, (lane, serial, len(due)))
                due.append(c)
            elif type(c) is Move:
                c = Move(c.src, c.dst, c.take, (lane, serial, len(out)))
            elif type(c) is Until:
                until = c
                continue
            out.append(c)
        if due:
            enough = len(due) if until.enough is None else min(until.enough, len(due))
            s.open[lane] = Barrier(serial, due, enough, until.after is not None, {}, {}, [])
            if until.after is not None:
                out.append(Wake(ctx.now + until.after, (lane, serial)))
        return out


def _cancel_rest(lane: Lane, b: Barrier) -> list[Command]:
    """What a barrier that ends no longer wants: the missing tasks and its alarm."""
    tasks: list[Command] = [Cancel(t.id) for t in b.missing.values()]
    return [*tasks, Cancel((lane, b.serial))] if b.alarm else tasks


def _name_round(s: LoopState[M], ctx: Context) -> str:
    """The round that is at hand, and whose it is."""
    return f"round {s.model.round + 1} of " + ("the cloud" if ctx.parent is None else f"node {ctx.me}")


def _unpack_all(replies: Sequence[Reply], ctx: Context) -> Sequence[Reply]:
    """Replies as rules read them; a table stays one unless its job packs: it does for all, or for none."""
    if type(replies) is Replies:
        sheet, place = replies.sheet, int(replies.places[0])
        task, first = sheet.tasks[place], sheet.find_result(place)
        assert first is not None
        if not unpacks(task.job) or task.job.unpack(first.body, task.send, ctx.models) is first.body:
            return replies
    return [_unpack(reply, ctx) for reply in replies]


def _unpack(reply: Reply, ctx: Context) -> Reply:
    """A reply as rules read it: some jobs send less than that, but what aggregators answer is open."""
    job = reply.task.job
    if reply.task.to > ctx.me or not unpacks(job):
        return reply
    body = job.unpack(reply.body, reply.task.send, ctx.models)
    return reply if body is reply.body else replace(reply, body=body)


def as_algorithm(given: Rule[M] | Algorithm[S]) -> Algorithm[S] | Rounds[M]:
    """An algorithm: what is given, or the loop around it when it is a rule."""
    return given if isinstance(given, Algorithm) else Rounds(given)
