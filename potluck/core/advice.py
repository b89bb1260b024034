"""When a system should help: what is measured of a federation, and what the system says to that.

A system says it in a constant ADVISER: of `advice.py` in its folder, or of its own file. It turns what was
measured into a strength, which is 1 where the system should begin to pay, and which `score` makes comparable.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import Json

Ints = NDArray[np.int64]

HELPS, MAY_HELP, NO_REASON = "helps", "may help", "no reason"
HELPS_FROM, MAY_FROM = 0.5, 0.3  # strengths of 1 and 0.5: half of what would pay is worth a try


@dataclass(frozen=True)
class Labels:
    """Who holds which classes; distances are total variation, less what dealing by chance would give."""

    skew: float  # of devices' mixes from everybody's
    unseen: float  # share of test rows whose class the device doesn't train on
    gini: float  # of rows a device: 0 all have as many, 1 one has all


@dataclass(frozen=True, eq=False)
class Conflict:
    """Whether clients contradict each other: what setting groups apart would bring a probe."""

    groups: int  # 1: none
    explained: float  # share of what sets clients' class means apart
    pooled: float  # accuracy of one probe for all
    apart: float  # ... of one for each group
    chance: float  # the most that rows dealt anew gain so
    member: Ints  # [clients] group of each

    @property
    def gain(self) -> float:
        """In accuracy, beyond chance."""
        return self.apart - self.pooled - max(self.chance, 0.0)

    def measure_alike(self, owner: NDArray[np.integer]) -> float | None:
        """How far clients of one owner [clients, -1: nobody's] are in one group: 1 always, 0 as by chance.

        None where no two that were looked at have one owner.
        """
        owned = owner >= 0
        cells = np.unique(np.stack([owner[owned], self.member[owned]]), axis=1, return_counts=True)[1]
        pairs = _count_pairs(np.unique(owner[owned], return_counts=True)[1])
        if not pairs:
            return None
        chance = _count_pairs(np.bincount(self.member)) / _count_pairs(np.array([len(self.member)]))
        return 1.0 if chance == 1 else (_count_pairs(cells) / pairs - chance) / (1 - chance)


@dataclass(frozen=True)
class Speeds:
    """How unequal devices are; spreads are the 95th over the 5th percentile."""

    compute: float
    links: float
    straggling: float  # 95th percentile of a task's time over the median
    task_seconds: float  # median, with the cloud
    online: float  # mean share of devices


@dataclass(frozen=True)
class Users:
    """People with several devices."""

    several: int  # users who have two or more
    share: float  # of all devices, that are theirs
    skew: float  # of their devices' labels from the user's own mix, less chance
    spread: float  # of their devices' training times: slowest over fastest, median user
    saved: float  # seconds that a round would be shorter if a user's devices took equally long, median user
    alike: float | None  # whether a user's devices are in one group: see `Conflict.measure_alike`
    together: bool  # whether a user's devices are below one edge, if any


@dataclass(frozen=True)
class Memory:
    """Whether devices can train the full model, in time."""

    needed: float  # bytes
    short: float  # share of devices that have less
    late: float  # ... that take more than twice the median task
    rescued: float  # share that can't train it, or are late, but could train a smaller one in time
    resizable: bool  # whether the model comes in smaller widths at all


@dataclass(frozen=True)
class Edges:
    """Edges between devices and the cloud."""

    count: int
    devices: float  # below an edge, median
    nearer: float  # latency to the cloud over that to the edge
    saves: float  # a task with the cloud over one with the edge, median device
    idle: float  # share of time in which edges would wait, for the cloud and for slower edges
    straggling: float  # slowest device over the median of its edge, median edge
    skew: float  # of edges' labels from everybody's, less chance
    alike: float | None  # whether an edge's devices are in one group


@dataclass(frozen=True, eq=False)
class Measured:
    """All that a system may know of a federation when it gives advice."""

    devices: int
    looked_at: Ints  # which devices
    classes: int
    server: int  # rows of the server's own
    labels: Labels
    conflict: Conflict
    speeds: Speeds
    memory: Memory
    users: Users | None
    edges: Edges | None


@dataclass(frozen=True)
class AsLayer:
    """A system as one layer of several, where it answers one inequality of several."""

    name: str  # in an experiment's `layers`
    score: float  # 0 to 1: how much the layer has to mend, whatever the system does beside
    why: str
    settings: Mapping[str, Json] = field(default_factory=dict)  # of [layer.NAME]


@dataclass(frozen=True)
class Advice:
    """What a system says of itself for one federation."""

    system: str  # as its paper spells it
    algorithm: str  # that would be run
    score: float  # 0 to 1
    why: str
    evidence: str  # what was seen of it in this project's studies
    settings: Mapping[str, Json] = field(default_factory=dict)  # of [algorithms.NAME], as would be chosen
    clients: int = 0  # devices a round that it takes, at least
    server: bool = False  # whether it needs rows at the server
    layer: AsLayer | None = None  # None: it is no layer there

    @property
    def verdict(self) -> str:
        if self.score >= HELPS_FROM:
            return HELPS
        return MAY_HELP if self.score >= MAY_FROM else NO_REASON


@dataclass(frozen=True)
class Arm:
    """One algorithm that a pilot tries; the table of the experiment's file goes before these settings."""

    algorithm: str
    settings: Mapping[str, Json]


class Adviser(ABC):
    """One system's rule of advice, and how it is tried."""

    @abstractmethod
    def judge(self, measured: Measured) -> Advice:
        """What the system has to offer there, from what was measured and nothing else."""

    def plan_pilot(self, advice: Advice, measured: Measured, rounds: int, clients: int) -> tuple[Arm, ...]:
        """What to try in the time of so many rounds with so many clients, the advised algorithm first."""
        return (Arm(advice.algorithm, advice.settings),)


def score(strength: float) -> float:
    """0.5 at a strength of 1, and never 1, so that strengths stay comparable."""
    return float(1 - 2.0**-strength)


def _count_pairs(sizes: NDArray[np.integer]) -> int:
    """Pairs within groups of these sizes."""
    return int((sizes * (sizes - 1) // 2).sum())
