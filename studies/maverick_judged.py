"""The six systems of Maverick's Table 1 among honest devices that are judged all the same.

`potluck study maverick_judged --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import JUDGED, among
from maverick import STUDY as POISONED

STUDY = among(
    POISONED,
    title="Maverick: honest devices, judged",
    question="Nobody poisons, but every edge judges by Adaptive-Krum: what does a needless judge cost?",
    quick=JUDGED,
    paper=JUDGED,
)
