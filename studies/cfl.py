"""CFL, which needs everybody in every round, at a size that allows it: 100 clients in four groups.

`potluck study cfl --scale paper` takes MNIST with its writers and 18 runs.
"""

from _cohorts import COHORTS, EFFORT, QUICK, TABLE, TURNS, speeds
from _tuning import try_rates

from potluck.experiment.study import ACCURACY, TRAFFIC, WORST, Arm, Results, Scale, Study, overlay
from potluck.report.reproduction import make_tables

# The authors' thresholds are norms of updates: they belong to one model and rate. These were read off one
# run on another seed: the mean change falls below the first by round 15 or so, single ones stay above the
# second.
EPS = {"eps1": 0.4, "eps2": 0.8, "min_round": 15}


def page(results: Results) -> str:
    """All measures, then speed-ups."""
    return (
        f"{make_tables(results)}\n\nUntil the best accuracy without cohorts:\n\n{speeds(results, '4 groups')}"
    )


STUDY = Study(
    title="CFL with full participation",
    results="auxo",
    question="100 clients of about 28 digits in four hidden groups, all of them in every round.",
    arms=[
        Arm("no cohorts", "fedavg", {"clients": 100}),
        Arm("CFL", "cfl", EPS),
        Arm("Auxo", "auxo", {"clients": 100, "fewest": 20, "first_split": 10}),
    ],
    scenarios={"4 groups": TURNS["4 groups"]},
    measures=(ACCURACY, WORST, COHORTS, EFFORT, TRAFFIC),
    page=page,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(
        overlay(TABLE, {"data": {"clients": 100}, "fleet": {"availability": "always"}}),
        seeds=(1, 2, 3),
        tune=try_rates([0.05, 0.1, 0.2], 0.5),
    ),
)
