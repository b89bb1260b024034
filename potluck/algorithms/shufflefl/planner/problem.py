"""What a user's devices hold, how fast they are, and what a plan of moves between them is worth.

A plan counts rows as [from, class, to]; rows that stay count on the diagonal, so that a plan says where all
of them end up. Its worth, in seconds, is the latency of the slowest device, plus the deviation of latencies
(unless `spread` is off), plus alpha times the worst imbalance: less is better. The paper's objectives (its
Figures 2 and 3) are I: `stay`; II: `spread` off; III: `spread` on, one alpha for all users; IV: an alpha of
the user's own (see `scaling`).

Imbalance is the Jensen-Shannon divergence, in nats, between a device's classes and those wanted, both as
shares: of counts, as printed, it would grow with the rows and outweigh latency on large devices only.
Transfers go through the user's gateway; both ends are busy for the whole path, with one transfer at a time.
Training time is per row, as Potluck's clock has it: whole batches, as printed, would let devices of less than
a batch compute for nothing. With `fixed`, a device that has rows takes so much longer, however many: its
model's ways. Then one without any doesn't train: it has no imbalance, and isn't in the deviation.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from potluck.authoring import require, role, value
from potluck.fleet.cost import TRAINING_FACTOR

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@value(eq=False)
class Problem:
    """One user: its devices, their rows by class, and what is asked of a plan."""

    counts: Ints  # [devices, classes] rows
    compute: Floats  # [devices] seconds of a forward pass of one row
    up: Floats  # [devices] bits per second, to the gateway
    down: Floats  # [devices] bits per second, from the gateway
    row_bits: float
    epochs: int = 1
    alpha: float = 1.0  # seconds that an imbalance of 1 counts for
    spread: bool = True  # whether the deviation of latencies counts
    share: Floats | None = None  # [classes] the mix that a device should have; left out: all alike
    fixed: Floats | None = None  # [devices] seconds of one that has rows; left out: all count as training

    def __post_init__(self) -> None:
        _check_counts(self.counts)
        devices, classes = self.counts.shape
        for name, unit in (
            ("compute", "seconds per row"),
            ("up", "bits per second"),
            ("down", "bits per second"),
        ):
            of = np.asarray(getattr(self, name))
            require(of.shape == (devices,), name, of.tolist(), f"give one for each of {devices} devices")
            require(_positive(of), name, of.tolist(), f"every device needs more than 0 {unit}")
        require(_positive(self.row_bits), "row_bits", self.row_bits, "a row has more than 0 bits")
        require(self.epochs >= 1, "epochs", self.epochs, "train for at least 1")
        require(0 <= self.alpha < np.inf, "alpha", self.alpha, "give 0 or more seconds per nat")
        if self.fixed is not None:
            fixed = np.asarray(self.fixed)
            good = fixed.shape == (devices,) and bool(np.all(np.isfinite(fixed)) and np.all(fixed >= 0))
            require(good, "fixed", fixed.tolist(), f"give 0 or more seconds for each of {devices} devices")
        if self.share is not None:
            share = np.asarray(self.share)
            good = share.shape == (classes,) and _positive(share) and abs(float(share.sum()) - 1) < 1e-9
            require(good, "share", share.tolist(), f"give {classes} shares above 0 that add up to 1")

    @property
    def devices(self) -> int:
        return len(self.counts)

    @property
    def classes(self) -> int:
        return int(self.counts.shape[1])

    @property
    def wanted(self) -> Floats:
        """The share of each class that a device should have."""
        return np.full(self.classes, 1 / self.classes) if self.share is None else np.asarray(self.share)

    @property
    def work(self) -> Floats:
        """[devices] seconds that training on one more row takes."""
        return TRAINING_FACTOR * self.epochs * np.asarray(self.compute, np.float64)

    @property
    def path(self) -> Floats:
        """[from, to] seconds that one row takes, of both ends; nothing to itself."""
        path: Floats = self.row_bits * (1 / np.asarray(self.up)[:, None] + 1 / np.asarray(self.down)[None, :])
        np.fill_diagonal(path, 0.0)
        return path


@value(eq=False)
class Solution:
    """A plan, what it is worth, and what it took to find."""

    plan: Ints  # [from, class, to]
    worth: float
    steps: int  # plans looked at; what one costs depends on the method
    done: bool = True  # whether the method ended by itself; False: at its limit


@role("planner")
class Planner(Protocol):
    """A way to find plans: whole rows, none lost, never worse than to stay, the same again for a key."""

    def solve(self, problem: Problem, key: int) -> Solution: ...


def stay(counts: Ints) -> Ints:
    """The plan that moves nothing."""
    devices, classes = counts.shape
    plan = np.zeros((devices, classes, devices), np.int64)
    plan[np.arange(devices), :, np.arange(devices)] = counts
    return plan


def count_held(plan: NDArray[np.number]) -> NDArray[np.number]:
    """[devices, classes] rows after a plan."""
    return np.asarray(plan.sum(0)).T


def latency(problem: Problem, plan: NDArray[np.number]) -> Floats:
    """[devices] seconds of transfers and training under a plan, in whole rows or in parts of them."""
    flow = plan.sum(1) * problem.path
    rows = plan.sum((0, 1))
    took: Floats = problem.work * rows + flow.sum(0) + flow.sum(1)
    return took if problem.fixed is None else took + np.where(rows > 0, problem.fixed, 0.0)


def imbalance(has: NDArray[np.number], wanted: Floats) -> Floats:
    """[devices] nats between the classes that devices have and those wanted; of an empty one, the worst.

    No device with rows is farther off than one that has all of them of the class least wanted.
    """
    total = has.sum(1, keepdims=True).astype(np.float64)
    shares = np.divide(has, total, out=np.zeros(has.shape), where=total > 0)
    shares[total[:, 0] == 0, wanted.argmin()] = 1.0
    middle = (shares + wanted) / 2
    own = shares * np.log(np.where(shares > 0, shares, 1.0) / middle)
    far: Floats = (own + wanted * np.log(wanted / middle)).sum(1) / 2
    return np.maximum(far, 0.0)


def find_imbalances(problem: Problem, has: NDArray[np.number]) -> Floats:
    """[devices] imbalances of those that train."""
    far = imbalance(has, problem.wanted)
    return far if problem.fixed is None else np.where(has.sum(1) > 0, far, 0.0)


def worth(problem: Problem, plan: NDArray[np.number]) -> float:
    """What a plan is worth, in seconds: less is better."""
    has = count_held(plan)
    return weigh(problem, latency(problem, plan), find_imbalances(problem, has), has.sum(1))


def weigh(problem: Problem, took: Floats, far: Floats, rows: NDArray[np.number]) -> float:
    """The objective, of latencies, imbalances and rows."""
    return float(took.max()) + find_spread(problem, took, rows) + problem.alpha * float(far.max())


def find_spread(problem: Problem, took: Floats, rows: NDArray[np.number]) -> float:
    """The deviation of the latencies of those that train; 0 where it doesn't count."""
    some = took if problem.fixed is None else took[rows > 0]
    return float(some.std()) if problem.spread and len(some) else 0.0


def choose_better(problem: Problem, plan: Ints, steps: int, done: bool = True) -> Solution:
    """A plan, or to stay where that is no worse."""
    rest = stay(problem.counts)
    here, there = worth(problem, rest), worth(problem, plan)
    return Solution(plan, there, steps, done) if there < here else Solution(rest, here, steps, done)


def _positive(of: float | NDArray[np.number]) -> bool:
    return bool(np.all(np.isfinite(of)) and np.all(np.asarray(of) > 0))


def _check_counts(counts: Ints) -> None:
    fix = "give whole rows as [devices, classes]"
    require(isinstance(counts, np.ndarray) and counts.ndim == 2, "counts", counts, fix)
    require(counts.shape[0] > 0, "counts", counts.shape, "a user needs at least one device")
    require(counts.shape[1] > 0, "counts", counts.shape, "there must be at least one class")
    require(
        counts.dtype.kind in "iu" and bool((counts >= 0).all()),
        "counts",
        counts.tolist(),
        f"{fix}, 0 or more",
    )
