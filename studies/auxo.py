"""Cohorts that find themselves: one configuration for 1, 2, 3 and 4 hidden groups, and two criteria.

`potluck study auxo` takes digits and some seconds. `potluck study auxo --scale paper` takes MNIST with its
writers (below $POTLUCK_DATA or ./data) and 39 runs of up to two minutes.

`potluck study auxo_seen --scale paper`, 9 runs, runs `calibrated` again for what its Rand
indices are over: devices ever seen, or the whole panel.
"""

from _cohorts import AGREES, COHORTS, GROUPS, MEASURES, QUICK, TABLE, TURNS, auxo, curves, plain, speeds
from _tuning import try_rates

from potluck.experiment.study import Results, Scale, Study, overlay
from potluck.report.reproduction import make_tables

LONG = overlay(TABLE, {"stop": {"rounds": 80}})


def page(results: Results) -> str:
    """All measures, then speed-ups and Rand indices over time for each number of groups."""
    parts = [make_tables(results)]
    for scenario in results.plan.scenarios:
        parts.append(f"Until the best accuracy without cohorts, {scenario}:\n\n{speeds(results, scenario)}")
        parts.append(curves(results, scenario))
    return "\n\n".join(part for part in parts if part)


STUDY = Study(
    title="Auxo: cohorts in a mostly absent crowd",
    question="Writers' digits are cut into clients, and the clients dealt to hidden groups that see images "
    "turned. Does Auxo find the groups, with the same settings whatever their number, and does it leave a "
    "crowd of one kind alone? At equal resource: 100 clients a round in total.",
    arms=[
        plain("no cohorts"),
        auxo("calibrated", tuned_as="no cohorts"),
        auxo("faithful", criterion="faithful", tuned_as="no cohorts"),
    ],
    scenarios=GROUPS,
    measures=MEASURES,
    page=page,
    quick=Scale(QUICK, seeds=(1,), scenarios=("1 group", "4 groups")),
    paper=Scale(
        LONG,
        seeds=(1, 2, 3),
        tune=try_rates([0.1, 0.2, 0.4], 0.5),
    ),
)

STUDIES = {
    "seen": Study(
        title="Auxo: over whom cohorts fit hidden groups",
        question="`calibrated` as above, run again at its rate: how do choices fit the hidden groups over "
        "the devices of the panel that were ever seen, and over the whole panel?",
        arms=[auxo("calibrated")],
        scenarios=TURNS,
        measures=(*AGREES, COHORTS),
        quick=Scale(QUICK, seeds=(1,), scenarios=("4 groups",)),
        paper=Scale(overlay(LONG, {"train": {"lr": 0.2}}), seeds=(1, 2, 3)),
    )
}
