"""What each part of ClassTer does: without it, or with another in its place.

`potluck study classter_parts --scale paper` takes Fashion-MNIST and 39 runs. All arms train at the rate that
is chosen for the first.
"""

from _classter import FULL_SHIFT, GLOBAL, GRID, NO_SHIFT, QUICK, TABLE, TWO_MODELS, classter
from _tuning import try_rates

from potluck.experiment.study import Arm, Scale, Study

FIRST = "ClassTer"


def foreign(name: str, source: str) -> Arm:
    """Distilled on other rows than those of the same kind."""
    arm = classter(name, tuned_as=FIRST)
    return Arm(name, arm.algorithm, arm.parameters, {"data": {"server_from": source}}, FIRST)


def without(name: str, **more: object) -> Arm:
    return classter(name, tuned_as=FIRST, **more)


STUDY = Study(
    title="ClassTer: what its parts do",
    question="The contrast, the calibration, the schedule, the rows that are distilled on, and who answers.",
    arms=[
        classter(FIRST),
        without("no contrast", detect={"contrast": 0.0}),
        without("weak contrast (0.1)", detect={"contrast": 0.1}),
        without("no calibration", distil={"calibrate": "none"}),
        without("calibrated by rows", distil={"calibrate": "rows"}),
        without("random schedule", schedule="random"),
        without("gathering schedule", schedule="gather"),
        foreign("distilled on digits", "mnist"),
        foreign("distilled on noise", "noise"),
        without("switch: threshold", personal={"switch": "Threshold"}),
        without("switch: cosine", personal={"switch": "Cosine"}),
        without("switch: familiar", personal={"switch": "Familiar"}),
    ],
    measures=(NO_SHIFT, FULL_SHIFT, GLOBAL, *TWO_MODELS),
    quick=Scale(
        QUICK,
        seeds=(1,),
        # There is no other data set of this shape without files.
        arms=(
            FIRST,
            "no contrast",
            "no calibration",
            "random schedule",
            "distilled on noise",
            "switch: familiar",
        ),
    ),
    paper=Scale(TABLE, seeds=(1, 2, 3), tune=try_rates(GRID, 0.5)),
)
