"""Asynchronous ClassTer (Li, Liu, Zhou, Xu, Guo, Yu: Mobile Shift-Robust Personalized Federated Learning via
Class-Wise Clustering).

ClassTer without rounds: every answer is mixed into its class's detector as it comes. While a detector learns
fast (its critical period), answers of slow devices count in full; later, those that are late and stale count
less. Devices are assigned, on arrival, by counters that are published only every `publish` updates, so that
they gather on one detector for a while.

Deviations, in mode `potluck` alone: those of ClassTer, and thirty devices are at work rather than ten, so
that answers meet others on their detector and staleness has something to decide.

Deviations and readings, beside those of ClassTer: the fall of the loss is measured on all rows of the device
before and after training, as binary cross-entropy, clipped at 0 (the paper subtracts a gradient from a loss).
Openness is the last gain over the largest gain so far (`period = "increment"`), which is high early and then
falls; as printed, the running sum over the largest sum of any detector (`"cumulative"`) grows with time. The
hinge's staleness is in versions of the detector and is clamped at 0: as printed (`clamp = false`) fresh
answers get negative shares. Until as many answers have come as devices are at work, none is late.
`period = "off"` leaves staleness alone to decide. A round is one task, answered or lost.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from potluck.algorithms import classter
from potluck.algorithms.classter.algorithm import AVERAGE, DETECT, DISTIL, KEPT, PERSONAL, make_jobs
from potluck.algorithms.classter.assignment import Schedule
from potluck.algorithms.classter.asynchronous import AsTheyCome
from potluck.algorithms.classter.convergence import Convergence
from potluck.algorithms.classter.device.detect import Detect, Fall
from potluck.algorithms.classter.device.distil import Distillation
from potluck.algorithms.classter.rule import ClassWise
from potluck.algorithms.classter.staleness import CriticalHinge, Period
from potluck.core.ranges import Chance, Few, Lanes, Seconds
from potluck.jobs import Train
from potluck.jobs.switch import Personal

PUBLISHED: Final[Mapping[str, object]] = {"clients": 10, **classter.PUBLISHED}


def classter_async(
    local: Train = Train(),
    clients: Annotated[Lanes, "devices at work at any time"] = 30,
    publish: Annotated[int, "K: updates that are cached before assignments take notice"] = 10,
    alpha: Annotated[float, "share of an answer in time"] = 0.5,
    slope: Annotated[float, "a: how fast the share of a late answer falls with staleness"] = 10.0,
    patience: Annotated[int, "b: versions behind that are forgiven"] = 4,
    period: Annotated[
        Period, "what tells a critical period; cumulative: as printed; off: without"
    ] = "increment",
    clamp: Annotated[bool, "false: shares as printed, negative ones too"] = True,
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
    """ClassTer whose detectors take in every answer as it comes."""
    jobs = make_jobs(local, Fall(detect), class_width, distil, personal, kept)
    pace = AsTheyCome(CriticalHinge(alpha, slope, patience, period, clamp), publish)
    return ClassWise(*jobs, clients, pace, schedule, distil, convergence, until_converged, deadline, average)
