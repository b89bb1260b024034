"""The rows that there are."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GOLDEN = 0.6180339887
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """What is tried, how often, and how to try it once."""

    name: str
    title: str
    count: int
    quick: int
    attempt: Callable[[int, Path], None]

    def list_quick(self):
        """Numbers for every change: spread over all that there are, and over what repeats among them."""
        return [int(i * GOLDEN % 1 * self.count) for i in range(self.quick)]


def list_names():
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith(("_", "test_")))


def load_row(name):
    module = importlib.import_module(f"campaign.{name}")
    return Row(name, module.TITLE, module.COUNT, module.QUICK, module.attempt)
