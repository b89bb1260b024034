"""Fed-RAC where nobody trains on one of the classes that models are tested on (its Figure 4).

`potluck study fedrac_without --scale paper` takes UCI HAR, MNIST and 24 runs of 10 to 60 s of one core, 6
minutes with `--jobs 2`, all at one rate a data set.
"""

from _fedrac import (
    HAR,
    HAR_TIME,
    MNIST,
    MNIST_TIME,
    PERFORMANCE,
    QUICK,
    QUICK_TIME,
    SERVED,
    TOOK_PART,
    columns,
    fedrac,
)

from potluck.experiment.study import Scale, Study, overlay

LYING, ONE = 5, 1  # the classes with most rows

first, _, *others = columns(small=0.125, clouds=10)  # FedAvg with the full model leaves some phones out

STUDY = Study(
    title="Fed-RAC: a class that nobody trains on",
    question="The class with most rows is taken from devices, but not from the test set. Who loses least?",
    arms=[first, fedrac("Fed-RAC without distillation", distillation={"enabled": False}), *others],
    scenarios={
        "activities": {"data": {"without": LYING}},
        "digits": overlay(MNIST, MNIST_TIME, {"data": {"without": ONE}}),
    },
    measures=(PERFORMANCE, SERVED, TOOK_PART),
    notes="No model can name a class that it has never seen: at best, 81.8 % of the activities and 88.7 % of "
    "the digits are right. So this measures how well the other classes were learnt. FedAvg's smallest model "
    "has a quarter of the full one's width for activities, an eighth for digits.",
    quick=Scale(overlay(QUICK, QUICK_TIME, {"data": {"without": 0}}), seeds=(1,), scenarios=("activities",)),
    paper=Scale(overlay(HAR, HAR_TIME), seeds=(1, 2)),
)
