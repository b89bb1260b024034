"""Fed-RAC's settings: what an experiment may write in [algorithms.fedrac], a table for what belongs together.

Each table checks itself; `FedRACSettings` checks what concerns several, or one and local training.
"""

from collections.abc import Sequence
from math import inf
from typing import Annotated, Final, Literal, get_args

import numpy as np

from potluck.algorithms.fedrac.bounds import Landscape
from potluck.algorithms.fedrac.clustering.methods import Method
from potluck.algorithms.fedrac.clustering.resources import WEIGHTS, Ints, check_weights
from potluck.authoring import Few, Train, nearest, require, value
from potluck.core.ranges import MOST, FollowsRun

Dimension = Literal["width", "depth"]
Criterion = Literal["able", "surrogate", "bound"]
Sharing = Literal["own", "down"]
Use = Literal["tier", "known"]
ENDLESS: Final = MOST  # rounds of a run that ends by seconds alone


def _require_share(key: str, share: float) -> None:
    require(0 < share < 1, key, share, "must be above 0 and below 1, such as 0.5")


def _require_above_zero(key: str, number: float) -> None:
    require(number > 0, key, number, "must be above 0, such as 1.0")


def _require_known(key: str, choice: str, names: Sequence[str]) -> None:
    require(choice in names, key, choice, nearest(str(choice), tuple(names)))


@value
class Clustering:
    """Which devices are alike, and how many tiers they make."""

    method: Annotated[Method, "what finds clusters: kmeans, dbscan or optics (with fewer = 0)"] = "kmeans"
    k: Annotated[Few | None, "how many tiers; left out: as the Dunn index says, less `fewer`"] = None
    fewer: Annotated[int, "tiers fewer than clusters, but at least two"] = 1
    smallest: Annotated[int, "clusters with fewer devices are merged"] = 5
    weights: Annotated[tuple[float, float, float], "of speed, rate and memory; 1 together"] = WEIGHTS

    def __post_init__(self) -> None:
        _require_known("method", self.method, get_args(Method))
        require(self.k is None or self.k >= 1, "k", self.k, "must be at least 1 tier, or left out")
        require(self.fewer >= 0, "fewer", self.fewer, "must be 0 or more: tiers fewer than clusters")
        require(self.smallest >= 1, "smallest", self.smallest, "must be at least 1: devices of a tier")
        check_weights(self.weights)


@value
class ModelSizes:
    """How big the tiers' models are."""

    alpha: Annotated[float, "size of a tier's model, as a share of the next richer one's"] = 0.5
    by: Annotated[Dimension, "what is smaller: width or depth"] = "width"
    leave_out: Annotated[bool, "go on without devices that can't hold any model"] = False

    def __post_init__(self) -> None:
        _require_share("alpha", self.alpha)
        _require_known("by", self.by, get_args(Dimension))


@value
class TimeLimits:
    """How long tiers may train, and how far they meet devices that take longer."""

    mar: Annotated[float | None, "seconds for all rounds of everybody; left out: as everybody needs"] = None
    kappa: Annotated[float, "time of a tier, as a share of the next poorer one's"] = 0.5
    least_epochs: Annotated[
        int | None, "of the last tier, to which they fall evenly; left out: all alike"
    ] = None
    least_rows: Annotated[float, "share of its rows that a device trains on at least if it is slow"] = 0.5

    def __post_init__(self) -> None:
        _require_share("kappa", self.kappa)
        require(self.mar is None or 0 < self.mar < inf, "mar", self.mar, "must be above 0, or left out")
        require(0 < self.least_rows <= 1, "least_rows", self.least_rows, "must be a share above 0, up to 1")
        low = self.least_epochs
        require(low is None or low >= 1, "least_epochs", low, "must be at least 1, or left out")


@value
class Admission:
    """Whom a tier takes of those who can train in time."""

    judge: Annotated[
        Criterion,
        "all of them (able), or those near their cluster with even losses (surrogate), or by bounds (bound)",
    ] = "able"
    delta: Annotated[float, "most mean loss of a tier, in losses of a guess; of `bound`: most precision"] = (
        1.0
    )
    theta: Annotated[float, "most deviation of a member from it, 1.2 times as much in each poorer tier"] = 1.0

    def __post_init__(self) -> None:
        _require_known("judge", self.judge, get_args(Criterion))
        _require_above_zero("delta", self.delta)
        _require_above_zero("theta", self.theta)


@value
class TierDistillation:
    """What followers learn from a richer tier's model."""

    enabled: Annotated[bool, "whether they are taught at all"] = False
    a: Annotated[float, "how much labels count beside what the teacher says"] = 0.5
    temperature: Annotated[float, "softens teacher and student"] = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.a <= 1, "a", self.a, "must be between 0 (the teacher alone) and 1 (labels)")
        fix = "must be above 0, such as 3.0"
        require(0 < self.temperature < inf, "temperature", self.temperature, fix)


@value
class TierSchedule:
    """In which order tiers train."""

    chained: Annotated[bool, "each tier is taught by the next richer one, one after another"] = False
    head_start: Annotated[
        int | Literal["all"] | None,
        "rounds of the leader before the others begin; left out: all if they are taught, else none",
    ] = None

    def __post_init__(self) -> None:
        start = self.head_start
        fix = "must be 0 or more of the leader's rounds, or 'all'"
        require(start in (None, "all") or (isinstance(start, int) and start >= 0), "head_start", start, fix)
        fix = "tiers of a chain train one after another; leave it out, or set chained = false"
        require(not (isinstance(start, int) and self.chained), "head_start", start, fix)


@value
class Mixing:
    """What tiers' models have in common: each is a part of the next richer one, layer by layer."""

    enabled: Annotated[bool, "whether to make one model of all at the end (view `global`)"] = False
    back: Annotated[float, "how far models go to that one after every round: from 0, not at all, to 1"] = 0.0
    leader_weight: Annotated[float, "how much more the leader counts in it"] = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.back <= 1, "back", self.back, "must be between 0 (not at all) and 1 (all the way)")
        _require_above_zero("leader_weight", self.leader_weight)

    @property
    def nested(self) -> bool:
        """Whether tiers' models begin as parts of one: only then do their channels mean the same."""
        return self.enabled or self.back > 0


@value
class Verification:
    """Whether devices are believed."""

    enabled: Annotated[bool, "measure what devices claim, and move those that are late too often"] = True
    tolerance: Annotated[float, "by which a claim may be off, as a share"] = 0.2
    patience: Annotated[int, "rounds in a row that a device may be late"] = 3
    remeasure: Annotated[int, "rounds of a tier between two trials of its members; 0: only at first"] = 10

    def __post_init__(self) -> None:
        _require_above_zero("tolerance", self.tolerance)
        require(self.patience >= 1, "patience", self.patience, "must be at least 1: rounds late in a row")
        fix = "must be 0 (never) or more rounds of a tier"
        require(self.remeasure >= 0, "remeasure", self.remeasure, fix)


@value
class FedRACSettings:
    """All of them; what runs in a tier is `local`."""

    local: Train = Train()
    rounds: Annotated[
        int | tuple[int, ...] | None, FollowsRun(), "of each tier; or of the leader, the next one and so on"
    ] = None
    clustering: Annotated[Clustering, "which devices are alike"] = Clustering()
    sizes: Annotated[ModelSizes, "how big the tiers' models are"] = ModelSizes()
    time: Annotated[TimeLimits, "how long tiers may train"] = TimeLimits()
    admission: Annotated[Admission, "whom a tier takes"] = Admission()
    share: Annotated[
        Sharing, "who trains a tier's model: its members (own), or richer devices with time left, too (down)"
    ] = "down"
    use: Annotated[
        Use,
        "what devices use: their tier's model (tier), or that and all poorer ones, of each class by the rows "
        "of it that each has learnt from (known)",
    ] = "known"
    landscape: Annotated[Landscape, "what the bounds assume of losses"] = Landscape()
    schedule: Annotated[TierSchedule, "in which order tiers train"] = TierSchedule()
    distillation: Annotated[TierDistillation, "what followers learn from a richer tier"] = TierDistillation()
    mixing: Annotated[Mixing, "one model of all tiers' layers"] = Mixing()
    verification: Annotated[Verification, "whether devices are believed"] = Verification()
    by_class: Annotated[bool, "record what F1 is made of"] = False

    def __post_init__(self) -> None:
        fix = "give at least 1 round, or numbers for the leader, the next tier and so on"
        given = self.rounds
        rounds = min(given, default=0) if isinstance(given, tuple) else 1 if given is None else given
        require(rounds >= 1, "rounds", self.rounds, fix)
        fix = "work is given in epochs here, since tiers reduce them; set train.epochs instead"
        require(self.local.steps is None, "train.steps", self.local.steps, fix)
        most, low = self.local.epochs, self.time.least_epochs
        require(most >= 1, "train.epochs", most, "must be at least 1")
        require(low is None or low <= most, "time.least_epochs", low, f"must be at most train.epochs, {most}")
        private = self.local.privacy is not None
        fix = "asks devices for their labels, which train.privacy doesn't cover; take use = 'tier'"
        require(not (self.use == "known" and private), "use", self.use, fix)

    @property
    def head_start(self) -> int | None:
        """Rounds of the leader before the others begin; None: all."""
        given = self.schedule.head_start
        if given is None and not self.distillation.enabled:
            return 0
        return given if isinstance(given, int) else None

    @property
    def at_once(self) -> bool:
        """Whether all tiers train in the same rounds from the first to the last."""
        return self.share == "down" and self.head_start == 0 and not self.schedule.chained

    def list_rounds(self, tiers: int) -> list[int]:
        """Rounds of each tier; the last number is for all others too."""
        given = self.rounds if isinstance(self.rounds, tuple) else (self.rounds or ENDLESS,)
        return [given[min(tier, len(given) - 1)] for tier in range(tiers)]

    def list_epochs(self, tiers: int) -> Ints:
        """Local epochs of each tier: the same, or falling evenly to the least."""
        first, last = self.local.epochs, self.time.least_epochs
        return np.rint(np.linspace(first, first if last is None else last, tiers)).astype(np.int64)
