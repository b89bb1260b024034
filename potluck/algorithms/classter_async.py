"""Asynchronous ClassTer (Li, Liu, Zhou, Xu, Guo, Yu: Mobile Shift-Robust Personalized Federated Learning via
Class-Wise Clustering).

ClassTer without rounds: every answer is mixed into its class's detector as it comes. While a detector learns
fast (its critical period), answers of slow devices count in full; later, those that are late and stale count
less. Devices are assigned, on arrival, by counters that are published only every `publish` updates, so that
they gather on one detector for a while.

Deviations and readings, beside those of ClassTer: the fall of the loss is measured on all rows of the device
before and after training, as binary cross-entropy, clipped at 0 (the paper subtracts a gradient from a loss).
Openness is the last gain over the largest gain so far (`period = "increment"`), which is high early and then
falls; as printed, the running sum over the largest sum of any detector (`"cumulative"`) grows with time. The
hinge's staleness is in versions of the detector and is clamped at 0: as printed (`clamp = false`) fresh
answers get negative shares. Until as many answers have come as devices are at work, none is late.
`period = "off"` leaves staleness alone to decide. A round is one task, answered or lost.
"""

from potluck.algorithms.classter.algorithm import ClassWise, class_wise
from potluck.algorithms.classter.asynchronous import AsTheyCome
from potluck.algorithms.classter.device.detect import Detect, Fall
from potluck.algorithms.classter.device.distil import Distillation
from potluck.algorithms.classter.rule import Convergence, Schedule
from potluck.algorithms.classter.staleness import CriticalHinge, Period
from potluck.jobs import Train
from potluck.jobs.switch import Personal


def classter_async(
    local: Train = Train(),
    clients: int = 10,  # devices at work at any time
    publish: int = 10,  # K: updates that are cached before assignments take notice
    alpha: float = 0.5,  # share of an answer in time
    slope: float = 10.0,  # a: how fast the share of a late answer falls with staleness
    patience: int = 4,  # b: versions behind that are forgiven
    period: Period = "increment",  # what tells a critical period; cumulative: as printed; off: without
    clamp: bool = True,  # false: shares as printed, negative ones too
    detect: Detect = Detect(),  # what detectors are trained for: contrast (0: without), temperature, augment
    class_width: float = 1.0,  # width of a detector, as a share of the general model's
    schedule: Schedule = "least",  # which of its classes a device trains: the least trained; gather; random
    distil: Distillation = Distillation(),  # every, epochs, lr, batch, temperature, calibrate, noise
    personal: Personal = Personal(),  # epochs, lr, switch
    convergence: Convergence = Convergence(),  # window, tolerance
    until_converged: bool = False,  # end training when all detectors have converged
    deadline: float | None = None,  # seconds
) -> ClassWise:
    """ClassTer whose detectors take in every answer as it comes."""
    work = class_wise(local, Fall(detect), class_width, distil, personal)
    pace = AsTheyCome(CriticalHinge(alpha, slope, patience, period, clamp), publish)
    return ClassWise(*work, clients, pace, schedule, distil, convergence, until_converged, deadline)
