"""What algorithms say (commands) and what they hear (events).

Every message is a value: it can be stored, compared by hand in a test, and sent over a wire.
"""

from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, final

from potluck.core.codec import value
from potluck.core.trees import Tree

if TYPE_CHECKING:
    from potluck.core.job import Job

Node = int  # devices count from 0; aggregation points follow them
Lane = Hashable
TaskId = tuple[Lane, int, int]  # lane, serial of its barrier, place in it: given by the sender
Why = Literal["late", "gone", "bad", "refused"]


@final
@value(eq=False, light=True)
class Task:
    """Work for a device, or for an aggregator below: a closed value."""

    to: Node
    job: "Job"
    send: dict[str, Tree]
    tag: Any = None  # the sender's own remark; comes back with the reply
    slot: Hashable = None  # which of the device's memories the job reads and writes
    id: TaskId | None = None


@final
@value(eq=False, light=True)
class Tell:
    """A one-way message: queued like a Task, never answered, and it may vanish."""

    to: Node
    job: "Job"
    send: dict[str, Tree]
    slot: Hashable = None


@value(eq=False, light=True)
class Choice:
    """As what is served: several tasks, of which the device uses the one that a job names on the spot.

    The body of the job's result is the name; what the job measured is recorded beside it.
    """

    job: "Job"
    send: dict[str, Tree]  # what the job sees
    tasks: dict[str, Task]
    slot: Hashable = None  # which of the device's memories the job reads


@final
@value
class Move:
    """Rows that go from one device to another: all at once at its end, or none."""

    src: Node
    dst: Node
    take: tuple[tuple[int, int], ...]  # (label, how many); the source draws them by seed
    id: TaskId | None = None


@final
@value
class Until:
    """How long this barrier waits: a deadline in seconds, a number of replies, or for everyone."""

    after: float | None = None
    enough: int | None = None


@final
@value
class Cancel:
    """Drop a task, or an alarm by its tag, that is no longer wanted; a device is free of it at once.

    As an event: the parent no longer wants the task of this id.
    """

    id: Hashable


@final
@value
class Wake:
    """As a command: call me at this time. As an event: it is this time."""

    at: float
    tag: Hashable = None


@final
@value(eq=False, light=True)
class Note:
    """Something to record: a split, a tier, an anomaly."""

    name: str
    value: Any
    group: Any = None  # an aggregator's node, or a name


@final
@value(eq=False, light=True)
class Answer:
    """An aggregator's reply to its parent."""

    task: Task
    body: Tree  # as rules read it: unpacked, whatever devices sent
    weight: float
    metrics: Mapping[str, float] = field(default_factory=dict)  # means over those below
    why: Why | None = None  # there is none: the task is lost to the parent


@value(eq=False, light=True)
class Spent:
    """Seconds of a task: download, compute, upload."""

    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0

    @property
    def total(self) -> float:
        return self.down + self.compute + self.up


@final
@value(eq=False, light=True)
class Reply:
    """A task's result."""

    task: Task
    body: Tree
    weight: float
    metrics: Mapping[str, float]
    spent: Spent


@final
@value(eq=False, light=True)
class Lost:
    """A task or a move that will not be done: late, gone (device left), bad (update refused), refused.

    As a command: an answer came, but what was made of it had to be undone, so it counts as lost.
    """

    what: Task | Move
    why: Why


@final
@value
class Stop:
    """The experiment is over: only last tasks from here on."""


Command = Task | Tell | Move | Until | Cancel | Wake | Note | Answer | Lost
Event = Task | Tell | Cancel | Reply | Lost | Wake | Stop
