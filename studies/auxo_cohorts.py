"""How many cohorts a resource can feed, as in the paper's Figure 9c: eight hidden groups.

`potluck study auxo_cohorts --scale paper` takes MNIST with its writers and 12 runs.
"""

from _cohorts import AGREES, COHORTS, QUICK, TABLE, Arm, auxo, plain

from potluck.experiment.study import ACCURACY, WORST, Scale, Study


def at_most(count: int) -> Arm:
    return auxo(
        f"at most {count}",
        cohorts=count,
        fewest=100 // count,
        criterion={"kind": "Calibrated", "most": count},
    )


STUDY = Study(
    title="Auxo: the number of cohorts",
    question="Eight hidden groups, 45 degrees apart. More cohorts suit more of them, and each gets less.",
    arms=[plain("no cohorts"), at_most(2), at_most(4), at_most(8)],
    scenarios={"8 groups": {"data": {"groups": {"kind": "rotation", "count": 8}}}},
    measures=(ACCURACY, WORST, *AGREES, COHORTS),
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2, 3)),
)
