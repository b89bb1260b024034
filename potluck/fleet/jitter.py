"""How devices change from minute to minute: by counter, so nothing is stored and no order matters."""

import math
from dataclasses import dataclass

from potluck.core.keys import derive
from potluck.fleet.validation import check, read_number


@dataclass(frozen=True)
class Jitter:
    """Factors of a device's rates and of its time a sample, drawn anew for each slot of the virtual clock.

    A task has the factors of the slot in which it starts, to its end. Rates, up and down alike, follow
    ShuffleFL's Eq. 15 with x ~ N(1, rates): x, but at most 2, and 1 where x <= 0 (its printed pieces leave
    0 < x < 1 open). Time a sample is log-normal about 1. Only devices change; what they claim doesn't.
    """

    key: int
    every: float = 60.0  # seconds of a slot
    rates: float = 0.2  # deviation
    compute: float = 0.0  # deviation of the logarithm

    def __post_init__(self) -> None:
        check("jitter.every", self.every, 0 < read_number(self.every) < math.inf, "give seconds, above 0")
        for name, value in (("rates", self.rates), ("compute", self.compute)):
            check(f"jitter.{name}", value, 0 <= read_number(value) < math.inf, "give a deviation, at least 0")

    def factors(self, node: int, when: float) -> tuple[float, float]:
        """Of time a sample, and of rates."""
        bits = derive(self.key, node, int(when // self.every))
        radius = math.sqrt(-2 * math.log1p(-(bits >> 32) * 2.0**-32))  # Box-Muller: two normals of one hash
        angle = 2 * math.pi * (bits & 0xFFFFFFFF) * 2.0**-32
        x = 1 + self.rates * radius * math.cos(angle)
        return math.exp(self.compute * radius * math.sin(angle)), min(x, 2.0) if x > 0 else 1.0
