"""Which system should help, and why: every system's own advice, and whether any of it is a recommendation.

Thresholds come from this project's own studies where there are some (docs/results), else from the
papers' settings; the reason is beside each. What a study here didn't confirm is said with the advice, and
lowers no score: whether it holds on other data is what a pilot is for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from potluck.advice.together import Stack, find_stack
from potluck.algorithms import find_advisers
from potluck.core.advice import HELPS, NO_REASON, Advice, Adviser, Measured

ENOUGH = "plain FedAvg is enough"


@dataclass(frozen=True)
class Verdict:
    """All systems' advice, the strongest first."""

    advice: tuple[Advice, ...]
    advisers: Mapping[str, Adviser] = field(default_factory=dict)  # who gave it, by system
    stack: Stack | None = None  # of layers, where several inequalities were measured

    @property
    def first(self) -> Advice | None:
        """The one recommendation; None: plain FedAvg."""
        best = self.advice[0]
        return best if best.verdict == HELPS else None

    @property
    def runners_up(self) -> tuple[Advice, ...]:
        return tuple(a for a in self.advice if a.verdict != NO_REASON and a is not self.first)


def judge(measured: Measured) -> Verdict:
    """What every system says."""
    found = [(adviser.judge(measured), adviser) for adviser in find_advisers()]
    advice = sorted((own for own, _ in found), key=lambda own: -own.score)
    advisers = {own.system: adviser for own, adviser in found}
    return Verdict(tuple(advice), advisers, find_stack(advice, measured))
