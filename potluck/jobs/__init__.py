"""What a device does."""

from potluck.jobs.appraise import Appraise
from potluck.jobs.correct import Correct
from potluck.jobs.objective import CrossEntropy, Objective, Prox
from potluck.jobs.optim import SGD, Adam
from potluck.jobs.pick import Pick
from potluck.jobs.privacy import Private
from potluck.jobs.probe import LabelCounts, Probe
from potluck.jobs.sampling import Sampler, Shuffled
from potluck.jobs.tally import Tally
from potluck.jobs.thin import Thin
from potluck.jobs.train import Train, fine_tuned, used

__all__ = [
    "SGD",
    "Adam",
    "Appraise",
    "Correct",
    "CrossEntropy",
    "LabelCounts",
    "Objective",
    "Pick",
    "Private",
    "Probe",
    "Prox",
    "Sampler",
    "Shuffled",
    "Tally",
    "Thin",
    "Train",
    "fine_tuned",
    "used",
]
