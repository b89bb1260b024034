"""What ShuffleFL's parts do (its Table 4), among devices whose speed changes, too.

`potluck study shufflefl_parts --scale paper` takes UCI HAR and 29 runs of 40 to 60 s of one core, a quarter
of an hour with `--jobs 2`.
"""

from _shufflefl import (
    FEDAVG,
    GRID,
    HAR,
    HAR_SIZES,
    MEASURES,
    QUICK,
    QUICK_SIZES,
    differences,
    page,
    shufflefl,
    speeds,
)

from potluck.experiment.study import Results, Scale, Study, overlay

WHOLE = "ShuffleFL"
CHANGING = {"fleet": {"jitter": {"every": 60.0, "rates": 0.2, "compute": 0.3}}}


def parts(results: Results) -> str:
    """Against FedAvg, as the paper has it, and against the whole."""
    return "\n\n".join(
        [
            page(results),
            f"Until the whole's final accuracy:\n\n{speeds(results, base=WHOLE)}",
            differences(results, WHOLE),
        ]
    )


STUDY = Study(
    title="ShuffleFL: what its parts do",
    question="Which part makes ShuffleFL fast or accurate: that devices of a user should take equally long, "
    "that slow users save time where fast ones balance classes, or that rows move at all? Speeds and links "
    "of devices change every minute.",
    arms=[
        FEDAVG,
        shufflefl(WHOLE),
        shufflefl("without time balance", tuned_as=WHOLE, balance_time=False),
        shufflefl("without adaptive scaling", tuned_as=WHOLE, adaptive=False),
        shufflefl("without moves", tuned_as=WHOLE, shuffle=False),
    ],
    measures=MEASURES,
    page=parts,
    notes="The paper has, on HARBox over FedAvg: 79.2 % and 9.3x whole, 3.1 points more and 5.3x without "
    "time balance, 1.9 points more and 5.6x without adaptive scaling (whole: 2.8 points more).",
    quick=Scale(overlay(QUICK, QUICK_SIZES, CHANGING), seeds=(1,)),
    paper=Scale(overlay(HAR, HAR_SIZES, CHANGING), seeds=(1, 2, 3, 4, 5), tune=GRID),
)
