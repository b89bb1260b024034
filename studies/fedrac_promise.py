"""Whether every phone takes part and nobody is worse off for it: Fed-RAC both ways beside what is simpler.

`potluck study fedrac_promise --scale paper` takes MNIST with its writers and 54 runs, `fedrac_promise_people`
takes UCI HAR and 36: 5 to 20 s of one core each, 10 minutes with `--jobs 2`.

The design, written down before the first run:
- Crowds: 40 phones (the paper's Table III) with activities (IID; Dirichlet(0.5)) and digits (IID;
  Dirichlet(0.5); 40 writers, a phone each). A share of a phone's memory is free for training: such that 14
  phones, a third, can't hold the full model and two hold an eighth of its width only.
- Methods: Fed-RAC by default, the same with nothing shared, and as published (four tiers asked for in all
  three, as the paper does), HeteroFL with the widths of these tiers, FedAvg with the smallest of these
  models, and with the full one, for which whoever can't hold it is too late.
- All have the same seconds (MAR) and 30 rounds, which end at 16 s at the latest; where leader and followers
  take turns, each of them has 30 of their own, in as much time together.
- Nothing is tuned: Adam, at the rate of Fed-RAC's older studies (0.01 for activities, 0.003 for digits), for
  everybody. Seeds 1, 2 and 3. No run is repeated with other settings.
- What counts is the mean over phones of the model that each is served, on the test set that nobody trains
  on; of devices that use several models, of these together. Besides: their own test rows, the poorest tier.
- Expected: by default at most 0.5 point behind FedAvg's smallest model and HeteroFL in every crowd, and ahead
  of both by 1 point in two of five; the poorest tier not below what it reaches with nothing shared
  (tiers have other members and more time there, but the weakest two phones are in the poorest of either).
  Published whichever way it comes out.
"""

from dataclasses import replace
from statistics import fmean
from typing import Any

from _fedrac import (
    HAR,
    KAPPA,
    LATE,
    MNIST,
    PHONES,
    QUICK,
    SHARES,
    TIERS,
    TOOK_PART,
    UNEVEN,
    fedrac,
    level,
    phones,
    served,
    tiered,
    viewed,
)

from potluck import metrics
from potluck.algorithms.fedrac.results import count_tiers, find_members, trace_tier
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Scale, Study, overlay

SECONDS = 16.0  # of a round: the full model takes 6 to 35 s for those who can hold it
ROUNDS = 30
TURNS = {"stop": {"rounds": 2 * ROUNDS}}  # of leader and followers; it ends by itself
UNSHARED = {"share": "own", "use": "tier", "time": {"kappa": KAPPA}}
WRITERS = {
    "data": {
        "partition": "user_devices",
        "clients": None,
        "users": PHONES,
        "devices_per_user": [1, 1],
        "smallest": 10,
    }
}


def used(run: Run) -> float | None:
    """Mean over phones of what each is served first, on the whole test set."""
    if not tiered(run) or not metrics.series(run.lines, "global_accuracy", "known 0"):
        return served(run)
    return fmean(viewed(run, f"known {tier}") or 0.0 for tier in find_members(run).values())


def own(run: Run) -> float | None:
    """Mean over phones and the last three evaluations on their own test rows."""
    return level(metrics.totals(run.lines, "accuracy_mean"))


def count_peopled(run: Run) -> float | None:
    """Tiers that have members; None of methods without tiers."""
    return float(len(set(find_members(run).values()))) if tiered(run) and count_tiers(run) else None


def poorest(run: Run) -> float | None:
    """The poorest tier that has members, or the narrowest level, by its own model; else the only one."""
    if not tiered(run):
        levels = next((r["value"] for r in run.lines if r["metric"] == "levels"), None)
        return viewed(run, f"rate {levels['rates'][-1]:g}") if levels else viewed(run)
    return level(trace_tier(run, max(find_members(run).values())))


def within(rounds: int, seconds: float) -> dict[str, Any]:
    """The same seconds for all, and as many rounds for each that trains everybody at once."""
    plain = {"clients": PHONES, "deadline": seconds}
    return {
        "stop": {"rounds": rounds, "seconds": rounds * seconds + 20.0},
        "algorithms": {
            "fedrac": {"rounds": rounds, "time": {"mar": rounds * seconds}},
            "fedavg": plain,
            "heterofl": plain,
        },
    }


def compare(width: float) -> list[Arm]:
    """The methods; `width`: of the smallest model."""
    four = {"clustering": {"k": TIERS}}
    return [
        Arm("Fed-RAC", "fedrac", four),
        Arm("Fed-RAC, nothing shared", "fedrac", {**four, **UNSHARED}, TURNS),
        fedrac("Fed-RAC, published"),
        Arm("HeteroFL", "heterofl", {"rates": list(SHARES)}),
        Arm("FedAvg, smallest model", "fedavg", changes={"model": {"width": width}}),
        Arm("FedAvg, full model", "fedavg"),
    ]


def on_phones(base: dict[str, Any], rows: int, memory: float) -> dict[str, Any]:
    """A crowd's experiment with so many rows, and this share of a phone's memory free for training."""
    few = {"data": {"limit": rows}, "fleet": phones(memory), "evaluate": {"rounds": 3}}
    return overlay(base, few, {"run": {"executor": "stacked"}}, within(ROUNDS, SECONDS))


STUDY = Study(
    title="Fed-RAC: every phone takes part, handwritten digits",
    question="40 phones, of which a third can't hold the full model. Is each served as good a model as the "
    "smallest, trained by all, would be, and as HeteroFL's?",
    arms=compare(SHARES[-1]),
    scenarios={"IID": {}, "Dirichlet 0.5": UNEVEN, "writers": WRITERS},
    measures=(
        TOOK_PART,
        Measure("mean over phones", used, "share", "more", paired=True),
        Measure("by their tier's model", served, "share", "more"),
        Measure("own rows", own, "share", "more"),
        Measure("poorest tier", poorest, "share", "more"),
        Measure("tiers with members", count_peopled),
        LATE,
        TRAFFIC,
    ),
    notes=f"As in Fed-RAC's older studies, kappa is {KAPPA} where tiers have times of their own.",
    quick=Scale(
        overlay(QUICK, {"model": {"width": 1.0}, "fleet": phones(1 / 30_000)}, within(3, 0.6)),
        seeds=(1,),
        scenarios=("IID",),
    ),
    paper=Scale(on_phones(MNIST, 4000, 1 / 1750), seeds=(1, 2, 3), limit=54),
)
STUDIES = {
    "people": replace(
        STUDY,
        title="Fed-RAC: every phone takes part, activities of people",
        question="As above.",
        arms=compare(SHARES[-1] * HAR["model"]["width"]),
        scenarios={"IID": {}, "Dirichlet 0.5": UNEVEN},
        paper=Scale(on_phones(HAR, 3676, 1 / 4700), seeds=(1, 2, 3)),
    )
}
