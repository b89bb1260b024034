"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated

from potluck.algorithms.classter.assignment import Schedule
from potluck.algorithms.classter.convergence import Convergence
from potluck.algorithms.classter.device.detect import Balanced, Detect
from potluck.algorithms.classter.device.distil import Distillation
from potluck.algorithms.classter.pace import Together
from potluck.algorithms.classter.rule import ClassWise
from potluck.authoring import Objective, Seconds, Train, require
from potluck.jobs.switch import Personal


def classter(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    detect: Annotated[
        Detect, "what detectors are trained for: contrast (0: without), temperature, augment"
    ] = Detect(),
    class_width: Annotated[float, "width of a detector, as a share of the general model's"] = 1.0,
    schedule: Annotated[
        Schedule, "which of its classes a device trains: the least trained; gather; random"
    ] = "least",
    distil: Annotated[
        Distillation, "every, epochs, lr, batch, temperature, calibrate, noise"
    ] = Distillation(),
    personal: Annotated[Personal, "epochs, lr, switch"] = Personal(),
    convergence: Annotated[Convergence, "window, tolerance"] = Convergence(),
    until_converged: Annotated[bool, "end training when all detectors have converged"] = False,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> ClassWise:
    """A detector for every class, trained in rounds, and a model distilled from all of them."""
    work = make_jobs(local, detect, class_width, distil, personal)
    return ClassWise(*work, clients, Together(), schedule, distil, convergence, until_converged, deadline)


def make_jobs(
    local: Train, detect: Objective, class_width: float, distil: Distillation, personal: Personal
) -> tuple[Train, Train, Train]:
    """What devices do, what the server does, and what devices do before they use its model."""
    fix = "must be above 0 and at most 1: a detector is no larger than the general model"
    require(0 < class_width <= 1, "class_width", class_width, fix)
    fix = "must be at least 2: half of every batch is of the class"
    require(local.batch >= 2, "train.batch", local.batch, fix)
    one = replace(local.model, width=local.model.width * class_width, outputs=1)
    detector = replace(local, model=one, objective=detect, sampler=Balanced())
    return detector, distil.job(local.model, one), personal.job(local)
