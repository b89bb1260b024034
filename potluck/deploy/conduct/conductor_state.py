"""All of a conductor that changes while it runs: one value, which a snapshot stores."""

from collections.abc import Hashable
from dataclasses import field

from potluck.core.codec import value
from potluck.core.messages import Choice, Node, Task
from potluck.engine.accounts import Accounts
from potluck.engine.drought import Drought
from potluck.engine.point import PointState
from potluck.engine.queues import QueueState
from potluck.engine.timeline import Plain


@value(name="deploy.Member", frozen=False, eq=False)
class Member:
    """What is known of a device that has come."""

    rows: dict[str, int]  # by part
    labels: list[int]  # train rows by class
    claims: dict[str, float]
    there: bool = True
    bad: int = 0  # reports that had to be refused, in a row
    banned: float = 0.0  # nothing is asked of it before this time


@value(name="deploy.Ask", eq=False)
class Ask:
    """A served model that a device has been asked to score."""

    node: Node
    view: str
    offer: Task | Choice


@value(name="deploy.OpenEvaluation", frozen=False, eq=False)
class OpenEvaluation:
    """An evaluation whose scores are still coming."""

    serial: int
    round: int
    time: float
    asks: dict[str, Ask]  # by key
    found: list[tuple[Node, str, dict[str, float], dict[str, float | str] | None]] = field(
        default_factory=list
    )


@value(name="deploy.ConductorState", frozen=False, eq=False)
class ConductorState:
    """Where a deployed run stands. What has an owner is a value of its own, which the owner changes."""

    identity: str  # of the experiment and of the federation
    run: str  # 128 random bits: a run that is begun anew must not meet old answers
    point: PointState
    queues: QueueState
    accounts: Accounts
    members: dict[Node, Member] = field(default_factory=dict)
    counted: dict[Node, dict[Hashable, str]] = field(default_factory=dict)  # by slot: what a memory follows
    alarms: dict[Hashable, tuple[int, float]] = field(default_factory=dict)  # by tag: serial and time
    drought: Drought = field(default_factory=Drought)
    evaluations: int = 0
    open: dict[int, OpenEvaluation] = field(default_factory=dict)
    evaluated: tuple[int, float] | None = None  # round and time of the last evaluation
    accuracy: float | None = None
    timeline: list[Plain] = field(default_factory=list)
    began: float = 0.0  # by the real clock
    now: float = 0.0  # seconds since the run began, at the last entry
    records: int = 0  # length of their log
    begun: bool = False
    stopping: bool = False
    closing: bool = False  # the last evaluation is under way
    finished: bool = False

    @classmethod
    def begin(cls, identity: str, run: str, devices: int, root: Node) -> "ConductorState":
        """Of a run that hasn't begun."""
        return cls(identity, run, PointState(), QueueState.begin([root]), Accounts.begin(devices))
