"""What only the weak know: two classes are on the smallest phones alone; how may the others learn of them?

`potluck study fedrac_weak --scale paper` takes MNIST and 9 runs of 5 to 20 s of one core each, 2 minutes
with `--jobs 2`; with the arm that is deleted now it was 12.

The design, written down before the first run:
- The crowd: 40 phones (the paper's Table III), 4,000 digits, 90 a phone to train, validate and test. The
  eleven phones of 3 GB or less count as of 1 GB, which train an eighth of the full width and no more. All
  rows of the digits 8 and 9 are theirs, in even shares; the other eight digits fill everybody up, by chance.
- Arms: Fed-RAC by default, in which a device heeds each model for the classes that it has learnt from (`use =
  "known"`); layers averaged across tiers after every round (`mixing.back = 1`); the same with heads class by
  class (`mixing.heads`), so that what the smallest tier has learnt of a class goes up into every model; and
  FedAvg with the smallest model, which all phones train and which knows all ten classes.
- The same seconds for all, 30 rounds, Adam at 0.003, nothing tuned, seeds 1, 2 and 3.
- What counts: the mean over phones of what each is served on the test set, the same of each tier's own model
  (nothing heeded), and the phones that aren't in the smallest tier: who knows nothing of two classes in ten
  ends at 80 % at most.
- Expected: heeding lifts richer phones above 80 %; feeding back alone doesn't lift their own models, heads
  class by class do; neither is above FedAvg's smallest model by more than 2 points. Published whichever way.

What came of it: heads class by class change nothing (by tiers' models 75.2 ± 0.3 % on richer phones with them
and without), so `mixing.heads` is deleted; the study with all arms can be run at commit 57a5c01.
"""

from statistics import fmean

import numpy as np
from _fedrac import MNIST, PHONES, QUICK, SHARES, TIERS, phones, served, tiered, viewed
from fedrac_promise import ROUNDS, SECONDS, used, within

from potluck import metrics
from potluck.algorithms.fedrac.results import find_members
from potluck.data import Cut, Partition, Pool, from_rows, register_partition
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Scale, Study, overlay

WEAK = (1, 3, 4, 6, 7, 8, 13, 16, 17, 18, 20)  # of 3 GB or less
RARE = 2  # classes that nobody else has: the last ones


def weak_know(pool: Pool, clients: int, key: int, cut: Cut = Cut()) -> Partition:
    """As many rows for everybody; those of the last classes for some alone, in even shares."""
    rows = np.random.default_rng(key).permutation(pool.free)
    rare = pool.y.numpy()[rows] >= pool.classes - RARE
    own = np.array_split(rows[rare], len(WEAK))
    mine = dict(zip(WEAK, own, strict=True))
    size, common, found = len(rows) // clients, rows[~rare], list[np.ndarray]()
    for node in range(clients):
        first = mine.get(node, common[:0])[:size]
        need = size - len(first)
        found.append(np.concatenate([first, common[:need]]))
        common = common[need:]
    return from_rows(found, pool, key, cut)


register_partition("weak_know", weak_know)


def richer(run: Run) -> float | None:
    """Mean over phones above the smallest tier of what each is served; of others, over all."""
    if not tiered(run):
        return viewed(run)
    where = find_members(run)
    last = max(where.values())
    view = "known" if metrics.series(run.lines, "global_accuracy", "known 0") else "tier"
    found = [viewed(run, f"{view} {tier}") or 0.0 for tier in where.values() if tier < last]
    return fmean(found) if found else None


CROWD = {"data": {"partition": "weak_know", "clients": PHONES}}
FOUR = {"clustering": {"k": TIERS}}

STUDY = Study(
    title="Fed-RAC: what only the weak know",
    question="Two of ten classes are on the smallest phones alone. Do the others learn of them?",
    arms=[
        Arm("Fed-RAC", "fedrac", FOUR),
        Arm("fed back", "fedrac", {**FOUR, "mixing": {"back": 1.0}}),
        Arm("FedAvg, smallest model", "fedavg", changes={"model": {"width": SHARES[-1]}}),
    ],
    measures=(
        Measure("mean over phones", used, "share", "more", paired=True),
        Measure("by their tier's model", served, "share", "more"),
        Measure("phones above the smallest tier", richer, "share", "more", paired=True),
        TRAFFIC,
    ),
    quick=Scale(
        overlay(
            QUICK, CROWD, {"model": {"width": 1.0}, "fleet": phones(1 / 30_000, WEAK)}, within(3, SECONDS)
        ),
        seeds=(1,),
    ),
    paper=Scale(
        overlay(
            MNIST,
            CROWD,
            {
                "data": {"limit": 4000},
                "fleet": phones(1 / 1750, WEAK),
                "evaluate": {"rounds": 3},
                "run": {"executor": "stacked"},
            },
            within(ROUNDS, SECONDS),
        ),
        seeds=(1, 2, 3),
        limit=9,
    ),
)
