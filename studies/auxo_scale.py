"""Auxo by population: ten and a hundred thousand clients of four kinds that hold other classes, 500 rounds.

Written down before the first run. Rows are drawn by hash, with repetition among clients (`procedural`), and
so are their numbers: evenly from 20 to 73 garments a client, 14 to 51 of them to train on. That isn't the
traces' distribution: this partition draws no other, and of Google Speech's clients
(`traces/client_data_sizes.npz`) 60 in 100 hold fewer than 20 rows, too few to tell a kind by; 73 is where 95
in 100 end. Three quarters of a device's rows are of its kind's own classes; four kinds of equal size. 200
devices a round make 100,000 visits: ten for each of ten thousand clients; of a hundred thousand, by chance,
37 in 100 are never seen and as many once. Two thousand stand beside for 100 rounds, long enough for the round
of the first split, which is all that they are compared by.

Indices are over a panel of 10,000: of ten thousand clients and of two thousand everybody, so that the index
is over all devices ever seen; of a hundred thousand one in ten, drawn by seed.

*Must*: a hundred thousand clients split as soon, in rounds, as two thousand. *Expected*: a Rand index of 0.8
or more over all devices ever seen, of ten and of a hundred thousand.

Text that must not split: Shakespeare's roles, each a client; one layer of 64 reads 20 characters.

`potluck study auxo_scale --scale paper` takes Fashion-MNIST and 12 runs, `potluck study auxo_scale_text
--scale paper` Shakespeare and 4 runs. A GPU isn't needed (`--set run.device=cuda` takes one): on a core, a
round of 200 devices of so narrow a perceptron (50 units) takes less than a second.
"""

from typing import Any

from _cohorts import AGREES, COHORTS, OVER, Arm, page, plain

from potluck.experiment.runs import Run
from potluck.experiment.study import ACCURACY, TRAFFIC, WORST, Measure, Scale, Study


def find_first_split(run: Run) -> float | None:
    """The round of the first split; None without one."""
    splits = [float(line["value"]["round"]) for line in run.lines if line["metric"] == "split"]
    return min(splits, default=None)


SPLIT = Measure("round of the first split", find_first_split)
GROUPS = {"kind": "labels", "count": 4, "share": 0.75}
TABLE = {
    "data": {
        "source": "fashion-mnist",
        "partition": "procedural",
        "smallest": 20,
        "largest": 73,
        "groups": GROUPS,
    },
    "model": {"name": "mlp", "width": 0.25},
    "fleet": {"source": "mobile"},
    "train": {"batch": 10, "epochs": 2, "lr": 0.1},
    "stop": {"rounds": 500},
    "evaluate": {"rounds": 100, "panel": 10_000},
    "run": {"executor": "stacked", "graphs": False},
}
QUICK = {
    "data": {"source": "digits", "partition": "procedural", "largest": 40, "groups": {**GROUPS, "count": 2}},
    "model": {"name": "linear"},
    "fleet": {"source": "mobile"},
    "train": {"batch": 10, "epochs": 1, "lr": 0.1},
    "stop": {"rounds": 3},
    "evaluate": {"rounds": 3, "panel": 20},
    "run": {"executor": "stacked"},
}
TEXT = {
    "data": {"source": "shakespeare", "partition": "by_user", "length": 20, "stride": 20, "smallest": 20},
    "model": {"name": "char_lstm", "width": 0.25, "depth": 0.5},
    "fleet": {"source": "mobile"},
    "train": {"batch": 10, "epochs": 1, "lr": 1.0},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 20, "panel": 100},
    "run": {"executor": "stacked", "graphs": False},
}
SIZES: dict[str, Any] = {
    "2,000 clients, 100 rounds": {"data": {"clients": 2_000}, "stop": {"rounds": 100}},
    "10,000 clients": {"data": {"clients": 10_000}},
    "100,000 clients": {"data": {"clients": 100_000}},
}


def cohorts(clients: int) -> Arm:
    around = {"inner": {"kind": "fedavg", "overcommit": OVER}, "clients": clients, "cohorts": 8}
    return Arm("Auxo", "auxo", {**around, "fewest": clients // 8})


def arms(clients: int) -> list[Arm]:
    return [Arm("FedAvg", "fedavg", {**plain("FedAvg").parameters, "clients": clients}), cohorts(clients)]


STUDY = Study(
    title="Auxo by population",
    question="200 devices a round of 10,000 and of 100,000 clients, in four kinds, over 500 rounds. When "
    "does the crowd split, as soon as one of 2,000 does, and do devices that were seen once, or never, use "
    "the cohort of their kind? Up to 10,000 devices are evaluated: everybody, or one in ten of 100,000.",
    arms=arms(200),
    scenarios=SIZES,
    measures=(ACCURACY, WORST, *AGREES, COHORTS, SPLIT, TRAFFIC),
    page=page,
    quick=Scale(QUICK, seeds=(1,), scenarios=("10,000 clients", "100,000 clients")),
    paper=Scale(TABLE, seeds=(1, 2)),
)

STUDIES = {
    "text": Study(
        title="Auxo on text that is of one kind",
        question="Shakespeare's roles speak alike, as people in the paper's Reddit do. Does the "
        "crowd stay whole?",
        arms=arms(100),
        measures=(ACCURACY, WORST, COHORTS, SPLIT, TRAFFIC),
        quick=Scale({**QUICK, "data": {"source": "digits", "clients": 30, "partition": "iid"}}, seeds=(1,)),
        paper=Scale(TEXT, seeds=(1, 2)),
    )
}
