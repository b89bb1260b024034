"""The six systems of Maverick's Table 1 among honest devices that are judged all the same.

`potluck study maverick_judged --scale paper` takes Fashion-MNIST and 36 runs.
"""

from dataclasses import replace

from _maverick import EFFORT, JUDGED, QUICK, SOON, TABLE, VIEWS
from maverick import STUDY as POISONED

from potluck.experiment.study import TRAFFIC, laid_over

STUDY = replace(
    POISONED,
    title="Maverick: honest devices, judged",
    question="Nobody poisons, but every edge judges by Adaptive-Krum: what does a needless judge cost?",
    measures=(*VIEWS, SOON, EFFORT, TRAFFIC),
    quick=replace(POISONED.quick, experiment=laid_over(QUICK, JUDGED)),
    paper=replace(POISONED.paper, experiment=laid_over(TABLE, JUDGED)),
)
