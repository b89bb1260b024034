"""What a device does."""

from potluck.jobs.anchored import Anchored
from potluck.jobs.appraise import Appraise
from potluck.jobs.contrast import Contrast
from potluck.jobs.correct import Correct
from potluck.jobs.kept import Kept
from potluck.jobs.masked import Deferring, Masked
from potluck.jobs.moon import Moon
from potluck.jobs.objective import CrossEntropy, Objective, Prox
from potluck.jobs.optim import SGD, Adam
from potluck.jobs.own_part import OwnPart
from potluck.jobs.pick import Pick
from potluck.jobs.privacy import Private
from potluck.jobs.probe import LabelCounts, LabelSet, Probe
from potluck.jobs.remember import Remember
from potluck.jobs.sampling import Sampler, Shuffled
from potluck.jobs.spared import Spared
from potluck.jobs.tally import Tally
from potluck.jobs.thin import Thin
from potluck.jobs.train import Train, fine_tuned, used

__all__ = [
    "SGD",
    "Adam",
    "Anchored",
    "Appraise",
    "Contrast",
    "Correct",
    "CrossEntropy",
    "Deferring",
    "Kept",
    "LabelCounts",
    "LabelSet",
    "Masked",
    "Moon",
    "Objective",
    "OwnPart",
    "Pick",
    "Private",
    "Probe",
    "Prox",
    "Remember",
    "Sampler",
    "Shuffled",
    "Spared",
    "Tally",
    "Thin",
    "Train",
    "fine_tuned",
    "used",
]
