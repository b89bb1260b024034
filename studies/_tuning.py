"""How the studies of learning rates alone were tuned: every rate of a grid once, with the first seed."""

from collections.abc import Sequence
from typing import Any


def try_rates(rates: Sequence[float], length: float = 1.0, seed: int = 1) -> dict[str, Any]:
    """[tune] with these rates and nothing around the best, as published; `length` is that of a trial."""
    grid = {"train": {"lr": list(rates)}}
    return {"trials": len(rates), "refine": 0, "seeds": [seed], "length": length, "grid": grid}
