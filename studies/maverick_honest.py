"""The six systems of Maverick's Table 1 among honest devices, without a judge.

`potluck study maverick_honest --scale paper` takes Fashion-MNIST and 36 runs.
"""

from dataclasses import replace

from _maverick import EFFORT, QUICK, SOON, TABLE, TRUSTED, VIEWS
from maverick import STUDY as POISONED

from potluck.experiment.study import TRAFFIC, laid_over

STUDY = replace(
    POISONED,
    title="Maverick: the paper's six systems among honest devices",
    question="Nobody poisons, and no edge judges: what do local rounds and the contrast do alone?",
    measures=(*VIEWS, SOON, EFFORT, TRAFFIC),
    quick=replace(POISONED.quick, experiment=laid_over(QUICK, TRUSTED)),
    paper=replace(POISONED.paper, experiment=laid_over(TABLE, TRUSTED)),
)
