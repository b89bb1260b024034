"""A rule inside a group of devices: what it says, as the rule that groups says it, and back what comes of it.

A rule knows nothing of the group that it trains. Whoever shares devices out to several such rules puts what
they say `into` the group, so that memories and notes of one aren't taken for those of another, and takes what
comes back `out` of it. Of a group of everybody, whose name is "", notes are those of the rule alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from potluck.core.messages import Command, Node, Note, Task
from potluck.core.rule import Got

NOTHING: Mapping[Node, object] = {}


def into(
    group: str, commands: Sequence[Command], me: Node, remarks: Mapping[Node, object] = NOTHING
) -> list[Command]:
    """Commands as the group's: tasks as `put_task` has them, and notes by its name."""
    done: list[Command] = []
    for c in commands:
        if isinstance(c, Task):
            c = put_task(group, c, remarks.get(c.to))
        elif isinstance(c, Note) and group:
            alone = c.group in (None, "", me)  # of the rule itself, not of a part of it
            c = replace(c, group=group if alone else f"{group} / {c.group}")
        done.append(c)
    return done


def put_task(group: str, task: Task, remark: object = None) -> Task:
    """A task in the group's own memory, with a remark of who groups beside its tag: `task.tag[1]`."""
    return replace(task, tag=(task.tag, remark), slot=(group, task.slot))


def out(got: Got) -> Got:
    """What came of a group's tasks, as the rule inside knows them."""
    return Got(
        [replace(r, task=_take_task(r.task)) for r in got.replies],
        [replace(x, what=_take_task(x.what)) if isinstance(x.what, Task) else x for x in got.lost],
    )


def _take_task(task: Task) -> Task:
    assert isinstance(task.slot, tuple), "a task that was put into a group"
    return replace(task, tag=task.tag[0], slot=task.slot[1])
