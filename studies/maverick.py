"""Maverick's Table 1 under every view: 3 of 10 devices poison, every edge judges its updates.

`potluck study maverick --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import (
    EFFORT,
    JUDGED,
    POISON,
    PRECISION,
    QUICK,
    QUICK_POISON,
    RECALL,
    SOON,
    TABLE,
    VIEWS,
    columns,
)

from potluck.experiment.study import TRAFFIC, Scale, Study, laid_over

STUDY = Study(
    title="Maverick: the paper's six systems under three views, poisoned and judged",
    question="3 of every 10 devices send crafted updates (Fang et al.), and all six let Adaptive-Krum judge. "
    "Is Maverick ahead when every system is looked at under the same view?",
    arms=columns(),
    measures=(*VIEWS, SOON, PRECISION, RECALL, EFFORT, TRAFFIC),
    quick=Scale(laid_over(QUICK, QUICK_POISON, JUDGED), seeds=(1,)),
    paper=Scale(
        laid_over(TABLE, POISON, JUDGED),
        seeds=(1, 2, 3),
        tune={"lr": [0.03, 0.1, 0.3], "length": 0.5},
    ),
)
