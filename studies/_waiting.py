"""What the studies of waiting have in common: the crowds, the arms, and what is told of them.

Thirty phones below three edges, 5 to 20 ms from their edge; edges, and phones that have none above them, are
0.1 to 5 s one way from the cloud. Fashion-MNIST by Dirichlet(0.5), an MLP, and what everybody trains by who
sets nothing: SGD at 0.1, batches of 10, one epoch. Nothing is tuned, for nobody. Edges hold as many local
rounds as fit between the cloud's models.

Every arm has the same virtual time and is looked at as often. Accuracy is the mean over devices on their own
test rows, of the last three looks: at the end, and wherever a target counts as reached. The target is 90 % of
the best accuracy that any arm ends at, in the same view, scenario and seed. FedAvg has one view, the cloud's;
it stands for all three. Who misses the target at a seed counts as there at the end of the run, and is marked.
"""

from statistics import fmean
from typing import Any

from potluck import metrics
from potluck.algorithms.fededge import PUBLISHED as FEDEDGE
from potluck.core.units import NONE, duration
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Results
from potluck.metrics import Estimate, Measurement
from potluck.report.columns import tell_estimate
from potluck.report.reproduction import make_markdown_table, make_tables

VIEWS = ("personal", "edge", "global")
TARGET = 0.9  # of the best final accuracy
SMOOTH = 3  # looks
LOOKS = 40
LOCAL = 3.5  # seconds, about, of a local round: of an edge's slowest phone


def away(latency: float, local: float = LOCAL) -> dict[str, Any]:
    """The cloud so many seconds away, one way; time for 25 round trips with a local round each."""
    links = {"edge": {"latency": [0.005, 0.02]}, "cloud": {"latency": [latency, latency]}}
    seconds = 25 * (2 * latency + local)
    return {
        "fleet": {"links": links, "tiers": {"edge": {"latency": latency}}},
        "stop": {"seconds": seconds},
        "evaluate": {"seconds": seconds / LOOKS},
    }


CROWD: dict[str, Any] = {
    "data": {"source": "fashion-mnist", "limit": 6_000, "clients": 30, "alpha": 0.5, "smallest": 20},
    "model": {"name": "mlp", "width": 0.25},
    "fleet": {"source": "mobile", "edges": 3, "compute": 25.0, "down": 1e8},
    "train": {"batch": 10, "epochs": 1, "lr": 0.1},
    "run": {"executor": "stacked", "graphs": False},
    "algorithms": {"fedavg": {"clients": 30}},  # everybody, as at the edges
}
QUICK: dict[str, Any] = {
    "data": {"source": "digits", "limit": 400, "clients": 15, "alpha": 0.5, "smallest": 5},
    "model": {"name": "mlp", "width": 0.05},
    "fleet": {"source": "mobile", "edges": 3, "compute": 6e4},  # so slow that small models take as long
    "train": {"batch": 10, "epochs": 1, "lr": 0.1},
    "run": {"executor": "stacked", "graphs": False},
    "algorithms": {"fedavg": {"clients": 15}},
}

PUBLISHED = Arm("FedEdge, published", "fededge", FEDEDGE)
MAVERICK = Arm("Maverick", "maverick")
HIERFL = Arm("HierFL", "hierfl")


def curve(run: Run, view: str) -> list[Measurement]:
    """Mean accuracy over devices by a view, or by the only one: means of three looks."""
    found = metrics.series(run.lines, "accuracy_mean", view)
    found = found or metrics.series(run.lines, "accuracy_mean", "global")
    means = [fmean(p.value for p in found[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(found))]
    return [Measurement(p.round, p.time, mean) for p, mean in zip(found, means, strict=True)]


def final(view: str) -> Measure:
    """A view's accuracy at the end."""

    def found(run: Run) -> float | None:
        points = curve(run, view)
        return points[-1].value if points else None

    return Measure(view, found, "share", "more", paired=True)


def waiting_rounds(run: Run) -> float:
    """Local rounds that ended while the cloud was silent, of an edge between two of its answers."""
    held = [r["value"] for r in run.lines if r["metric"] == "local_rounds"]
    return fmean(held) - 1 if held else 0.0


MISSED = (
    "\\* At a seed or more one of the two missed the target, which counts as reached at the end of the run."
)
FINALS = tuple(final(view) for view in VIEWS)
WAITED = Measure("rounds while waiting", waiting_rounds)
EFFORT = Measure("device-seconds", "device_seconds", "seconds", "less")
MEASURES = (*FINALS, WAITED, EFFORT, TRAFFIC)


def page(results: Results) -> str:
    """All measures, then times to 90 % of the best final accuracy."""
    parts = [make_tables(results)]
    for scenario in results.plan.scenarios:
        where = f", {scenario}" if scenario else ""
        parts.append(f"Until 90 % of the best final accuracy{where}:\n\n{tell_times(results, scenario)}")
    return "\n\n".join([*parts, *([MISSED] if any("x *" in part for part in parts) else [])])


def tell_times(results: Results, scenario: str) -> str:
    """By view: the time of every arm, and how many times sooner than it Maverick is."""
    arms = [arm.name for arm in results.plan.arms]
    (one, *_) = results.runs[scenario, MAVERICK.name]
    end = one.summary["virtual_seconds"]
    head, columns = [""], [arms]
    for view in VIEWS:
        seconds = reached(results, scenario, view)
        head += [view, f"{MAVERICK.name} is sooner by"]
        columns.append([_time(seconds[arm]) for arm in arms])
        columns.append([_sooner(seconds[MAVERICK.name], seconds[arm], end) for arm in arms])
    return make_markdown_table(head, columns)


def reached(results: Results, scenario: str, view: str) -> dict[str, list[float | None]]:
    """By arm, for each seed: seconds until 90 % of the best accuracy that any arm ends at."""
    curves = {
        arm.name: [curve(run, view) for run in results.runs[scenario, arm.name]] for arm in results.plan.arms
    }
    seeds = range(len(results.plan.scale.seeds))
    targets = [TARGET * max(found[seed][-1].value for found in curves.values()) for seed in seeds]
    return {
        arm: [metrics.time_to(found[seed], targets[seed]) for seed in seeds] for arm, found in curves.items()
    }


def _time(found: list[float | None]) -> str:
    there = [seconds for seconds in found if seconds is not None]
    few = "" if len(there) == len(found) else f" ({len(there)} of {len(found)} seeds)"
    return duration(fmean(there)) + few if there else "not reached"


def _sooner(ours: list[float | None], theirs: list[float | None], end: float) -> str:
    """Over all seeds; a target that was missed counts as reached at the end, which favours who missed it."""
    if ours is theirs:
        return NONE
    times = [(b or end) / (a or end) for a, b in zip(ours, theirs, strict=True)]
    missed = None in ours or None in theirs
    told = tell_estimate(Estimate.of(times), lambda mean: f"{mean:.2f}x", lambda half: f"{half:.2f}")
    return told + (" *" if missed else "")
