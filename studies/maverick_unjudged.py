"""The six systems of Maverick's Table 1, poisoned, without a judge.

`potluck study maverick_unjudged --scale paper` takes Fashion-MNIST and 36 runs.
"""

from dataclasses import replace

from _maverick import EFFORT, POISON, QUICK, QUICK_POISON, SOON, TABLE, TRUSTED, VIEWS
from maverick import STUDY as POISONED

from potluck.experiment.study import TRAFFIC, laid_over

STUDY = replace(
    POISONED,
    title="Maverick: poisoned, without a judge",
    question="3 of every 10 devices send crafted updates (Fang et al.), and everybody is let through.",
    measures=(*VIEWS, SOON, EFFORT, TRAFFIC),
    quick=replace(POISONED.quick, experiment=laid_over(QUICK, QUICK_POISON, TRUSTED)),
    paper=replace(POISONED.paper, experiment=laid_over(TABLE, POISON, TRUSTED)),
)
