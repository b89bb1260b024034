"""When a run ends, how often it is looked at, and where it stands."""

from typing import NamedTuple

from potluck.codec import value
from potluck.errors import ConfigError


@value
class StopAt:
    """When an experiment ends: at the first of these."""

    rounds: int | None = None
    seconds: float | None = None  # virtual
    device_seconds: float | None = None
    target: float | None = None  # mean accuracy of the headline view

    def __post_init__(self) -> None:
        if self.rounds is None and self.seconds is None and self.device_seconds is None:
            raise ConfigError(
                "stop: set rounds, seconds or device_seconds (a target alone may never be reached)"
            )


@value
class EvaluateAt:
    """How often served models are scored: every so many rounds or virtual seconds; always at both ends."""

    rounds: int | None = None
    seconds: float | None = None
    panel: int = 200  # at most so many devices, always the same


class Progress(NamedTuple):
    """Where a run stands."""

    round: int
    time: float
    accuracy: float | None
    done: float  # share of the way to the nearest end, 0 to 1
