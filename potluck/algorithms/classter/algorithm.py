"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.classter.assignment import Schedule
from potluck.algorithms.classter.convergence import Convergence
from potluck.algorithms.classter.device.detect import Balanced, Detect
from potluck.algorithms.classter.device.distil import Distillation
from potluck.algorithms.classter.device.question import Question
from potluck.algorithms.classter.pace import Together
from potluck.algorithms.classter.rule import ClassWise
from potluck.authoring import Chance, Few, Objective, Seconds, Train, require
from potluck.jobs.switch import Personal, Prior

AVERAGE = (
    "updates of a detector that its mean reaches back over, which answers and teaches; 1: the last alone"
)
KEPT = "share of a device's rows that no detector trains on, where devices judge (distil.calibrate = devices)"


DETECT = Detect(contrast=0.0)
DISTIL = Distillation(every=200, epochs=20, lr=5e-4, temperature=1.0, calibrate="devices", start="detectors")
PERSONAL = Personal(switch=Prior())


def classter(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    detect: Annotated[
        Detect, "what detectors are trained for: contrast (0: without), temperature, augment"
    ] = DETECT,
    class_width: Annotated[float, "width of a detector, as a share of the general model's"] = 1.0,
    schedule: Annotated[
        Schedule, "which of its classes a device trains: the least trained; gather; random"
    ] = "least",
    distil: Annotated[
        Distillation, "every, epochs, lr, batch, temperature, calibrate, noise, start"
    ] = DISTIL,
    personal: Annotated[Personal, "epochs, lr, switch"] = PERSONAL,
    convergence: Annotated[Convergence, "window, tolerance"] = Convergence(),
    until_converged: Annotated[bool, "end training when all detectors have converged"] = False,
    deadline: Annotated[Seconds | None, "seconds"] = None,
    average: Annotated[Few, AVERAGE] = 10,
    kept: Annotated[Chance, KEPT] = 0.1,
) -> ClassWise:
    """A detector for every class, trained in rounds, and a model distilled from all of them."""
    jobs = make_jobs(local, detect, class_width, distil, personal, kept)
    return ClassWise(
        *jobs, clients, Together(), schedule, distil, convergence, until_converged, deadline, average
    )


def make_jobs(
    local: Train, detect: Objective, class_width: float, distil: Distillation, personal: Personal, kept: float
) -> tuple[Train, Train, Train, Question | None]:
    """The work of devices, of the server, of devices before they use its model, and what they are asked."""
    fix = "must be above 0 and at most 1: a detector is no larger than the general model"
    require(0 < class_width <= 1, "class_width", class_width, fix)
    fix = "must be at least 2: half of every batch is of the class"
    require(local.batch >= 2, "train.batch", local.batch, fix)
    one = replace(local.model, width=local.model.width * class_width, outputs=1)
    asks = distil.calibrate == "devices"
    detector = replace(local, model=one, objective=detect, sampler=Balanced(kept if asks else 0.0))
    question = Question(local.model, one, kept, isinstance(personal.switch, Prior)) if asks else None
    return detector, distil.job(local.model, one), personal.job(local), question
