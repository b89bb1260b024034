"""Time to accuracy in fleets of fast and slow devices (ClassTer's Figure 10 and Table 2).

`potluck study classter_fleet --scale paper` takes Fashion-MNIST and 40 runs. All get the same virtual time:
as much as some 75 rounds of FedAvg take, when slow devices take part in nearly every one of them.
"""

from _classter import FULL_SHIFT, GRID, NO_SHIFT, QUICK, TABLE, classter, distilling, streaming, time_to

from potluck.experiment.study import Arm, Measure, Scale, Study, overlay

SECONDS = {"d1": 1_500.0, "d2": 7_500.0, "d3": 15_000.0, "d4": 30_000.0}


def fleet(preset: str) -> dict[str, object]:
    """Half of the devices slow; evaluated twenty times."""
    seconds = SECONDS[preset]
    return {
        "fleet": {"preset": preset},
        "stop": {"rounds": None, "seconds": seconds},
        "evaluate": {"rounds": None, "seconds": seconds / 20},
    }


STUDY = Study(
    title="ClassTer: time to accuracy on unequal devices",
    question="Half of the devices are slower by 1, 5, 10 and 20 times (D1 to D4), ten train at a time. Who "
    "reaches 30 and 50 % first, on classes that the devices don't hold, and how long does the server distil?",
    arms=[Arm("FedAvg", "fedavg"), Arm("FedAsync", "fedasync"), classter(), streaming()],
    scenarios={preset.upper(): fleet(preset) for preset in SECONDS},
    measures=(
        Measure("time to 30 %", time_to(0.3), "seconds", "less"),
        Measure("time to 50 %", time_to(0.5), "seconds", "less"),
        FULL_SHIFT,
        NO_SHIFT,
        Measure("share of time distilling", distilling, "share", "less"),
        Measure("tasks", "tasks"),
    ),
    # Slow enough that small models take as long as the paper's.
    quick=Scale(overlay(QUICK, {"fleet": {"compute": 2e5}}), seeds=(1,), scenarios=("D4",)),
    paper=Scale(TABLE, seeds=(1, 2), tune={"lr": GRID[::2], "length": 0.5}),
)
