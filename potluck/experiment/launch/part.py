"""A part of a command's runs: others compute the other parts, into the same folder.

Runs are dealt by their places in the list of all, so that a part is the same however much is there already.
"""

import re
from collections import Counter
from dataclasses import dataclass

from potluck.core.errors import AwaitingError, ConfigError


@dataclass(frozen=True)
class Part:
    """The I-th of N parts."""

    number: int  # from 1
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, turn: int) -> bool:
        return self.find(turn) == self.number

    def find(self, turn: int) -> int:
        """Whose a run is, by its place in the list of all."""
        return turn % self.of + 1

    def count(self, total: int) -> int:
        """How many of all are its own."""
        return len(range(self.number - 1, total, self.of))

    def explain_awaited(self, awaited: Counter[int], total: int) -> AwaitingError:
        """What it needs of other parts: so many trials of each."""
        others, missing = ", ".join(map(str, sorted(awaited))), awaited.total()
        lack = f"{missing} of {total} trials {'are' if missing > 1 else 'is'} missing"
        who = f"part{'s' * (len(awaited) > 1)} {others}"
        return AwaitingError(f"part {self}: {lack} ({who}): run those, then this again")


def read_part(text: str) -> Part:
    """`2/8`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f"part = {text!r}: write I/N, the I-th of N parts, such as 2/8")
    return Part(int(match[1]), int(match[2]))
