"""ClassTer (Li, Liu, Zhou, Xu, Guo, Yu: Mobile Shift-Robust Personalized Federated Learning via Class-Wise
Clustering).

Devices that hold few classes pull a common model apart, and a personal one knows nothing but what its device
has seen. So no model of all classes is averaged: every class has a detector of its own, trained by those who
hold the class, with contrast among its own rows; a device is given the least-trained class that it holds. The
server makes one general model of all detectors by distillation, on rows of its own that need no labels. Each
device trains the last layer of that model on its rows, and at use trusts the general or its own, row by row.

Deviations, in mode `potluck` alone: there is no contrast. What answers and teaches is the mean of a
detector's last updates (`average`), since one device's word is a noisy one. Detectors begin alike, so that
the general model can begin each time as the mean of their layers below all of their heads: a server with few
rows has too few to learn layers from. After each distillation as many devices as a round has are sent all of
this, and fit a temperature and a bias a class by sums, in waves, for the detectors and for the general model
(`distil.calibrate = "devices"`): teachers are calibrated by the fit of the last time, and the general model's
answers are weighed by the classes that a device meets (`Prior`, with that fit; it reads unlabelled rows of
its own). On rows that no detector trains on (`kept`) they count which is right more often; the detectors are
served until the general model is, and again when it isn't. A device tells by this how many rows of each class
it holds. Sums that no rows can have are left out.

Deviations and readings: the loss descends (the paper's line 5 climbs); the contrast is NT-Xent over both
views of the batch's target rows, since the printed ratio has no normalisation; classification is binary
cross-entropy; batches are half target rows, half others. Counters count updates, and assignments of one round
are counted as they are made. The imbalance index is 1 - min / mean of completed updates. Calibration uses the
standard deviation on noise that no device trains on, and teachers' z-scores go through a softmax.

Distillation runs beside training, in a lane of its own, every so many updates, starts from the last general
model and takes time on the server's clock; the paper distils once, at the end, which `every` large enough
does too. Until the first one, the calibrated arg-max of the detectors is served. Fine-tuning before use takes
no virtual time, as in FTFA. A detector has converged when its mean training loss over a window of answers is
at most `tolerance` below that of the window before; when all have, `until_converged` ends training. A
detector that nobody ever trained says nothing. A device is asked once which classes it holds, and again when
it no longer has the one that it was to train; of classes that it gains later nobody learns before that.
"""

from collections.abc import Mapping
from typing import Final

PUBLISHED: Final[Mapping[str, object]] = {
    "detect": {"contrast": 1.0},
    "distil": {
        "every": 100,
        "epochs": 10,
        "lr": 1e-3,
        "temperature": 2.0,
        "calibrate": "noise",
        "start": "last",
    },
    "personal": {"switch": "Entropy"},
    "average": 1,
    "kept": 0.0,
}
