"""Devices with wrong labels, flipped signs or forged affinity: the paper's claim of its appendix B.4.

The paper: with up to 15 % of devices whose labels are flipped at random Auxo still gains, "through
identifying malicious clients and eliminating their interference". Written down before the first run: four
kinds that hold other classes, as in `auxo_labels`, at its first rate for all; 15 % of 1,000 devices lie, all
of which are evaluated. Auxo at its defaults (only false claims keep an update out), the same with strays out
(`stray = 0.25`), and FedAvg, which asks nobody where it belongs: of forged affinity it knows nothing.

*What counts*: mean accuracy over honest devices (lying ones are left out, also those with wrong labels, which
means over devices elsewhere keep); then precision and recall of updates that were kept out, counted from the
first split on, since before that nobody can be told apart; then those of devices that were shut out for false
claims. *Expected*: Auxo ahead of FedAvg by 5 points for each kind of liar, further ahead with strays out for
wrong labels and flipped signs, recall of wrong labels at least 0.5 at a precision of 0.5, nobody honest shut
out, and no more than half a point lost where nobody lies.

`potluck study auxo_liars --scale paper` takes Fashion-MNIST and 24 runs.
"""

from statistics import mean

from _cohorts import AGREES, COHORTS, Arm, plain
from _maverick import PRECISION, RECALL
from auxo_labels import QUICK, TABLE, cohorts, hold

from potluck.experiment.runs import Run
from potluck.experiment.study import WORST, Measure, Scale, Study, overlay
from potluck.metrics import headline
from potluck.report.anomalies import find_culprits


def measure_honest(run: Run) -> float | None:
    """Mean accuracy at the end over devices that don't lie."""
    view, liars = headline(run.lines), find_culprits(run.lines) or set()
    last: dict[int, float] = {
        r["node"]: r["value"] for r in run.lines if r["metric"] == "accuracy" and r["view"] == view
    }
    return mean(value for node, value in last.items() if node not in liars)


def list_shut_out(run: Run) -> list[int]:
    return [r["value"] for r in run.lines if r["metric"] == "blacklisted"]


def measure_shut_rightly(run: Run) -> float | None:
    """The share of devices shut out that lie; None if none were, or none are known to lie."""
    liars, out = find_culprits(run.lines), list_shut_out(run)
    return None if liars is None or not out else sum(node in liars for node in out) / len(out)


def measure_shut(run: Run) -> float | None:
    """The share of liars that were shut out."""
    liars = find_culprits(run.lines)
    return sum(node in liars for node in list_shut_out(run)) / len(liars) if liars else None


def attacked(kind: str) -> dict[str, object]:
    return {"fleet": {"attack": {"kind": kind, "share": 0.15}}}


KEPT_OUT: Arm = cohorts("Auxo, strays out", criterion={"kind": "Calibrated", "stray": 0.25})
FOUR = hold(4, 0.75)

STUDY = Study(
    title="Auxo: devices that lie",
    question="Four kinds; 15 % of the devices have wrong labels, flip the signs of their updates, or claim "
    "to fit cohorts that they don't. Does Auxo find them, and what do honest devices lose?",
    arms=[plain("FedAvg"), cohorts("Auxo"), KEPT_OUT],
    scenarios={
        "nobody lies": {},
        "15 % wrong labels": {"data": {"flip": {"share": 0.15}}},
        "15 % flipped signs": attacked("sign_flip"),
        "15 % forged affinity": attacked("forge_affinity"),
    },
    measures=(
        Measure("accuracy of honest devices", measure_honest, "share", "more", paired=True),
        WORST,
        PRECISION,
        RECALL,
        Measure("shut out, share that lies", measure_shut_rightly, "share", "more"),
        Measure("shut out, share of liars", measure_shut, "share", "more"),
        *AGREES,
        COHORTS,
    ),
    quick=Scale(overlay(QUICK, FOUR), seeds=(1,), scenarios=("15 % wrong labels", "15 % forged affinity")),
    paper=Scale(overlay(TABLE, FOUR), seeds=(1, 2), limit=24),
)
