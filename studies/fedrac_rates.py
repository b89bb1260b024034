"""The leader of Fed-RAC at several learning rates (its Table VI).

`potluck study fedrac_rates --scale paper` takes UCI HAR, MNIST and 30 runs of about 5 s of one core, a minute
with `--jobs 2`.
"""

from _fedrac import HAR, MNIST, QUICK, fedrac

from potluck.algorithms.fedrac.results import trace_tier
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Measure, Scale, Study, overlay


def at(rate: float) -> Arm:
    return Arm(f"{rate:g}", "fedrac", fedrac().parameters, {"train": {"lr": rate}})


def leading(run: Run) -> float | None:
    found = trace_tier(run, 0)
    return found[-1].value if found else None


STUDY = Study(
    title="Fed-RAC: the leader's learning rate",
    question="How good is the leader after 10 rounds (activities) and 5 rounds (digits)?",
    arms=[at(rate) for rate in (0.002, 0.004, 0.006, 0.008, 0.01)],
    scenarios={"activities": {}, "digits": overlay(MNIST, {"stop": {"rounds": 5}})},
    measures=(Measure("leader's accuracy", leading, "share", "more", paired=True),),
    notes="The paper's falls with the rate: from 89.9 to 79.2 % on activities, from 98.1 to 90.4 % on "
    "digits. Its batches are of 200 rows, these of 32 and 64.",
    quick=Scale(overlay(QUICK, {"stop": {"rounds": 2}}), seeds=(1,), scenarios=("activities",)),
    paper=Scale(overlay(HAR, {"stop": {"rounds": 10}}), seeds=(1, 2, 3)),
)
