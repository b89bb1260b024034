"""What a parent asks for beside training (a check-in, a look at labels), answered at any time.

An errand waits for no boundary and changes nothing of the rule: the loop does it. A job says where
(`Placed`): with a memory, on the aggregator's own machine, which remembers for those below it; of rows, by
all who are below, whose answers become one. A rule may take some jobs itself, as rounds of its own (`Takes`).
"""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.job import Job, in_memory, trains
from potluck.core.messages import Answer, Cancel, Command, Lost, Reply, Task, Tell
from potluck.core.rule import Rule, Takes
from potluck.rules.as_one import fold_replies
from potluck.rules.wrap import unwrap

ERRAND: Final = "errand"  # the lane of its tasks


@value(frozen=False, eq=False)
class Errand:
    """One that is under way."""

    asked: Task
    due: list[Task]
    got: dict[int, Reply] = field(default_factory=dict)  # by place
    lost: dict[int, Lost] = field(default_factory=dict)


def is_errand(task: Task, rule: Rule) -> bool:
    """Whether the loop does it, instead of the rule."""
    own = unwrap(rule)
    return not trains(task.job) and not (isinstance(own, Takes) and isinstance(task.job, own.takes))


def begin_errand(task: Task, serial: int, ctx: Context) -> Errand:
    """Who is asked for it."""
    nodes = _find_doers(task.job, ctx)
    due = [Task(n, task.job, task.send, None, task.slot, (ERRAND, serial, i)) for i, n in enumerate(nodes)]
    return Errand(task, due)


def take_in(errand: Errand, place: int, e: Reply | Lost) -> list[Command]:
    """One more has answered, or won't: when nobody is waited for, the parent hears of it."""
    if isinstance(e, Reply):
        errand.got[place] = e
    else:
        errand.lost[place] = e
    if len(errand.got) + len(errand.lost) < len(errand.due):
        return []
    made = fold_replies([errand.got[i] for i in sorted(errand.got)])
    if made is None:
        return [Answer(errand.asked, None, 0.0, why=errand.lost[min(errand.lost)].why)]
    return [Answer(errand.asked, *made)]


def drop(errand: Errand) -> list[Command]:
    """It is called off."""
    return [Cancel(t.id) for i, t in enumerate(errand.due) if i not in errand.got and i not in errand.lost]


def pass_on(tell: Tell, ctx: Context) -> list[Command]:
    """What a parent tells, to whom it concerns."""
    return [replace(tell, to=n) for n in _find_doers(tell.job, ctx)]


def _find_doers(job: Job, ctx: Context) -> Sequence[int]:
    return [ctx.here] if in_memory(job) else [int(n) for n in ctx.children]
