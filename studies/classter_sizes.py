"""More devices at a time, smaller detectors, longer local training (ClassTer's Figures 13, 14 and 15).

`potluck study classter_sizes --scale paper` takes Fashion-MNIST and 27 runs.
"""

from _classter import FULL_SHIFT, GLOBAL, GRID, QUICK, TABLE, bytes_to, classter, shifted, time_to
from _tuning import try_rates

from potluck.experiment.study import TRAFFIC, Arm, Measure, Scale, Study, overlay

FIRST = "10 devices, full size, 5 epochs"


def longer(epochs: int) -> Arm:
    arm = classter(f"{epochs} epochs", tuned_as=FIRST)
    return Arm(arm.name, arm.algorithm, arm.parameters, {"train": {"epochs": epochs}}, FIRST)


STUDY = Study(
    title="ClassTer: devices at a time, size of detectors, local epochs",
    question="What changes with 20 and 30 devices a round, with detectors of half and a quarter of the "
    "width, and with 1, 2 and 10 local epochs?",
    arms=[
        classter(FIRST),
        classter("20 devices", tuned_as=FIRST, clients=20),
        classter("30 devices", tuned_as=FIRST, clients=30),
        classter("width 1/2", tuned_as=FIRST, class_width=0.5),
        classter("width 1/4", tuned_as=FIRST, class_width=0.25),
        longer(1),
        longer(2),
        longer(10),
    ],
    measures=(
        FULL_SHIFT,
        Measure("general alone, 100 %", shifted(1.0, "general"), "share", "more"),
        GLOBAL,
        Measure("time to 30 %", time_to(0.3), "seconds", "less"),
        Measure("bytes to 30 %", bytes_to(0.3), "bytes", "less"),
        TRAFFIC,
    ),
    quick=Scale(overlay(QUICK, {"stop": {"rounds": 2}}), seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2, 3), tune=try_rates(GRID, 0.5)),
)
