"""Advice: what a federation is like, which system should help, and whether short pilots agree."""

from potluck.advice.advised import Advised, advise
from potluck.advice.measure import measure
from potluck.advice.recommendation import ENOUGH, Verdict, judge

__all__ = ["ENOUGH", "Advised", "Verdict", "advise", "judge", "measure"]
