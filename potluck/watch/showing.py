"""What the page is told: a run and a group as tables of plain values, and how a race stands."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from potluck.core.codec import Json
from potluck.core.plain_text import show_controls
from potluck.core.units import duration, percent
from potluck.experiment import Experiment, Run
from potluck.report.canvas import INK, pick_colour, pick_shade
from potluck.report.cohorts import ROOT
from potluck.report.columns import describe_end, describe_federation, list_remarks
from potluck.report.curves import find_band
from potluck.report.hierarchy import name_by_tier
from potluck.report.note_figures import name_numbered, read_notes, read_of
from potluck.report.verdict import CLOSE, join_names, tell_verdict
from potluck.watch.gathering import Group
from potluck.watch.heard import Point, thin
from potluck.watch.live_run import WRONG, LiveRun

AXES: dict[str, Callable[[Point], float]] = {
    "time": lambda p: p["time"],
    "sent": lambda p: p["sent"],
    "round": lambda p: p["round"],
}
T = TypeVar("T")
NAMED = 8  # groups of devices that are told apart; of more, the smallest are one


def tell_run(run: LiveRun, arm: str, colour: int) -> dict[str, Json]:
    """All that is shown of a run."""
    heard, beat = run.heard, run.beats[-1] if run.beats else None
    points = thin(heard.points)
    last = heard.points[-1] if heard.points else None
    beats = thin(run.beats)
    remarks: list[Json] = [] if run.summary is None else [f"{r['text']}. Likeliest cause: {r['cause']}."
                                                         for r in run.summary["remarks"]]  # fmt: skip
    undone = sum(r["metric"] == "undone" for r in heard.kept)
    if undone and run.summary is None:
        merges = "a merge" if undone == 1 else f"{undone} merges"
        remarks.append(f"{merges} made numbers NaN or infinite and had to be undone.")
    lost: dict[str, Json] = {**heard.lost, **(beat["lost"] if beat and run.summary is None else {})}
    return {
        "arm": arm,
        "colour": pick_colour(colour),
        "seed": run.experiment.seed,
        "state": run.state,
        "why": run.why,
        "done": run.done,
        "left": None if run.left is None else duration(run.left),
        "took": None if run.summary is None else duration(run.summary["wall_seconds"]),
        "round": max(heard.round, beat["round"] if beat else 0),
        "time": max(heard.time, beat["time"] if beat else 0.0),
        "accuracy": None if last is None else last["accuracy"],
        "worst": next((r["value"] for r in reversed(heard.kept)
                       if r["metric"] == "accuracy_worst10" and r.get("view") == heard.view), None),
        "points": {
            "accuracy": [100 * p["accuracy"] for p in points],
            **{name: [axis(p) for p in points] for name, axis in AXES.items()},
        },
        "crowd": {name: [b[name] for b in beats] for name in ("time", "devices", "online", "working")},
        "tasks": heard.counters.get("tasks") if beat is None else beat["tasks"],
        "lost": lost,
        "sent": {f"{tier} {way.removeprefix('bytes_')}": n for (way, tier), n in heard.sent.items()},
        "traffic": {name: [b[name] for b in beats] for name in ("time", "up", "down")},
        "groups": _tell_groups(run),
        "splits": _tell_splits(run),
        "notes": _tell_notes(run),
        "remarks": remarks,
        "path": str(run.path),
    }  # fmt: skip


def tell_group(group: Group, ids: Sequence[str], root: Path) -> dict[str, Json]:
    """All that is shown of runs that belong together; `ids`: what the page calls them."""
    compared, experiment = group.compare(), group.experiment
    shares = [run.done for run in group.runs] + [0.0] * len(group.waiting)
    curves: list[Json] = []
    for name in group.names:
        mine = [run for run, arm in zip(group.runs, group.arms, strict=True) if arm == name]
        curves.append({
            "name": name,
            "colour": pick_colour(group.names.index(name)),
            "axes": {axis: _tell_curve(mine, axis) for axis in AXES},
        })  # fmt: skip
    return {
        "title": group.title,
        "about": _describe(experiment),
        "path": str(group.path),
        "where": str(group.path.relative_to(root)) if group.path.is_relative_to(root) else str(group.path),
        "runs": list(ids),
        "waiting": [{"arm": e.arm, "seed": e.seed, "colour": pick_colour(group.names.index(e.arm))}
                    for e in group.waiting],
        "done": fmean(shares) if shares else 0.0,
        "curves": curves,
        "target": experiment.stop.target or experiment.evaluate.target,
        "verdict": _try(lambda: tell_standing(group), ""),
        "remarks": _try(lambda: _list(list_remarks(compared)), _list([])),
    }  # fmt: skip


def _describe(experiment: Experiment) -> str:
    """Of which crowd it is, and until when; only the latter where others' code would have to tell."""
    end = f"until {describe_end(experiment)}"
    return _try(lambda: f"{describe_federation(experiment.resolve())}; {end}", end)


def _list(texts: Sequence[str]) -> list[Json]:
    return [*texts]


def _try(tell: Callable[[], T], else_: T) -> T:
    """What is told, where what others wrote makes sense."""
    try:
        return tell()
    except WRONG:
        return else_


def tell_standing(group: Group) -> str:
    """The verdict where there can be one; before, who is ahead where all that have begun have been."""
    ended = sum(run.state == "finished" for run in group.runs)
    total = len(group.runs) + len(group.waiting)
    if len(group.names) < 2:
        return ""
    if ended == total:
        return tell_verdict(group.compare())
    begun = [(arm, run.heard.points) for arm, run in zip(group.arms, group.runs, strict=True)]
    begun = [(arm, points) for arm, points in begun if len(points) > 1]
    come = f"{ended} of {total} runs have ended; the verdict comes when all have"
    stopped = sum(run.state == "stopped" for run in group.runs)
    if stopped and not any(run.state in ("starting", "running") for run in group.runs):
        again = (
            f"`potluck resume {group.path}` goes on" if group.experiment.compare else "they can be resumed"
        )
        are = "is" if stopped == 1 else "are"
        come = f"{ended} of {total} runs have ended and {stopped} {are} stopped: {again}"
    arms = list(dict.fromkeys(arm for arm, _ in begun))
    if len(arms) < 2:
        return f"No verdict yet: {come}."
    until = min(points[-1]["time"] for _, points in begun)
    there = [(arm, [p["accuracy"] for p in points if p["time"] <= until][-1]) for arm, points in begun]
    means = {arm: fmean(a for name, a in there if name == arm) for arm in arms}
    first, *_ = order = sorted(means, key=lambda arm: -means[arm])
    told = join_names([f"{arm} {percent(means[arm])}" for arm in order])
    close = [arm for arm in order if means[first] - means[arm] < CLOSE]
    who = f"{join_names(close)} are within a point" if close[1:] else f"{first} is ahead"
    where = f"after {duration(until)} of virtual time, which every run that has begun has reached"
    return f"So far, {where}, {who}: {told}. {come[0].upper()}{come[1:]}."


def _tell_curve(runs: Sequence[LiveRun], axis: str) -> dict[str, Json]:
    """Mean, least and greatest over the runs that have been looked at twice, as far as all of them go."""
    lines = []
    for run in runs:
        points = thin(run.heard.points)
        if len(points) > 1:
            lines.append(([float(AXES[axis](p)) for p in points], [100 * p["accuracy"] for p in points]))
    x, middle, low, high = find_band(lines)
    return {"x": list(x), "y": list(middle), "low": list(low), "high": list(high), "runs": len(lines)}


def _tell_groups(run: LiveRun) -> dict[str, Json]:
    """How many devices each group has, over time: the largest by name, the rest together."""
    sizes = run.heard.sizes
    names = sorted({name for count in sizes.values() for name in count}, key=lambda n: (len(n), n))
    if len(names) > NAMED:
        most = {name: max(count[name] for count in sizes.values()) for name in names}
        large = set(sorted(names, key=lambda name: -most[name])[: NAMED - 1])
        names = [name for name in names if name in large]
        rest = [float(sum(c.values()) - sum(c[n] for n in names)) for c in sizes.values()]
    else:
        rest = []
    times = list(sizes)
    places = thin(range(len(times)))
    counts = {name: [float(sizes[times[i]][name]) for i in places] for name in names}
    if rest:
        counts["others"] = [rest[i] for i in places]
    word, parts = read_of(run.experiment.algorithm).group, [name for name in counts if name != ROOT]
    series: list[Json] = [
        {
            "name": name_numbered(name, word),
            "colour": INK if name == ROOT else pick_shade(parts.index(name)),
            "y": [*y],
        }
        for name, y in counts.items()
    ]
    return {"time": [times[i] for i in places], "series": series}


def _tell_splits(run: LiveRun) -> list[Json]:
    """When which group became which others."""
    word = read_of(run.experiment.algorithm).group
    return [
        {
            "time": s["time"],
            "group": name_numbered(s["group"], word),
            "into": [name_numbered(name, word) for name in s["into"]],
        }
        for s in run.heard.splits
    ]


def _tell_notes(run: LiveRun) -> list[Json]:
    """What groups noted last, in the words that the algorithm has for it."""
    if not run.heard.numbers:
        return []
    words = read_notes(Run(run.experiment, run.to_run().summary, run.path)).words
    word = read_of(run.experiment.algorithm).group
    last = run.to_run().devices if run.summary else None
    tiers = last["tiers"] if last else run.beats[-1]["tiers"] if run.beats else {}
    told: list[Json] = []
    for thing, groups in run.heard.numbers.items():
        values: dict[str, Json] = {
            name_numbered(name_by_tier(tiers, g), word): n if math.isfinite(n) else None
            for g, n in groups.items()
        }
        told.append({"what": words.get(thing, thing.replace("_", " ")), "groups": values})
    return told


def clean(value: Json) -> Json:
    """Texts without controls, numbers that JSON can hold and to as many digits as are seen."""
    if isinstance(value, str):
        return show_controls(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {show_controls(str(key)): clean(each) for key, each in value.items()}
    return value
