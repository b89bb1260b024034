"""What can happen to a conductor: the entries of its journal. Its state follows from these alone."""

from collections.abc import Hashable

from potluck.core.codec import value
from potluck.core.messages import Node, Spent, Why


@value(name="deploy.Begun")
class Begun:
    """Enough devices are there: the run begins."""

    wall: float  # of the real clock


@value(name="deploy.Came", eq=False)
class Came:
    """A device is there and has said what it holds; one that was there already may say something else."""

    node: Node
    rows: dict[str, int]
    labels: list[int]
    claims: dict[str, float]


@value(name="deploy.Measured", eq=False)
class Measured:
    """What a device's work has shown of it; from now on this is what algorithms are told."""

    node: Node
    claims: dict[str, float]


@value(name="deploy.Left")
class Left:
    """A device has been away for longer than patience lasts."""

    node: Node


@value(name="deploy.Answered", eq=False)
class Answered:
    """A device's report on its work; the report itself is behind the entry."""

    count: int  # which of the sender's items it was
    spent: Spent
    down: int  # bytes on the wire
    up: int


@value(name="deploy.Dropped")
class Dropped:
    """Work that won't be answered."""

    count: int
    why: Why


@value(name="deploy.Woke", eq=False)
class Woke:
    """An alarm went off."""

    tag: Hashable


@value(name="deploy.Looked")
class Looked:
    """Somebody may be free again for lanes that wait."""


@value(name="deploy.Due")
class Due:
    """It is time to evaluate."""


@value(name="deploy.Judged", eq=False)
class Judged:
    """A device's report on a served model; the report itself is behind the entry."""

    key: str


@value(name="deploy.Unjudged")
class Unjudged:
    """A served model that this device won't score."""

    key: str


@value(name="deploy.Halted")
class Halted:
    """The run is to end: its time is over, or its owner says so."""


Happening = (
    Begun | Came | Measured | Left | Answered | Dropped | Woke | Looked | Due | Judged | Unjudged | Halted
)
