"""When a run ends, how often it is looked at, and where it stands."""

from typing import Literal, NamedTuple

from potluck.core.codec import value
from potluck.core.errors import ConfigError, require
from potluck.data import Shift, read_shift
from potluck.rules.serving import Weighed


@value
class StopAt:
    """When an experiment ends: at the first of these."""

    rounds: int | None = None
    seconds: float | None = None  # virtual
    device_seconds: float | None = None
    target: float | None = None  # mean accuracy of the headline view

    def __post_init__(self) -> None:
        for name in ("rounds", "seconds", "device_seconds"):
            value = getattr(self, name)
            require(value is None or value > 0, f"stop.{name}", value, "must be above 0")
        if self.rounds is None and self.seconds is None and self.device_seconds is None:
            raise ConfigError(
                "stop: set rounds, seconds or device_seconds (a target alone may never be reached)"
            )

    def share(self, rounds: int, seconds: float, device_seconds: float) -> float:
        """How far a run has come towards its nearest end, 0 to 1."""
        ends = ((rounds, self.rounds), (seconds, self.seconds), (device_seconds, self.device_seconds))
        return min(1.0, max(reached / wanted for reached, wanted in ends if wanted is not None))


@value
class EvaluateAt:
    """How often served models are scored: every so many rounds or virtual seconds; always at both ends."""

    rounds: int | None = None
    seconds: float | None = None
    panel: int = 200  # at most so many devices, always the same
    on: Literal["test", "validation"] = "test"  # on which rows; to choose settings, not on test rows
    shifts: tuple[Shift | float, ...] = ()  # of test rows, scored beside at the end; a share is of unseen
    weighed: Weighed | None = None  # also with devices' own priors

    def __post_init__(self) -> None:
        good = self.on in ("test", "validation")
        require(good, "evaluate.on", self.on, "must be 'test' or 'validation'")
        shares = [each for each in self.shifts if not isinstance(each, Shift)]
        require(all(0 <= s <= 1 for s in shares), "evaluate.shifts", shares, "must be shares from 0 to 1")
        distinct = len({read_shift(each) for each in self.shifts}) == len(self.shifts)
        require(distinct, "evaluate.shifts", list(self.shifts), "name each shift once")


class Progress(NamedTuple):
    """Where a run stands."""

    round: int
    time: float
    accuracy: float | None
    done: float  # share of the way to the nearest end, 0 to 1
