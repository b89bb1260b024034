"""What a round is made of, device by device: queue, download, training, upload, waiting for others."""

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from potluck.engine.timeline import KEPT
from potluck.experiment import Comparison, Run
from potluck.report.canvas import fit_rows, make_figure, pick_shade, pick_time_unit

PARTS = ("queued", "download", "train", "upload", "wait")
LOST = "called off"
PALE = "rgba(128,128,128,0.35)"  # a colour, not an opacity: legends don't show that
SHOWN = 40  # tasks in a picture


class Tasks(NamedTuple):
    """The last tasks of a run; seconds by part, and those that came to nothing."""

    barrier: NDArray[np.int64]
    node: NDArray[np.int64]
    began: NDArray[np.float64]
    seconds: dict[str, NDArray[np.float64]]  # by part
    fate: list[str]

    def only(self, places: NDArray[np.int64]) -> "Tasks":
        parts = {name: column[places] for name, column in self.seconds.items()}
        fate = [self.fate[i] for i in places]
        return Tasks(self.barrier[places], self.node[places], self.began[places], parts, fate)


def read_last_tasks(run: Run) -> Tasks | None:
    """Of rounds that are known as a whole: only some tasks are kept, and half a round has no end."""
    columns = None if run.devices is None else run.devices["tasks"]
    if columns is None or not columns["node"]:
        return None
    barrier, began, ended = (np.array(columns[name]) for name in ("barrier", "began", "ended"))
    down, compute, up = (np.array(columns[name]) for name in ("down", "compute", "up"))
    opened, closed = np.full(barrier.max() + 1, np.inf), np.zeros(barrier.max() + 1)
    np.minimum.at(opened, barrier, began)
    np.maximum.at(closed, barrier, ended)
    answered = np.array([not fate for fate in columns["fate"]])
    seconds = {
        "queued": began - opened[barrier],
        "download": np.where(answered, down, 0.0),
        "train": np.where(answered, compute, 0.0),
        "upload": np.where(answered, up, 0.0),
        "wait": np.where(answered, closed[barrier] - ended, 0.0).clip(0),
        LOST: np.where(answered, 0.0, ended - began),
    }
    tasks = Tasks(barrier, np.array(columns["node"]), began, seconds, [str(fate) for fate in columns["fate"]])
    if len(began) < KEPT:
        return tasks
    whole = opened[barrier] >= ended[0]  # begun after all of those that are no longer kept had ended
    return tasks.only(np.flatnonzero(whole)) if whole.any() else tasks


def draw_round(run: Run) -> go.Figure | None:
    """One round of median length; of algorithms without rounds, the last tasks. None without devices.json."""
    tasks = read_last_tasks(run)
    if tasks is None:
        return None
    chosen = tasks.only(_find_median_round(tasks))
    total = sum(chosen.seconds.values())
    busy = total - chosen.seconds["wait"]
    order = np.argsort(-busy, kind="stable")
    if len(order) > SHOWN:
        order = order[np.linspace(0, len(order) - 1, SHOWN).astype(int)]
    chosen = chosen.only(order)
    size, unit = pick_time_unit(float(np.max(total)))
    figure = make_figure(f"virtual time of the round ({unit})", "")
    names = _number_repeats([f"device {node}" for node in chosen.node])
    for i, (part, column) in enumerate(chosen.seconds.items()):
        if column.any():
            figure.add_bar(
                x=column / size,
                y=names,
                name=part,
                orientation="h",
                marker={"color": _pick_part_colour(part, i)},
                text=chosen.fate if part == LOST else None,
                hovertemplate="%{y}: %{x:.3g} " + unit + "<extra>" + part + "</extra>",
            )
    figure.update_layout(barmode="stack", showlegend=True, bargap=0.15)
    return fit_rows(figure, names, each=18)


def draw_shares(comparison: Comparison) -> go.Figure | None:
    """What the mean task of each algorithm consists of; None if no run says."""
    rows: dict[str, dict[str, float]] = {}
    for name in comparison.algorithms:
        found = [tasks for run in comparison.of(name) if (tasks := read_last_tasks(run)) is not None]
        if found:
            rows[name] = {
                part: float(np.mean([tasks.seconds[part].mean() for tasks in found]))
                for part in (*PARTS, LOST)
            }
    if not rows:
        return None
    size, unit = pick_time_unit(max(sum(row.values()) for row in rows.values()))
    figure = make_figure(f"virtual time of a task ({unit})", "")
    for i, part in enumerate((*PARTS, LOST)):
        if any(row[part] for row in rows.values()):
            figure.add_bar(
                x=[row[part] / size for row in rows.values()],
                y=list(rows),
                name=part,
                orientation="h",
                marker={"color": _pick_part_colour(part, i)},
                hovertemplate="%{y}: %{x:.3g} " + unit + "<extra>" + part + "</extra>",
            )
    figure.update_layout(barmode="stack", showlegend=True)
    return fit_rows(figure, list(rows), each=40)


def has_rounds(run: Run) -> bool:
    """Whether devices wait for each other: a round has several tasks."""
    tasks = read_last_tasks(run)
    return tasks is not None and bool((np.bincount(tasks.barrier) > 1).any())


def count_tasks(run: Run) -> int:
    """Tasks of the round that is drawn, of which many are left out."""
    tasks = read_last_tasks(run)
    return 0 if tasks is None else len(_find_median_round(tasks))


def _find_median_round(tasks: Tasks) -> NDArray[np.int64]:
    """The tasks of a round of median length, among those that train with most tasks; else the last tasks."""
    count = np.bincount(tasks.barrier)
    if count.max() < 2:
        return np.arange(len(tasks.barrier))[-SHOWN:]
    work = np.bincount(tasks.barrier, tasks.seconds["train"]) / count.clip(1)
    trains = (count > 1) & (work >= 0.3 * work[count > 1].max())  # probes and the like take next to nothing
    large = np.flatnonzero(trains & (count >= 0.9 * count[trains].max()))
    length = np.zeros(len(count))
    np.maximum.at(length, tasks.barrier, sum(tasks.seconds.values()))
    chosen = large[np.argsort(length[large], kind="stable")[(len(large) - 1) // 2]]
    return np.flatnonzero(tasks.barrier == chosen)


def _number_repeats(names: list[str]) -> list[str]:
    """A device that worked twice has two lines."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _pick_part_colour(part: str, i: int) -> str:
    return PALE if part == "wait" else pick_shade(i)
