"""What a device does."""

from potluck.jobs.correct import Correct
from potluck.jobs.kept import Kept
from potluck.jobs.objective import CrossEntropy, Objective, Prox
from potluck.jobs.optim import SGD, Adam
from potluck.jobs.privacy import Private
from potluck.jobs.probe import LabelCounts, LabelSet, Probe
from potluck.jobs.remember import Remember
from potluck.jobs.sampling import AtMost, InPart, Sampler, Shuffled
from potluck.jobs.tally import Tally
from potluck.jobs.train import Train, fine_tune, use_model

__all__ = [
    "SGD",
    "Adam",
    "AtMost",
    "Correct",
    "CrossEntropy",
    "InPart",
    "Kept",
    "LabelCounts",
    "LabelSet",
    "Objective",
    "Private",
    "Probe",
    "Prox",
    "Remember",
    "Sampler",
    "Shuffled",
    "Tally",
    "Train",
    "fine_tune",
    "use_model",
]
