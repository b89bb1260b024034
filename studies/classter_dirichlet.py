"""Accuracy over the skew of labels (ClassTer's Figure 9; `classter_shift` has the most skewed case, 0.1).

`potluck study classter_dirichlet --scale paper` takes Fashion-MNIST and 40 runs.
"""

from _classter import FULL_SHIFT, GLOBAL, LENET, NO_SHIFT, QUICK, TABLE, classter, others
from _tuning import try_rates

from potluck.experiment.study import Scale, Study, overlay

ROUNDS = 75

STUDY = Study(
    title="ClassTer: accuracy over the skew of labels",
    question="The same crowd with labels dealt less unevenly, by Dirichlet(0.3) and (0.5).",
    arms=[classter(), *others()],
    scenarios={f"Dirichlet({a})": {"data": {"alpha": a}} for a in (0.3, 0.5)},
    measures=(NO_SHIFT, FULL_SHIFT, GLOBAL),
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(
        overlay(TABLE, LENET, {"stop": {"rounds": ROUNDS}}),
        seeds=(1, 2, 3),
        tune=try_rates([0.01, 0.05], 0.5),
    ),
)
