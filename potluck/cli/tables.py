"""Results on stdout: a run, a comparison, the algorithms, a folder of runs."""

from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from potluck.algorithms import Description
from potluck.experiment import Comparison, Run
from potluck.report.columns import columns
from potluck.report.units import duration, percent, size

console = Console(highlight=False)
if not console.is_terminal:
    console.width = 120  # a file has no edge to wrap at


def of_run(run: Run) -> RenderableType:
    """What a run came to, in a few lines."""
    s, data = run.summary, run.experiment.data
    lines = {
        "accuracy": f"{percent(s['accuracy_mean'])} mean over devices, on their own test data",
        "": f"worst tenth {percent(s['accuracy_worst10'])}, best tenth {percent(s['accuracy_best10'])}",
        "global test": percent(s["global_accuracy"]),
        "virtual time": f"{duration(s['virtual_seconds'])}, {s['rounds']} rounds",
        "traffic": f"{size(s['bytes_up'])} up, {size(s['bytes_down'])} down",
        "devices": f"{s['participants']} took part in {s['tasks']} tasks of {duration(s['device_seconds'])}",
        "lost": ", ".join(f"{n} {why}" for why, n in s["lost"].items()),
        "real time": duration(s["wall_seconds"]),
        "folder": str(run.path or ""),
    }
    if s["target"] is not None:
        lines["time to target"] = f"{duration(s['time_to_target'])} to {percent(s['target'])}"
    grid = Table.grid(padding=(0, 2))
    for key, text in lines.items():
        if text:
            grid.add_row(f"  {key}", text)
    state = "" if run.finished else ", unfinished"
    title = f"{s['algorithm']} on {data.source}, seed {s['seed']}{state}"
    return Group(Text(title, style="bold"), grid)


def of_comparison(comparison: Comparison) -> Table:
    """One row an algorithm; the best of each column is marked."""
    seeds = len(comparison.experiment.seeds)
    title = (
        f"{comparison.experiment.name}: mean of {seeds} seeds" if seeds > 1 else comparison.experiment.name
    )
    caption = "accuracy: mean over devices on their own test data; times are virtual; * is best"
    table = Table(title=title, title_style="bold", caption=caption, caption_justify="left")
    told = columns(comparison)
    table.add_column("algorithm", no_wrap=True)
    for column in told:
        table.add_column(column.name, justify="right", no_wrap=True)
    for i, name in enumerate(comparison.algorithms):
        table.add_row(name, *(_marked(c.texts[i], i in c.best) for c in told))
    return table


def of_algorithms(descriptions: list[Description]) -> Table:
    table = Table("algorithm", "paper", box=None, padding=(0, 2, 0, 0))
    for d in descriptions:
        table.add_row(d.name, d.paper)
    return table


def of_algorithm(d: Description) -> RenderableType:
    """An algorithm's paper, idea and parameters."""
    table = Table(
        f"parameters, in [algorithms.{d.name}]", "type", "default", "", box=None, padding=(0, 2, 0, 0)
    )
    for p in d.parameters:
        if p.name != "local":
            table.add_row(p.name, p.type, p.default, p.meaning)
    table.add_row("train", "table", "", "[train] keys that this algorithm should have otherwise")
    return Group(Text(d.paper, style="bold"), "", d.idea, "", table)


def of_list(runs: list[dict[str, Any]]) -> Table:
    table = Table("folder", "algorithm", "seed", "state", "accuracy", box=None, padding=(0, 2, 0, 0))
    for r in runs:
        table.add_row(
            str(Path(r["folder"])), r["algorithm"], str(r["seed"]), r["state"], percent(r["accuracy_mean"])
        )
    return table


def _marked(text: str, best: bool) -> str:
    return f"[bold]{text} *[/bold]" if best else text
