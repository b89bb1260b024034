"""What the studies of ShuffleFL have in common: the crowd, the arms, and what is told of them.

Users with two to five devices each, whose labels differ inside a user by Dirichlet(0.5). Phones and links are
drawn by the run's seed: 13 times between the slowest device and the fastest, 200 times between links, which
change every minute as in the paper's Eq. 15. A fifth of the users, or as many devices, train a round: a user
has three and a half on average. Gateways and edges have a home's line to the cloud. Accuracy is the cloud's
model's on the whole test set, which is of people whom no device has seen.

From one round to the next accuracy jumps by several points, so it is taken as the mean of the last three
evaluations: at the end, and wherever a target counts as reached.
"""

from collections import defaultdict
from statistics import fmean
from typing import Any

from _tuning import try_rates

from potluck import metrics
from potluck.core.units import NONE, duration
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Results
from potluck.metrics import Estimate, Measurement
from potluck.report.columns import tell_estimate, tell_points
from potluck.report.reproduction import make_markdown_table, make_tables

DEVICES_PER_USER = 3.5
SMOOTH = 3  # evaluations
LINE = {"down": 1e8, "up": 2e7, "latency": 0.02}  # bits per second, seconds


def sizes(users: int, devices: int, edges: int, steps: int, seconds: float) -> dict[str, Any]:
    """Equal work a round: so many devices of about `steps` batches that take about `seconds`.

    Below edges they train as much with more merging: an epoch and an average five times (HierFL), or a batch
    and an average every time (FedGS). Only PyramidFL lets fast devices train longer.
    """
    plain = {"clients": devices}
    return {
        "fleet": {"edges": edges},
        "algorithms": {
            "fedavg": plain,
            "oort": plain,
            "flame": {**plain, "seconds": seconds},
            "pyramidfl": {**plain, "most": 4.0},  # else some of its devices would train eleven times as long
            "hierfl": {"clients": devices // edges, "edge_rounds": 5, "train": {"epochs": 1}},
            "fedgs": {"clients": devices // edges, "syncs": steps},
            "shufflefl": {"users": users},
        },
    }


HAR: dict[str, Any] = {
    "data": {
        "source": "har",
        "partition": "user_devices",  # 21 people, some 71 devices of about 80 rows
        "devices_per_user": [2, 5],
        "alpha": 0.5,
        "smallest": 10,
        "test": 0.05,  # devices' own, which nothing is told of here
    },
    "model": {"name": "har_cnn_light", "width": 0.5},
    "fleet": {
        "source": "mobile",
        "compute_spread": 13.0,
        "link_spread": 200.0,
        "jitter": {"every": 60.0, "rates": 0.2},
        "tiers": {"user": LINE, "edge": LINE},
    },
    "train": {"batch": 32, "epochs": 5, "optimizer": "adam", "lr": 0.001},
    "stop": {"rounds": 40},
    "evaluate": {"rounds": 1},
    "run": {"executor": "loop"},  # rows differ too much between devices for stacks
}
HAR_SIZES = sizes(users=4, devices=14, edges=2, steps=15, seconds=50.0)
WRITERS: dict[str, Any] = {
    "data": {
        "source": "mnist",
        "partition": "user_devices",
        "users": 50,  # some 175 devices of about 20 rows
        "devices_per_user": [2, 5],
        "alpha": 0.5,
        "smallest": 6,
        "test": 0.1,
    },
    "model": {"name": "lenet5"},
    "fleet": HAR["fleet"],
    "train": HAR["train"],
    "stop": {"rounds": 24},
    "evaluate": {"rounds": 2},
    "run": HAR["run"],
}
WRITERS_SIZES = sizes(users=10, devices=35, edges=5, steps=5, seconds=15.0)
QUICK: dict[str, Any] = {
    "data": {
        "source": "digits",
        "limit": 400,
        "partition": "user_devices",
        "users": 6,
        "devices_per_user": [2, 3],
        "alpha": 0.5,
    },
    "model": {"name": "mlp", "width": 0.1},
    "fleet": {**HAR["fleet"], "compute": 4e3},  # so slow that small models take as long as others
    "train": {"batch": 16, "epochs": 2, "optimizer": "adam", "lr": 0.01},
    "stop": {"rounds": 3},
    "evaluate": {"rounds": 1},
    "run": {"executor": "stacked"},
}
QUICK_SIZES = sizes(users=2, devices=4, edges=2, steps=3, seconds=50.0)
GRID = try_rates([0.003, 0.01], 0.5)  # for every arm: few rounds want more than the paper's 0.001

FEDAVG = Arm("FedAvg", "fedavg")


def shufflefl(name: str = "ShuffleFL", tuned_as: str | None = None, **more: Any) -> Arm:
    """As published, unless a mode is given."""
    return Arm(name, "shufflefl", {"mode": "published", **more}, tuned_as=tuned_as)


def columns() -> list[Arm]:
    """The paper's seven."""
    return [
        FEDAVG,
        Arm("Oort", "oort"),
        Arm("FLAME", "flame"),
        Arm("PyramidFL", "pyramidfl"),
        Arm("HierFL", "hierfl"),
        Arm("FedGS", "fedgs"),
        shufflefl(),
    ]


# -------------------------------------------------------------------------------------------------- measures


def curve(run: Run) -> list[Measurement]:
    """Accuracy of the cloud's model on the whole test set: means of three evaluations."""
    found = metrics.series(run.lines, "global_accuracy", "global")
    means = [fmean(p.value for p in found[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(found))]
    return [Measurement(p.round, p.time, mean) for p, mean in zip(found, means, strict=True)]


def final(run: Run) -> float | None:
    found = curve(run)
    return found[-1].value if found else None


def round_seconds(run: Run) -> float:
    return float(run.summary["virtual_seconds"] / max(1, run.summary["rounds"]))


def planning(run: Run) -> float:
    """Seconds a round that the slowest of its planners takes; 0 where nothing is planned."""
    rounds: defaultdict[int, float] = defaultdict(float)
    for r in run.lines:
        if r["metric"] == "planning_seconds":
            rounds[r["round"]] = max(rounds[r["round"]], r["value"])
    return sum(rounds.values()) / max(1, run.summary["rounds"])


def rows_moved(run: Run) -> float:
    return float(sum(r["value"] for r in run.lines if r["metric"] == "rows_moved"))


FINAL = Measure("accuracy", final, "share", "more", paired=True)
ROUND = Measure("time of a round", round_seconds, "seconds", "less")
PLANNING = Measure("of it planning", planning, "seconds")
MOVED = Measure("rows moved", rows_moved)
EFFORT = Measure("device-seconds", "device_seconds", "seconds", "less")
MEASURES = (FINAL, ROUND, PLANNING, EFFORT, TRAFFIC, MOVED)


# ----------------------------------------------------------------------------------------------------- pages


def page(results: Results) -> str:
    """All measures, then times to FedAvg's final accuracy."""
    parts = [make_tables(results)]
    for scenario in results.plan.scenarios:
        where = f", {scenario}" if scenario else ""
        parts.append(f"Until FedAvg's final accuracy{where}:\n\n{speeds(results, scenario)}")
    return "\n\n".join(parts)


def speeds(results: Results, scenario: str = "", base: str = FEDAVG.name) -> str:
    """Time until the final accuracy that another arm has at the same seed, and how many times faster."""
    seconds = reached(results, scenario, base)
    rows = []
    for arm, found in seconds.items():
        times = [b / a if a and b else None for a, b in zip(found, seconds[base], strict=True)]
        rows.append([arm, _time(found), _speed_up(times), _rounds(results, scenario, arm, found)])
    columns = [list(column) for column in zip(*rows, strict=True)]
    return make_markdown_table(["", "time", "speed-up", "rounds"], columns)


def reached(results: Results, scenario: str, base: str) -> dict[str, list[float | None]]:
    """By arm, for each seed: seconds until the final accuracy of the arm `base`."""
    targets = [final(run) for run in results.runs[scenario, base]]
    return {
        arm.name: [
            metrics.time_to(curve(run), target)
            for run, target in zip(results.runs[scenario, arm.name], targets, strict=True)
        ]
        for arm in results.plan.arms
    }


def differences(results: Results, base: str, scenario: str = "") -> str:
    """Final accuracy of every other arm less that of `base`, paired by seed."""
    own = results.values(FINAL, base, scenario)
    others = [arm.name for arm in results.plan.arms if arm.name != base]
    apart = [
        tell_points(metrics.paired_difference(results.values(FINAL, arm, scenario), own)) for arm in others
    ]
    return make_markdown_table(["", f"accuracy vs {base}"], [others, apart])


def _time(found: list[float | None]) -> str:
    there = [seconds for seconds in found if seconds is not None]
    return duration(fmean(there)) + _of(there, found) if there else "not reached"


def _speed_up(found: list[float | None]) -> str:
    there = [times for times in found if times is not None]
    if not there:
        return NONE
    told = tell_estimate(Estimate.of(there), lambda mean: f"{mean:.2f}x", lambda half: f"{half:.2f}")
    return told + _of(there, found)


def _rounds(results: Results, scenario: str, arm: str, seconds: list[float | None]) -> str:
    runs = results.runs[scenario, arm]
    taken = [
        next(p.round for p in curve(run) if p.time >= when)
        for run, when in zip(runs, seconds, strict=True)
        if when is not None
    ]
    return f"{fmean(taken):.0f}" if taken else NONE


def _of(there: list[float], found: list[float | None]) -> str:
    return "" if len(there) == len(found) else f" ({len(there)} of {len(found)} seeds)"
