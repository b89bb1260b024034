"""Experiments: described in one file, run, resumed, compared, tuned and studied."""

from potluck.experiment.compared import Comparison
from potluck.experiment.comparison import compare, resume_comparison
from potluck.experiment.runs import Run, load, resume, run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.tune import tune
from potluck.experiment.tuning import Tuning

__all__ = [
    "Comparison",
    "Experiment",
    "Run",
    "Tuning",
    "compare",
    "load",
    "resume",
    "resume_comparison",
    "run",
    "tune",
]
