"""Time to accuracy in fleets of fast and slow devices (ClassTer's Figure 10 and Table 2).

`potluck study classter_fleet --scale paper` takes Fashion-MNIST and 40 runs. All get the same virtual time:
as much as some 75 rounds of FedAvg take, when slow devices take part in nearly every one of them. They are
looked at twenty times, so times are read on a coarse grid.

`potluck study classter_fleet_first --scale paper`, 8 runs, looks at D4 every 80 seconds until 50 % is passed,
for at most 12,000 seconds, at the rates that the other one chose.
"""

from dataclasses import replace

from _classter import FULL_SHIFT, GRID, NO_SHIFT, QUICK, TABLE, classter, distilling, streaming, time_to
from _tuning import try_rates

from potluck.experiment.study import Arm, Measure, Scale, Study, overlay

SECONDS = {"d1": 1_500.0, "d2": 7_500.0, "d3": 15_000.0, "d4": 30_000.0}


FIRST_SECONDS = 80.0
RATES = {"FedAvg": 0.05, "FedAsync": 0.01, "ClassTer": 0.01, "ClassTer async": 0.01}


def fleet(preset: str) -> dict[str, object]:
    """Half of the devices slow; evaluated twenty times."""
    seconds = SECONDS[preset]
    return {
        "fleet": {"preset": preset},
        "stop": {"rounds": None, "seconds": seconds},
        "evaluate": {"rounds": None, "seconds": seconds / 20},
    }


ARMS = [Arm("FedAvg", "fedavg"), Arm("FedAsync", "fedasync"), classter(), streaming()]
TIMES = (
    Measure("time to 30 %", time_to(0.3), "seconds", "less"),
    Measure("time to 50 %", time_to(0.5), "seconds", "less"),
)

STUDY = Study(
    title="ClassTer: time to accuracy on unequal devices",
    question="Half of the devices are slower by 1, 5, 10 and 20 times (D1 to D4), ten train at a time. Who "
    "reaches 30 and 50 % first, on classes that the devices don't hold, and how long does the server distil? "
    "Times are read on a grid of a twentieth of the run: 75, 375, 750 and 1,500 s.",
    arms=ARMS,
    scenarios={preset.upper(): fleet(preset) for preset in SECONDS},
    measures=(
        *TIMES,
        FULL_SHIFT,
        NO_SHIFT,
        Measure("share of time distilling", distilling, "share", "less"),
        Measure("tasks", "tasks"),
    ),
    # Slow enough that small models take as long as the paper's.
    quick=Scale(overlay(QUICK, {"fleet": {"compute": 2e5}}), seeds=(1,), scenarios=("D4",)),
    paper=Scale(TABLE, seeds=(1, 2), tune=try_rates(GRID[::2], 0.5)),
)

EARLY = {"stop": {"target": 0.5}, "evaluate": {"rounds": None, "seconds": FIRST_SECONDS}}

STUDIES = {
    "first": Study(
        title="ClassTer: time to accuracy on unequal devices, looked at every 80 s",
        question="Half of the devices take 20 times as long (D4), ten train at a time. Who reaches 30 and "
        "50 % first, on classes that the devices don't hold? A run ends when 50 % is seen, or after "
        "12,000 s.",
        arms=[replace(arm, changes={"train": {"lr": RATES[arm.name]}}) for arm in ARMS],
        measures=TIMES,
        quick=Scale(
            overlay(QUICK, {"fleet": {"preset": "d4", "compute": 2e5}}, EARLY, {"stop": {"rounds": 4}}),
            seeds=(1,),
        ),
        paper=Scale(
            overlay(TABLE, {"fleet": {"preset": "d4"}, "stop": {"rounds": None, "seconds": 12_000.0}}, EARLY),
            seeds=(1, 2),
        ),
    )
}
