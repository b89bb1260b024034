"""What the studies of Fed-RAC have in common: the 40 phones, the arms, and what is told of them.

The phones are those of the paper's Table III. Models here are hundreds of times smaller than those that fill
a phone, so a stated share of a phone's memory counts as free for training: such that the smallest phones
hold half of the full model's width, but not all of it. Who lacks memory swaps, and computes up to 20 times
longer.

All tiers together have MAR seconds. The others have as long: a synchronous round's deadline is MAR over their
rounds, which the full model misses on 8 of the 40 phones. In as many rounds every device trains equally often
in all arms but TiFL, which asks one fifth of the devices at a time and ends at MAR.

From one round to the next accuracy jumps by several points, so at the end it is the mean of the last three
evaluations; of a tier, of those within its own rounds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from _tuning import try_rates

from potluck import metrics
from potluck.algorithms.fedrac.results import (
    count_in_time,
    count_late,
    count_tiers,
    find_members,
    find_trained,
    measure_f1,
    trace_tier,
)
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, overlay
from potluck.fleet import fedrac40
from potluck.metrics import Measurement

PHONES = 40
TIERS = 4  # the paper's best number
SMOOTH = 3  # evaluations
KAPPA = 0.9  # else a leader would have a ninth of the time, in which no phone trains the full model
SHARES = (1.0, 0.5, 0.25, 0.125)  # of the full model's width: the four tiers'


def phones(share: float, small: Sequence[int] = ()) -> dict[str, Any]:
    """[fleet]: the 40 phones, with a share of their memory free for training; some may have 1 GB only."""
    known = fedrac40(PHONES)
    memory = [2.0**30 if node in small else float(m) for node, m in enumerate(known.memory)]
    columns = zip(known.compute, known.down, known.latency, memory, strict=True)
    rows = [
        {"compute": float(c), "down": float(d), "latency": float(late), "memory": share * m}
        for c, d, late, m in columns
    ]
    return {"source": "table", "rows": rows}


MNIST_MEMORY = 1 / 500  # share of it
HAR: dict[str, Any] = {
    "data": {"source": "har", "partition": "iid", "clients": PHONES, "test": 0.1},  # 147 rows to train on
    "model": {"name": "har_cnn_light", "width": 0.5},  # 17,318 parameters; the tiers' least: 490
    "fleet": phones(1 / 2000),
    "train": {"batch": 32, "epochs": 1, "optimizer": "adam", "lr": 0.01},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 5},
    "run": {"executor": "loop"},
}
MNIST: dict[str, Any] = {
    "data": {"source": "mnist", "limit": 10_000, "partition": "iid", "clients": PHONES, "test": 0.1},
    "model": {"name": "mlp", "width": 1.0},  # 159,010 parameters; the tiers' least: 19,885
    "fleet": phones(MNIST_MEMORY),
    "train": {"batch": 64, "epochs": 2, "optimizer": "adam", "lr": 0.003},
    "stop": {"rounds": 20},
    "evaluate": {"rounds": 2},
    "run": {"executor": "loop"},
}
QUICK: dict[str, Any] = {
    "data": {"source": "digits", "partition": "iid", "clients": PHONES},
    "model": {"name": "mlp", "width": 0.5},
    "fleet": phones(1 / 10_000),
    "train": {"batch": 8, "epochs": 1, "optimizer": "adam", "lr": 0.02},
    "stop": {"rounds": 3},
    "evaluate": {"rounds": 1},
    "run": {"executor": "loop"},
}
UNEVEN = {"data": {"partition": "dirichlet", "alpha": 0.5}}
QUARTER = {"data": {"limit": 1838}}  # of HAR's rows
# Windows of one person overlap by half and test rows are other people's, so rates are chosen on others, too.
STRANGERS = {"data": {"validation": 0.2, "validation_from": "users"}}  # 4 of 21 people
QUARTER_WITHOUT = {"data": {"limit": 1485}}  # of the rows of the other 17
GRID = try_rates([0.003, 0.01, 0.03])  # for every arm; whole runs, for half of one is all the leader's


def within(rounds: int, seconds: float, every: int, slack: float = 20.0) -> dict[str, Any]:
    """Rounds of at most so many seconds: what arms of one algorithm share, and when all end.

    `every`: rounds of SHARE's edges for one of its cloud; `slack`: seconds more, as measuring takes time.
    """
    plain = {"clients": PHONES, "deadline": seconds}
    return {
        "stop": {"rounds": rounds, "seconds": rounds * seconds + slack},
        "algorithms": {
            "fedrac": {"rounds": rounds, "time": {"mar": rounds * seconds}},
            "fedavg": plain,
            "heterofl": plain,
            "tifl": {"clients": PHONES // 5, "deadline": seconds},
            "share": {"edge_rounds": every, "deadline": seconds},
        },
    }


# The full model misses these rounds on 8 of the 40 phones.
HAR_TIME = within(60, seconds=32.0, every=5)
MNIST_TIME = within(20, seconds=34.0, every=2)
QUICK_TIME = within(3, seconds=0.6, every=1, slack=3.0)


def fedrac(
    name: str = "Fed-RAC",
    tuned_as: str | None = None,
    k: int | None = TIERS,
    **more: Mapping[str, Any] | bool,
) -> Arm:
    """As published: the leader's rounds, then those of the others; `k` tiers, or None: as the index says."""
    tiers = {} if k is None else {"clustering": {"k": k}}
    rule = overlay({"mode": "published"}, tiers, {"time": {"kappa": KAPPA}}, more)
    ends = {"stop": {"rounds": TIERS * 60}}  # or sooner, by itself: in a chain tiers take turns
    return Arm(name, "fedrac", rule, ends, tuned_as)


def columns(small: float, clouds: int) -> list[Arm]:
    """Table VIII's, and FedAvg on the smallest tier's model, `small` wide; `clouds`: rounds of SHARE."""
    return [
        fedrac(by_class=True),
        Arm("FedAvg", "fedavg"),
        Arm("FedAvg, smallest model", "fedavg", changes={"model": {"width": small}}),
        Arm("HeteroFL", "heterofl", {"rates": list(SHARES)}),
        Arm("TiFL", "tifl", changes={"stop": {"rounds": 5 * 60}}),  # or as many as there is time for
        Arm("SHARE", "share", changes={"stop": {"rounds": clouds}, "evaluate": {"rounds": 1}}),
    ]


# -------------------------------------------------------------------------------------------------- measures


def mean(values: Sequence[float | None]) -> float | None:
    """None without any, or if one is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def tiered(run: Run) -> bool:
    return bool(run.experiment.algorithm == "fedrac")


def level(points: Sequence[Measurement]) -> float | None:
    """At the end: the mean of the last three evaluations; of those between which no round was, the first."""
    seen = {p.round: p.value for p in reversed(points)}
    last = list(seen.values())[:SMOOTH]
    return fmean(last) if last else None


def tier_levels(run: Run) -> list[float | None]:
    """Of every tier's model; None of one that never had members."""
    there = find_trained(run)
    return [level(trace_tier(run, f)) if f in there else None for f in range(count_tiers(run))]


def viewed(run: Run, view: str = "global") -> float | None:
    return level(metrics.series(run.lines, "global_accuracy", view))


def performance(run: Run) -> float | None:
    """The paper's: the plain mean over tiers' models; of others, the global model's accuracy."""
    return mean([f for f in tier_levels(run) if f is not None]) if tiered(run) else viewed(run)


def served(run: Run) -> float | None:
    """Mean over devices of the model that each is served, on the whole test set."""
    if tiered(run):
        found = tier_levels(run)
        return mean([found[tier] for tier in find_members(run).values()])
    levels = next((r["value"] for r in run.lines if r["metric"] == "levels"), None)
    if levels is None:
        return performance(run)
    sizes = [*levels["devices"][:-1], levels["devices"][-1] + levels["unable"]]
    views = ["global", *(f"rate {rate:g}" for rate in levels["rates"][1:])]
    return mean([viewed(run, view) for view, n in zip(views, sizes, strict=True) for _ in range(n)])


def smallest(run: Run) -> float | None:
    """The last tier's model."""
    found = tier_levels(run)
    return found[-1] if found else None


def f1(run: Run) -> float | None:
    """The plain mean over tiers' models, macro."""
    return mean([measure_f1(run, tier) for tier in find_trained(run)])


def overall(run: Run) -> list[Measurement]:
    """Performance over rounds, a tier's own rounds one after another as the paper counts them."""
    if not tiered(run):
        return metrics.series(run.lines, "global_accuracy", "global")
    curves = [trace_tier(run, tier) for tier in find_trained(run)]
    moments = zip(*curves, strict=True)
    return [Measurement(p[0].round + max((q.round for q in p[1:]), default=0), p[0].time,
                  fmean(q.value for q in p)) for p in moments]  # fmt: skip


TOOK_PART = Measure("took part in time", lambda run: float(count_in_time(run)), better="more")
PERFORMANCE = Measure("performance", performance, "share", "more", paired=True)
SERVED = Measure("mean over devices", served, "share", "more", paired=True)
DURATION = Measure("training", "virtual_seconds", "seconds", "less")
LATE = Measure("late updates", lambda run: float(count_late(run)), better="less")
SMALLEST = Measure("smallest tier", smallest, "share", "more", paired=True)
F1 = Measure("F1", f1, "share", "more")
MEASURES = (TOOK_PART, PERFORMANCE, SERVED, DURATION, LATE, TRAFFIC)

ALONE, TAUGHT = "without distillation", "with distillation"
TEACHING = [fedrac(ALONE, distillation={"enabled": False}), fedrac(TAUGHT)]
TEACH = (PERFORMANCE, SERVED, SMALLEST)
