"""MNIST's two populations of writers: does anybody need a model for census employees and one for students?

NIST asked two populations to write: employees of the census bureau (series 0 of the training rows, 289
writers) and students of a high school (series 4, 250). Students are said to write less clearly.

Written down before the first run. *Crowd*: MNIST by writer, each cut into clients of about 28 digits; the
population of a client's writer is its hidden kind, which nobody is told. A tenth of the clients is online,
100 train a round, 40 rounds, SGD at 0.1, a panel of 400 evaluated. *Arms*: FedAvg, and Auxo at its defaults
with up to four cohorts of at least 20 clients, as in the other studies of MNIST. Seeds 1, 2 and 3; nothing is
tuned.

*They count as two kinds* if Auxo splits in two seeds or more and cohorts fit populations with a Rand index of
0.5 or more over devices ever seen. *Expected*: they aren't. Everybody calls a stroke by the same digit, and
20 digits of one hand say more of the hand than of the population; the same writers, taken for one kind, never
split in `auxo`. So no split in any seed, and Auxo within half a point of FedAvg. FedAvg's model does worse on
students, by a point or so: their digits are harder, not others.

`potluck study auxo_populations --scale paper` takes MNIST with its writers and 6 runs of 20 s of one core.
"""

from functools import partial
from statistics import mean

from _cohorts import AGREES, COHORTS, QUICK, TABLE, auxo, plain

from potluck.experiment import Run
from potluck.experiment.study import ACCURACY, WORST, Measure, Scale, Study, overlay
from potluck.metrics import headline
from potluck.report.cohorts import read_hidden_groups

POPULATIONS = {"data": {"groups": {"kind": "source", "count": 2}}}
MADE = {"data": {"groups": {"kind": "permutation", "count": 2}}}  # digits have no populations


def measure_population(run: Run, number: int) -> float | None:
    """Mean accuracy at the end over evaluated devices of one population."""
    view, group = headline(run.lines), read_hidden_groups(run.lines)
    last: dict[int, float] = {
        r["node"]: r["value"] for r in run.lines if r["metric"] == "accuracy" and r["view"] == view
    }
    own = [value for node, value in last.items() if group.get(node) == number]
    return mean(own) if own else None


STUDY = Study(
    title="Auxo: MNIST's two populations",
    question="Digits by census employees and by students: are they two kinds to Auxo, and do students fare "
    "worse with one model?",
    arms=[plain("FedAvg"), auxo("Auxo")],
    measures=(
        ACCURACY,
        Measure("employees", partial(measure_population, number=0), "share"),
        Measure("students", partial(measure_population, number=1), "share"),
        WORST,
        *AGREES,
        COHORTS,
    ),
    quick=Scale(overlay(QUICK, MADE), seeds=(1,)),
    paper=Scale(overlay(TABLE, POPULATIONS, {"stop": {"rounds": 40}}), seeds=(1, 2, 3), limit=6),
)
