"""Local differential privacy, as in the paper's Figure 11: noise on every update, over its deviation.

`potluck study auxo_privacy --scale paper` takes MNIST with its writers and 28 runs of a linear model.
"""

from _cohorts import AGREES, COHORTS, QUICK, TABLE, TURNS, auxo, plain

from potluck.experiment.runs import Run
from potluck.experiment.study import ACCURACY, WORST, Measure, Scale, Study, overlay

SIGMAS = (0.001, 0.01, 0.1, 0.6, 0.77, 1.0)  # the last three are the paper's


def epsilon(run: Run) -> float | None:
    """What the accountant says of the device that took part most; None without noise."""
    told = run.summary.get("privacy")
    return None if not told else float(told["epsilon"])


STUDY = Study(
    title="Auxo under local differential privacy",
    question="Four hidden groups, a linear model; updates are clipped to length 1, and every number of them "
    "gets Gaussian noise of so many clips. Where does it break, and what does an accountant make of it?",
    arms=[plain("no cohorts"), auxo("Auxo")],
    scenarios={
        "no noise": {},
        **{f"sigma {s:g}": {"train": {"privacy": {"clip": 1.0, "sigma": s}}} for s in SIGMAS},
    },
    measures=(ACCURACY, WORST, *AGREES, COHORTS, Measure("epsilon at delta 1e-6", epsilon)),
    quick=Scale(overlay(QUICK, TURNS["4 groups"]), seeds=(1,), scenarios=("no noise", "sigma 0.1")),
    paper=Scale(overlay(TABLE, TURNS["4 groups"], {"model": {"name": "linear"}}), seeds=(1, 2)),
)
