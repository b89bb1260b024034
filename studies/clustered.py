"""Auxo beside other clustered methods, as in the paper's Tables 4 and 5.

`potluck study clustered --scale paper` takes MNIST with its writers and 35 runs. As in the paper, all devices
are online here, since the others need that.
"""

from _cohorts import BEST10, COHORTS, EFFORT, OVER, QUICK, TABLE, TURNS, VARIANCE, auxo, plain, speeds
from _tuning import try_rates

from potluck.experiment.study import ACCURACY, TRAFFIC, WORST, Arm, Results, Scale, Study, overlay
from potluck.report.reproduction import make_tables

INNER = {"inner": {"kind": "fedavg", "overcommit": OVER}, "clients": 100}


def page(results: Results) -> str:
    """All measures, then speed-ups."""
    scenario = results.plan.scenarios[0]
    said = "Until the best accuracy without cohorts; over a method that never reached it nothing can be said:"
    return f"{make_tables(results)}\n\n{said}\n\n{speeds(results, scenario)}"


STUDY = Study(
    title="Clustered methods, four groups",
    results="auxo",
    question="2,116 clients in four hidden groups, all online; 100 a round in total, whatever the method. "
    "Who is fastest to the best accuracy of one model for all, at what effort, and how even is the service?",
    arms=[
        plain("no cohorts"),
        plain("IFCA", "ifca", models=4),
        Arm("FL+HC", "flhc", INNER),
        Arm("FlexCFL", "flexcfl", {**INNER, "groups": 4}),
        auxo("Auxo"),
    ],
    scenarios={"4 groups": TURNS["4 groups"]},
    measures=(ACCURACY, WORST, BEST10, VARIANCE, COHORTS, EFFORT, TRAFFIC),
    page=page,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(
        overlay(TABLE, {"fleet": {"availability": "always"}}),
        seeds=(1, 2, 3),
        # Long enough for FL+HC to have clustered: it asks everybody once, after its first rounds.
        tune=try_rates([0.05, 0.1, 0.2, 0.4], 0.7),
    ),
)
