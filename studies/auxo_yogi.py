"""Cohorts around FedYogi, the inner algorithm of the paper's own tables: 1 to 4 hidden groups.

`potluck study auxo_yogi --scale paper` takes MNIST with its writers and 27 runs.
"""

from _cohorts import GROUPS, MEASURES, QUICK, TABLE, auxo, plain
from _tuning import try_rates

from potluck.experiment.study import Scale, Study

STUDY = Study(
    title="Auxo around FedYogi",
    question="Does Auxo also find the groups when the server's steps are adaptive, as in the paper's tables?",
    arms=[
        plain("FedYogi", "fedyogi"),
        auxo("Auxo (FedYogi)", "fedyogi", tuned_as="FedYogi"),
    ],
    scenarios=GROUPS,
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,), scenarios=("2 groups",)),
    paper=Scale(TABLE, seeds=(1, 2, 3), tune=try_rates([0.05, 0.1, 0.2], 0.5)),
)
