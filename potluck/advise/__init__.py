"""Advice: what a federation is like, which system should help, and whether short pilots agree."""

from potluck.advise.measure import measure
from potluck.advise.recommendation import ENOUGH, Verdict, judge

__all__ = ["ENOUGH", "Verdict", "judge", "measure"]
