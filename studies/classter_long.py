"""Accuracy over shift again, with more training: five local epochs, 300 rounds, a smaller model.

`potluck study classter_long --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _classter import FULL_SHIFT, GLOBAL, GRID, NO_SHIFT, QUICK, TABLE, TWO_MODELS, classter, others
from _tuning import try_rates

from potluck.experiment.study import TRAFFIC, Scale, Study, overlay

ROUNDS = 300
# What Potluck would have chosen before its mode was made; each is looked at by itself in `classter_parts`.
CHOSEN = {
    "detect": {"contrast": 0.1},
    "distil": {"calibrate": "rows"},
    "personal": {"switch": "Familiar"},
}

STUDY = Study(
    title="ClassTer: accuracy over shift, after longer training",
    question="The same crowd, Dirichlet(0.1), with a perceptron of 200 units, five local epochs and 300 "
    "rounds. Beside ClassTer as it is: with little contrast, calibrated by the server's rows, and devices "
    "that believe the general model where it sees a class that they don't hold.",
    arms=[classter(), classter("ClassTer, Potluck's choices", **CHOSEN), *others()],
    measures=(NO_SHIFT, FULL_SHIFT, GLOBAL, *TWO_MODELS, TRAFFIC),
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(
        overlay(TABLE, {"stop": {"rounds": ROUNDS}, "evaluate": {"rounds": 50}}),
        seeds=(1, 2, 3),
        tune=try_rates(GRID, 0.5),
    ),
)
