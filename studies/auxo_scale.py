"""Auxo by population: two thousand, ten and a hundred thousand clients, four kinds that hold other classes.

Written down before the first run. Rows are drawn by hash, with repetition among clients (`procedural`): 20
to 73 garments each, 73 being where 95 of 100 clients of Google Speech end (`traces/client_data_sizes.npz`;
the median there is 18, which is too few rows to tell a kind by). Three quarters of a device's rows are of
its kind's own classes; four kinds of equal size. 200 devices a round, so that in 100 rounds of a hundred
thousand clients most are never seen, and nearly all who are, once.

*Must*: a hundred thousand clients split as soon, in rounds, as two thousand. *Expected*: a Rand index of 0.8
or more over all devices ever seen, at every size.

Text that must not split: Shakespeare's roles, each a client; one layer of 64 reads 20 characters.

`potluck study auxo_scale --scale paper --set run.device=cuda` takes Fashion-MNIST and 12 runs, and `potluck
study auxo_scale_text --scale paper --set run.device=cuda` Shakespeare and 4 runs.
"""

from _cohorts import AGREES, COHORTS, OVER, Arm, plain

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
    "model": {"name": "mlp"},
    "fleet": {"source": "mobile"},
    "train": {"batch": 10, "epochs": 2, "lr": 0.1},
    "stop": {"rounds": 100},
    "evaluate": {"rounds": 20, "panel": 1000},
    "run": {"executor": "stacked"},
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
    "run": {"executor": "stacked"},
}


def cohorts(clients: int) -> Arm:
    around = {"inner": {"kind": "fedavg", "overcommit": OVER}, "clients": clients, "cohorts": 8}
    return Arm("Auxo", "auxo", {**around, "fewest": clients // 8})


def arms(clients: int) -> list[Arm]:
    return [Arm("FedAvg", "fedavg", {**plain("FedAvg").parameters, "clients": clients}), cohorts(clients)]


STUDY = Study(
    title="Auxo by population",
    question="200 devices a round of 2,000, of 10,000 and of 100,000 clients, in four kinds. When does the "
    "crowd split, and do devices that were seen once, or never, use the cohort of their kind?",
    arms=arms(200),
    scenarios={f"{n:,} clients": {"data": {"clients": n}} for n in (2_000, 10_000, 100_000)},
    measures=(ACCURACY, WORST, *AGREES, COHORTS, SPLIT, TRAFFIC),
    quick=Scale(QUICK, seeds=(1,), scenarios=("2,000 clients", "100,000 clients")),
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
