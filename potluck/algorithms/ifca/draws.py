"""Which draw of first models training begins with: one among which devices spread out."""

from collections import Counter
from collections.abc import Sequence

from potluck.core.codec import value


@value
class Draw:
    """First models by the key that they follow from, and how devices chose among them."""

    key: int
    number: int = 1  # among all that were tried
    shares: tuple[float, ...] = ()  # of the devices that were heard, a model each, the least first


@value
class Tryout:
    """The draw that devices are asked about, and the most even one of those before."""

    now: Draw
    best: Draw | None = None


def share_out_choices(choices: Sequence[int], models: int) -> tuple[float, ...]:
    """The share of the choices that each model has, the least first; all 0 if nobody chose."""
    count = Counter(choices)
    return tuple(sorted(count[k] / max(1, len(choices)) for k in range(models)))


def is_even(choices: Sequence[int], models: int, least: float) -> bool:
    """Whether every model has this share of the choices, or as even a one as so few devices allow."""
    fewest = min(Counter(choices)[k] for k in range(models))
    return fewest > 0 and (fewest / len(choices) >= least or fewest == len(choices) // models)


def find_default_share(models: int) -> float:
    """The authors' 0.35 of two models and 0.1 of four; for other numbers 0.4 of an even share, as of four."""
    return 0.35 if models == 2 else 0.4 / models
