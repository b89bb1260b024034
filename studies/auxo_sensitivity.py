"""What Auxo's gain depends on, as in the paper's Figure 9: how far groups differ, and when they part.

`potluck study auxo_sensitivity --scale paper` takes MNIST with its writers and 24 runs.
"""

from _cohorts import AGREES, COHORTS, QUICK, TABLE, auxo, plain

from potluck.experiment.study import ACCURACY, WORST, Scale, Study


def groups(kind: str, **more: float) -> dict[str, object]:
    return {"data": {"groups": {"kind": kind, "count": 2, **more}}}


STUDY = Study(
    title="Auxo: how far groups differ, and when they part",
    question="Two hidden groups, turned against each other by a little or by much, or with other names for "
    "their labels. When does a split pay, and how much does its moment matter?",
    arms=[
        plain("no cohorts"),
        auxo("by itself"),
        auxo("split at round 3", force=(3,)),
        auxo("split at round 40", force=(40,)),
    ],
    scenarios={
        "20 degrees": groups("rotation", degrees=20.0),
        "180 degrees": groups("rotation"),
        "labels": groups("permutation"),
    },
    measures=(ACCURACY, WORST, *AGREES, COHORTS),
    quick=Scale(QUICK, seeds=(1,), scenarios=("labels",)),
    paper=Scale(TABLE, seeds=(1, 2)),
)
