"""Advice: what a federation is like, which system should help, and whether short pilots agree."""

from potluck.advise.measure import Measured, measure
from potluck.advise.rules import ENOUGH, Advice, Verdict, judge

__all__ = ["ENOUGH", "Advice", "Measured", "Verdict", "judge", "measure"]
