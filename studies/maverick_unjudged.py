"""The six systems of Maverick's Table 1, poisoned, without a judge.

`potluck study maverick_unjudged --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import POISON, QUICK_POISON, TRUSTED, among
from maverick import STUDY as POISONED

from potluck.experiment.study import laid_over

STUDY = among(
    POISONED,
    title="Maverick: poisoned, without a judge",
    question="3 of every 10 devices send crafted updates (Fang et al.), and everybody is let through.",
    quick=laid_over(QUICK_POISON, TRUSTED),
    paper=laid_over(POISON, TRUSTED),
)
