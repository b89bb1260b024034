"""Kinds within kinds: two kinds of turned images, in each two kinds that hold other classes.

Written down before the first run. *Kinds*: half of 1,000 devices see garments upside down; in either half,
nine tenths of a device's rows are of five classes, or of the other five, the same ones in both halves. So
there are four kinds in two levels. *Arms*, at 100 devices a round and 60 rounds: FedAvg; Auxo at its defaults
as in `auxo_labels`, with up to eight cohorts of at least 12 devices, which may part into four at once; and
Auxo that looks for two sides at a time (`most = 2`) and must split twice to come to four. SGD at 0.1, all
devices evaluated, seeds 1 and 2; nothing is tuned.

*Kinds within kinds are found* if in both seeds a cohort that came of a split splits again, there are four at
the end, and Rand indices are 0.8 or more over devices ever seen. *Expected*: of Auxo at its defaults one
split into four and none below, since both differences show from the first rounds on, and four sides agree as
well as two. Of two sides at a time the same four, in two levels, some 5 to 10 rounds apart: which difference
comes first is open (labels move the last layer more, turns the first). Rand index 0.8 or more for both, and
both ahead of FedAvg by 5 points or more. What may fail: with two sides, devices of four kinds in a square
have no main direction, and sides don't persist until one difference outgrows the other.

`potluck study auxo_nested --scale paper` takes Fashion-MNIST and 6 runs of about 20 s of one core.
"""

from functools import partial

from _cohorts import AGREES, COHORTS, Arm, page, plain
from auxo_labels import QUICK, TABLE, cohorts

from potluck.experiment import Run
from potluck.experiment.study import ACCURACY, WORST, Measure, Scale, Study, overlay
from potluck.report.cohorts import measure_agreement, read_hidden_groups, read_memberships

LABELS = {"kind": "labels", "count": 2, "share": 0.9}
NESTED = {"data": {"groups": {"kind": "rotation", "count": 2, "within": LABELS}}}
BY_TWOS: Arm = cohorts("Auxo, two sides at a time", criterion={"kind": "Calibrated", "most": 2})


def list_splits(run: Run) -> list[float]:
    """Their rounds; every one but the first is of a cohort that came of a split."""
    return [float(r["value"]["round"]) for r in run.lines if r["metric"] == "split"]


def count_below(run: Run) -> float:
    return float(max(0, len(list_splits(run)) - 1))


def find_split(run: Run, number: int) -> float | None:
    """The round of a split by its number in order of time, or from the last one: -1."""
    rounds = list_splits(run)
    return rounds[number] if rounds else None


def agree_at_first(run: Run, *, turned: bool) -> float | None:
    """The Rand index with one difference alone, over devices ever seen, when there first are cohorts."""
    first = next((at for at in read_memberships(run.lines) if at.parted), None)
    group = read_hidden_groups(run.lines)
    truth = {node: kind // 2 if turned else kind % 2 for node, kind in group.items()}
    fits = None if first is None else measure_agreement(first, truth, seen=True)
    return None if fits is None else fits.rand


STUDY = Study(
    title="Auxo: kinds within kinds",
    question="Two kinds of devices see garments turned, and in each of them two kinds hold other classes. "
    "Are four found, all at once or level by level?",
    arms=[plain("FedAvg"), cohorts("Auxo"), BY_TWOS],
    scenarios={"2 x 2 kinds": NESTED},
    measures=(
        ACCURACY,
        WORST,
        *AGREES,
        COHORTS,
        Measure("splits of parts", count_below),
        Measure("round of the first split", partial(find_split, number=0)),
        Measure("round of the last split", partial(find_split, number=-1)),
        *(
            Measure(
                f"Rand index with {name} alone, at first", partial(agree_at_first, turned=turned), "number"
            )
            for name, turned in (("turns", True), ("classes", False))
        ),
    ),
    page=page,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(overlay(TABLE, {"evaluate": {"rounds": 5}}), seeds=(1, 2), limit=6),
)
