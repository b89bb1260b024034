"""ShuffleFL that plans for groups of classes (its Figures 15 and 16): what it saves, and what it costs.

`potluck study shufflefl_merging --scale paper` takes 37 runs of 20 to 60 s of one core, 10 minutes with
`--jobs 2`, and no files. What stands for SLSQP here is a few of its iterations, polished by search, for it
would take hours: plans are at least as good, and on the clock they take as long as the paper's solver took.
"""

from collections.abc import Sequence

from _shufflefl import FEDAVG, HAR, MEASURES, QUICK, QUICK_SIZES, page, shufflefl, sizes
from _tuning import try_rates

from potluck.algorithms.shufflefl import merging
from potluck.algorithms.shufflefl.times import slsqp_seconds
from potluck.core.units import duration
from potluck.experiment.study import Arm, Results, Scale, Study, overlay
from potluck.report.reproduction import make_markdown_table

GAMMAS = (1.0, 0.35, 0.25, 0.15, 0.1)
CLASSES = 62
PAPERS = {"kind": "slsqp", "form": "smooth", "most": 2, "polish": {"kind": "search"}}
FIRST = "search, all classes"

TABLE = {
    "data": {
        "source": "synthetic",
        "classes": CLASSES,
        "dimension": 64,
        "rows": 12_000,
        "server": 0.1,  # by which classes are merged
        "partition": "user_devices",
        "users": 20,
        "devices_per_user": [3, 4],
        "alpha": 0.5,
        "test": 0.05,
    },
    "model": {"name": "mlp"},
    # The model is small, so that devices take as long as others do for larger ones.
    "fleet": {**HAR["fleet"], "compute": 800.0},
    "train": HAR["train"],
    "stop": {"rounds": 30},
    "evaluate": {"rounds": 1},
    "run": HAR["run"],
}
TABLE_SIZES = sizes(users=4, devices=14, edges=2, steps=15, seconds=50.0)


def arms(way: str, gammas: Sequence[float] = GAMMAS, **more: object) -> list[Arm]:
    """One for each gamma; all train at the rate of the first."""
    names = [f"{way}, all classes" if gamma == 1 else f"{way}, gamma {gamma:g}" for gamma in gammas]
    return [
        shufflefl(name, None if name == FIRST else FIRST, gamma=gamma, **more)
        for name, gamma in zip(names, gammas, strict=True)
    ]


def times(gammas: Sequence[float] = GAMMAS, classes: int = CLASSES) -> str:
    """What one plan takes on the clock."""
    rows = [
        [
            f"gamma {gamma:g}",
            str(groups := merging.count_groups(gamma, classes)),
            *(duration(slsqp_seconds("pi4", devices, groups)) for devices in (3, 4)),
        ]
        for gamma in gammas
    ]
    head = ["", "groups", "3 devices", "4 devices"]
    return make_markdown_table(head, [list(column) for column in zip(*rows, strict=True)])


def parts(results: Results) -> str:
    said = "What SLSQP takes for a plan of 62 classes on a Raspberry Pi 4, by the paper's tables"
    return f"{page(results)}\n\n{said}:\n\n{times()}"


STUDY = Study(
    title="ShuffleFL: plans for groups of classes",
    question="The paper's solver needs minutes to hours for many classes, so classes that look alike are "
    "merged: gamma is how many groups there are for each class. What does it cost in accuracy, what does it "
    "save in time, and is it needed with a search that is fast?",
    arms=[FEDAVG, *arms("search"), *arms("SLSQP", planner=PAPERS)],
    measures=MEASURES,
    page=parts,
    notes="The paper has, on 35 classes, 65.3, 65.7, 66.9 and 68.3 % for gamma 0.2, 0.25, 0.3 and 0.35 after "
    "3.6, 4.0, 4.5 and 4.6 h; 5.3 h without merging.",
    quick=Scale(
        overlay(QUICK, QUICK_SIZES, {"data": {"server": 0.2}}),
        seeds=(1,),
        arms=("FedAvg", FIRST, "search, gamma 0.35", "SLSQP, gamma 0.35"),
    ),
    paper=Scale(overlay(TABLE, TABLE_SIZES), seeds=(1, 2, 3), tune=try_rates([0.001, 0.003], 0.5)),
)
