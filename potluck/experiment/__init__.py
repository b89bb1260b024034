"""Experiments: described in one file, run, resumed and compared."""

from potluck.experiment.comparison import Comparison, compare
from potluck.experiment.config import Experiment
from potluck.experiment.runs import Run, load, resume, run

__all__ = ["Comparison", "Experiment", "Run", "compare", "load", "resume", "run"]
