"""Accuracy over shift, and what it costs to get there (ClassTer's Figures 8 and 11).

`potluck study classter_shift --scale paper` takes Fashion-MNIST and 30 runs.
"""

from _classter import (
    GLOBAL,
    GRID,
    LENET,
    LEVELS,
    QUICK,
    TABLE,
    TWO_MODELS,
    bytes_to,
    classter,
    others,
    shifted,
)
from _tuning import try_rates

from potluck.experiment.study import TRAFFIC, Measure, Scale, Study, overlay

ROUNDS = 150

STUDY = Study(
    title="ClassTer: accuracy when devices meet classes that they don't hold",
    question="Labels are dealt by Dirichlet(0.1). A share of every device's test rows comes from classes "
    "that it doesn't hold: who is best at no shift, who at full shift, and how many bytes does 30 or 50 % at "
    "full shift take?",
    arms=[classter(), *others()],
    measures=(
        *(
            Measure(f"{s:.0%} shift".replace("%", " %"), shifted(s), "share", "more", paired=s in (0.0, 1.0))
            for s in LEVELS
        ),
        *TWO_MODELS,
        GLOBAL,
        Measure("bytes to 30 %", bytes_to(0.3), "bytes", "less"),
        Measure("bytes to 50 %", bytes_to(0.5), "bytes", "less"),
        TRAFFIC,
    ),
    quick=Scale(overlay(QUICK, {"evaluate": {"shifts": list(LEVELS)}}), seeds=(1,)),
    paper=Scale(
        overlay(TABLE, LENET, {"stop": {"rounds": ROUNDS}, "evaluate": {"shifts": list(LEVELS)}}),
        seeds=(1, 2, 3),
        tune=try_rates(GRID, 0.5),
    ),
)
