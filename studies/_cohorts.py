"""What the studies of cohorts have in common: the crowd, the arms, and what is told of them.

MNIST by writer, every writer's digits cut into clients of about 28; the clients are dealt to hidden groups
that see images turned by different angles. A tenth of them is online at a time; 100 train a round in total.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from potluck.core.units import NONE
from potluck.experiment import Run
from potluck.experiment.study import ACCURACY, TRAFFIC, WORST, Arm, Measure, Results
from potluck.metrics import series
from potluck.report import cohorts
from potluck.report.reproduction import make_markdown_table, make_tables

TABLE = {
    "data": {"source": "mnist", "partition": "split_users", "rows_per_client": 28},
    "model": {"name": "mlp"},
    "fleet": {"source": "mobile", "availability": "on_off", "share": 0.1, "period": 300.0},
    "train": {"batch": 10, "epochs": 2, "lr": 0.1},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 5, "panel": 400},
    # Cohorts' rounds are of many sizes, and each size would be captured anew.
    "run": {"executor": "stacked", "graphs": False},
}
QUICK = {
    "data": {"source": "digits", "clients": 60, "partition": "iid"},
    "model": {"name": "linear"},
    "train": {"batch": 10, "epochs": 1, "lr": 0.1},
    "stop": {"rounds": 6},
    "evaluate": {"rounds": 3},
    "run": {"executor": "stacked"},
}
TURNS = {f"{n} groups": {"data": {"groups": {"kind": "rotation", "count": n}}} for n in (2, 3, 4)}
GROUPS: dict[str, dict[str, Any]] = {"1 group": {}, **TURNS}

OVER = 1.3  # asked for one that is waited for: a quarter of the devices may be late
SHARES = {"clients": 100, "cohorts": 4, "fewest": 20, "first_split": 10}


def auxo(
    name: str, inner: str = "fedavg", criterion: Any = "calibrated", tuned_as: str | None = None, **more: Any
) -> Arm:
    """Auxo around a rule, as all of these studies run it."""
    how = {"criterion": criterion, "inner": {"kind": inner, "overcommit": OVER}, **SHARES, **more}
    return Arm(name, "auxo", how, tuned_as=tuned_as)


def plain(name: str, algorithm: str = "fedavg", tuned_as: str | None = None, **more: Any) -> Arm:
    """A rule with one model for all."""
    return Arm(name, algorithm, {"clients": 100, "overcommit": OVER, **more}, tuned_as=tuned_as)


def agree(run: Run, *, seen: bool) -> float | None:
    """The adjusted Rand index at the end: none before the first split."""
    fits = cohorts.measure_final_agreement(run, seen=seen)
    return None if fits is None else fits.rand


def measure_fall(run: Run) -> float | None:
    """How far the index over devices ever seen ends below its best."""
    points = [point.value for point in cohorts.trace_agreement(run, seen=True)]
    return max(points) - points[-1] if points else None


# A device never seen counts by the model that it would use: that of least loss on its own rows.
AGREES = (
    Measure("adjusted Rand index, devices ever seen", partial(agree, seen=True), "number", "more"),
    Measure("devices ever seen, of the panel", cohorts.count_seen),
    Measure("adjusted Rand index, whole panel", partial(agree, seen=False), "number", "more"),
    Measure("devices of the panel", cohorts.count_evaluated),
)
FALL = Measure("how far that of devices ever seen ends below its best", measure_fall, "number", "less")
COHORTS = Measure("cohorts", cohorts.count_cohorts)
BEST10 = Measure("best 10 %", "accuracy_best10", "share")
VARIANCE = Measure("variance", "accuracy_variance", "number", "less")
EFFORT = Measure("device-seconds", "device_seconds", "seconds")


def count_message_bytes(run: Run) -> float | None:
    """Bytes of affinity requests and feedback; None without any."""
    sent = series(run.lines, "affinity_bytes")
    return sent[-1].value if sent else None


MESSAGES = Measure("affinity messages", count_message_bytes, "bytes")
MEASURES = (ACCURACY, WORST, *AGREES, COHORTS, EFFORT, TRAFFIC, MESSAGES)


def speeds(results: Results, scenario: str = "") -> str:
    """Time and device-seconds until the best accuracy of the first arm, as speed-ups over it."""
    first = results.plan.arms[0].name
    base = results.runs[scenario, first]
    rows: dict[str, list[str]] = {}
    for arm in results.plan.arms:
        pairs = []
        for mine, other in zip(results.runs[scenario, arm.name], base, strict=True):
            target = cohorts.find_best(other)
            assert target is not None
            pairs.append(
                (cohorts.find_time_and_effort(mine, target), cohorts.find_time_and_effort(other, target))
            )
        times = [b[0] / a[0] for a, b in pairs if a[0] and b[0]]
        effort = [b[1] / a[1] for a, b in pairs if a[1] and b[1]]
        rows[arm.name] = [_times(times, len(pairs)), _times(effort, len(pairs))]
    columns = [list(rows), *(list(column) for column in zip(*rows.values(), strict=True))]
    return make_markdown_table(["", "speed-up", "resource efficiency"], columns)


def curves(results: Results, scenario: str) -> str:
    """The Rand index over devices ever seen at every evaluation, the mean of the seeds that have one."""
    lines: dict[str, Mapping[int, float]] = {}
    for arm in results.plan.arms:
        by_round: dict[int, list[float]] = {}
        for run in results.runs[scenario, arm.name]:
            for point in cohorts.trace_agreement(run, seen=True):
                by_round.setdefault(point.round, []).append(point.value)
        if by_round:
            lines[arm.name] = {r: sum(v) / len(v) for r, v in by_round.items()}
    if not lines:
        return ""
    every = sorted({r for line in lines.values() for r in line})
    rounds = every[:: -(-len(every) // 10)]
    cells = [[f"{line[r]:.2f}" if r in line else NONE for line in lines.values()] for r in rounds]
    columns = [list(lines), *cells]
    title = f"Adjusted Rand index by round, over devices ever seen (none before a split), {scenario}:"
    return f"{title}\n\n" + make_markdown_table(["", *map(str, rounds)], columns)


def page(results: Results) -> str:
    """All measures, then Rand indices over time for each scenario."""
    parts = [make_tables(results), *(curves(results, scenario) for scenario in results.plan.scenarios)]
    return "\n\n".join(part for part in parts if part)


def _times(values: list[float], of: int) -> str:
    if not values:
        return "not reached"
    mean = sum(values) / len(values)
    return f"{mean:.1f}x" if len(values) == of else f"{mean:.1f}x ({len(values)} of {of} seeds)"
