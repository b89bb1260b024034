"""What the studies of ClassTer have in common: the crowd, the arms, and what is told of them.

Fashion-MNIST: 10,000 images with 100 clients, labels dealt by Dirichlet, and 2,000 more, without labels, at
the server. Half of the devices may be slow. Curves are of a shift of 100 %: devices are tested on classes
that they don't hold. The server is a graphics card: 0.05 ms a sample, where a phone takes 41.
"""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from statistics import fmean
from typing import Any

from potluck import metrics
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Measure
from potluck.report.per_device import read_at_shift

LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ROUNDS = 100  # of studies of many arms

TABLE: dict[str, Any] = {
    "data": {
        "source": "fashion-mnist",
        "limit": 12_000,
        "server": 1 / 6,
        "clients": 100,
        "alpha": 0.1,
        "shift": 1.0,
    },
    "model": {"name": "mlp"},
    "fleet": {"source": "mix", "preset": "d1", "tiers": {"cloud": {"compute": 0.05}}},
    "train": {"batch": 64, "epochs": 5, "lr": 0.02, "momentum": 0.9},
    "stop": {"rounds": ROUNDS},
    "evaluate": {"rounds": 15, "shifts": [0.0, 1.0]},
    "run": {"executor": "loop"},
}
LENET = {"model": {"name": "lenet5"}, "train": {"epochs": 2}}  # laid over it
QUICK: dict[str, Any] = {
    "data": {"source": "digits", "clients": 20, "alpha": 0.3, "server": 0.2, "shift": 1.0},
    "model": {"name": "mlp", "width": 0.2},
    "fleet": {"source": "mix", "preset": "d1", "tiers": {"cloud": {"compute": 0.05}}},
    "train": {"batch": 10, "epochs": 1, "lr": 0.05},
    "stop": {"rounds": 4},
    "evaluate": {"rounds": 2, "shifts": [0.0, 1.0]},
    "run": {"executor": "loop"},
}
GRID = [0.01, 0.02, 0.05]  # learning rates, of every arm

# As often as the paper's rounds allow, and short: each begins where the last one ended.
DISTIL = {"every": 200, "epochs": 5}


def classter(name: str = "ClassTer", tuned_as: str | None = None, **more: Any) -> Arm:
    """ClassTer in rounds, as published but for what is said here."""
    return Arm(name, "classter", _distilling(more), tuned_as=tuned_as)


def streaming(name: str = "ClassTer async", tuned_as: str | None = None, **more: Any) -> Arm:
    """ClassTer without rounds, likewise."""
    return Arm(name, "classter_async", _distilling(more), tuned_as=tuned_as)


def _distilling(more: dict[str, Any]) -> dict[str, Any]:
    return {"mode": "published", **more, "distil": {**DISTIL, **more.get("distil", {})}}


def others() -> list[Arm]:
    """The baselines."""
    return [
        Arm("FedAvg", "fedavg"),
        Arm("FedAvg+FT", "ftfa", {"tune_epochs": 1}),
        Arm("IFCA", "ifca", {"models": 3}),
        Arm("DM-PFL", "dmpfl"),
    ]


def shifted(share: float, key: str = "mean") -> Callable[[Run], float | None]:
    """A score at a share of shift, at the end."""
    return partial(read_at_shift, share=share, key=key)


def time_to(target: float) -> Callable[[Run], float | None]:
    """Virtual seconds until devices' mean accuracy was first seen to reach a target."""
    return lambda run: metrics.time_to(_curve(run), target)


def bytes_to(target: float) -> Callable[[Run], float | None]:
    """Bytes, up and down, until then."""

    def found(run: Run) -> float | None:
        when = metrics.time_to(_curve(run), target)
        if when is None:
            return None
        counters = [metrics.totals(run.lines, name) for name in ("bytes_up", "bytes_down")]
        return sum(max((p.value for p in points if p.time <= when), default=0.0) for points in counters)

    return found


def find_takeover(run: Run) -> float | None:
    """When the general model was first served: by devices' judgement or, if nobody judges, once distilled."""
    judged = [r["time"] for r in run.lines if r["metric"] == "judged" and r["value"]["served"]]
    unjudged = [r["time"] for r in run.lines if r["metric"] == "calibration"]  # noted where nobody judges
    return min(judged + unjudged, default=None)


def change_at_takeover(run: Run) -> float | None:
    """The mean of all looks from then on, less the best look before."""
    when = find_takeover(run)
    if when is None:
        return None
    before = [p.value for p in _curve(run) if p.time < when]
    after = [p.value for p in _curve(run) if p.time >= when]
    return fmean(after) - max(before) if before and after else None


def largest_fall(run: Run) -> float | None:
    """How far any look is below the best one before it."""
    looks = [p.value for p in _curve(run)]
    return max((best - now for best, now in zip(accumulate(looks, max), looks, strict=True)), default=None)


def distilling(run: Run) -> float | None:
    """Share of the virtual time that the server spent distilling."""
    spent = [r["value"]["seconds"] for r in run.lines if r["metric"] == "distilled"]
    return sum(spent) / run.summary["virtual_seconds"] if spent else None


def _curve(run: Run) -> list[metrics.Measurement]:
    return metrics.series(run.lines, "accuracy_mean", metrics.headline(run.lines))


NO_SHIFT = Measure("no shift", shifted(0.0), "share", "more", paired=True)
FULL_SHIFT = Measure("100 % shift", shifted(1.0), "share", "more", paired=True)
GLOBAL = Measure("global test", "global_accuracy", "share", "more")
# Of methods with two models on a device: what each would get alone, and who answers.
GENERAL = Measure("general alone, 100 %", shifted(1.0, "general"), "share")
OWN = Measure("own alone, no shift", shifted(0.0, "own"), "share")
ANSWERS = Measure("own answers, no shift", shifted(0.0, "personal"), "share")
ANSWERS_SHIFTED = Measure("own answers, 100 %", shifted(1.0, "personal"), "share")
TWO_MODELS = (OWN, GENERAL, ANSWERS, ANSWERS_SHIFTED)
