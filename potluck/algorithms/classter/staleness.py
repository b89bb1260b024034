"""How much an answer counts that comes when it comes: ClassTer's hinge, wider in critical learning periods.

A model's progress is the sum of how far its loss fell on the devices that answered (AFGN). As long as answers
bring much, compared with the most that one ever brought, slow devices are waited for: their answers count in
full up to three deviations beyond the mean duration. Later, whoever takes longer than the mean is late, and
an answer that is late and stale counts less.
"""

from typing import Literal

from potluck.authoring import nearest, require, value

Period = Literal["increment", "cumulative", "off"]


@value(eq=False)
class Progress:
    """How one model has come on."""

    total: float = 0.0  # AFGN
    gain: float = 0.0  # what the last answer added to it
    most: float = 0.0  # that any answer ever added
    turns: tuple[float, ...] = ()  # the last second differences of the total (Trps), oldest first
    answers: int = 0

    def after(self, gain: float, window: int) -> "Progress":
        """With one answer more; `gain`: how far the loss fell there, times its share of the samples."""
        gain = max(0.0, gain)
        turns = (*self.turns, gain - self.gain)[-window:] if self.answers else ()
        return Progress(self.total + gain, gain, max(self.most, gain), turns, self.answers + 1)


@value(eq=False)
class Durations:
    """Mean and deviation of how long answers took, as they come (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean

    def after(self, seconds: float) -> "Durations":
        count, off = self.count + 1, seconds - self.mean
        mean = self.mean + off / count
        return Durations(count, mean, self.squares + off * (seconds - mean))

    @property
    def deviation(self) -> float:
        return (self.squares / self.count) ** 0.5 if self.count else 0.0


@value
class CriticalHinge:
    """The share of an answer in its model."""

    alpha: float = 0.5  # of an answer in time
    slope: float = 10.0  # a
    patience: int = 4  # b: versions that even a late answer may be behind
    period: Period = "increment"  # what tells a critical period
    clamp: bool = True  # False: as printed, negative for late answers that are hardly stale
    window: int = 10  # second differences that are averaged
    warm_up: int = 5  # answers that are critical whatever they bring
    threshold: float = 0.0  # of that average

    def __post_init__(self) -> None:
        known = ("increment", "cumulative", "off")
        require(0 < self.alpha <= 1, "alpha", self.alpha, "must be above 0 and at most 1, such as 0.5")
        require(self.slope >= 0, "slope", self.slope, "must be 0 or more, such as 10")
        require(self.patience >= 0, "patience", self.patience, "must be 0 or more, such as 4")
        require(self.window >= 1, "window", self.window, "must be at least 1, such as 10")
        zero = not self.clamp and any(self.slope * k == 1 for k in range(1, self.patience + 1))
        require(not zero, "slope", self.slope, "divides by 0 with clamp = false; choose another, such as 10")
        require(self.period in known, "period", self.period, nearest(str(self.period), known))

    def critical(self, progress: Progress) -> bool:
        """Whether the model's progress still speeds up; told, and drawn, but not used by the hinge itself."""
        if progress.answers <= self.warm_up:
            return True
        return sum(progress.turns) / max(1, len(progress.turns)) > self.threshold

    def openness(self, progress: Progress, best: float) -> float:
        """rho, 0 to 1; `best`: the largest total of any model."""
        if self.period == "cumulative":
            return progress.total / best if best > 0 else 1.0
        return progress.gain / progress.most if progress.most > 0 else 1.0

    def limit(self, durations: Durations, openness: float) -> float:
        """Seconds from which on an answer is late."""
        return durations.mean + 3 * openness * durations.deviation

    def share(self, late: bool, staleness: int) -> float:
        """beta"""
        if not late:
            return self.alpha
        behind = staleness - self.patience
        return self.alpha / (self.slope * (max(0, behind) if self.clamp else behind) + 1)
