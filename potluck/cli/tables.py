"""Results on stdout: a run, a comparison, the algorithms, a folder of runs."""

from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from potluck.algorithms import Description
from potluck.cli.runs_below import RunLine
from potluck.core.echo import PlainConsole
from potluck.core.units import NONE, duration, percent, size
from potluck.experiment import Comparison, Run, Tuning
from potluck.experiment.study import Study
from potluck.experiment.summary import tell_tested
from potluck.layers import LAYERS, Row, find_weighed, list_apart
from potluck.metrics import Outcome, Privacy
from potluck.report.choices import CHOICE_HEAD, JUDGED_BY, list_choices, tell_choice
from potluck.report.columns import (
    ALARM,
    GLOBAL_TEST,
    Column,
    explain_intervals,
    list_columns,
    list_remarks,
    tell_global_test,
    tell_remark,
)

console = PlainConsole()
if not console.is_terminal:
    console.width = 160  # a file has no edge to wrap at


_HOW = {
    "causal": "each row is weighed by a device's rows before it, whose labels it doesn't see",
    "batch": "rows are weighed by all rows of a device, whose labels it doesn't see",
    "labels": "rows are weighed by the labels of those that a device trains on",
}


def show_run(run: Run) -> RenderableType:
    """What a run came to, in a few lines."""
    s, weighed = run.summary, find_weighed(run.experiment.layers, run.experiment.layer)
    lines = {
        "accuracy": f"{percent(s['accuracy_mean'])} mean over devices, on their own {s['evaluated_on']} data",
        "": f"worst tenth {percent(s['accuracy_worst10'])}, best tenth {percent(s['accuracy_best10'])}",
        "prior": f"{_HOW[weighed.form]} (view {s['view']})" if weighed else "",
        "global test": f"{percent(s['global_accuracy'])} on rows that no device holds: {tell_tested([s])}"
        if s["global_view"]
        else "",
        "backdoor": f"{percent(s['backdoor_success'])} of triggered rows are taken for its class"
        if "backdoor_success" in s
        else "",
        "time" if run.deployed else "virtual time": f"{duration(s['virtual_seconds'])}, {s['rounds']} rounds",
        "to target": ""
        if s["target"] is None
        else f"{duration(s['time_to_target'])} to {percent(s['target'])}",
        "traffic": f"{size(s['bytes_up'])} up, {size(s['bytes_down'])} down",
        "devices": f"{s['participants']} took part in {s['tasks']} tasks of {duration(s['device_seconds'])}",
        "lost tasks": _tell_lost(s),
        "privacy": _tell_privacy(s.get("privacy")),
        "real time": duration(s["wall_seconds"]),
        "folder": str(run.path or ""),
    }
    grid = Table.grid(padding=(0, 2))
    for key, text in lines.items():
        if text:
            grid.add_row(f"  {key}", Text(text, overflow="fold"))
    state = "" if run.finished else ", unfinished"
    where = "real devices" if run.deployed else run.experiment.data.source
    mode = run.experiment.algorithms.get(run.experiment.algorithm, {}).get("mode")
    told = s["algorithm"] if mode is None else f"{s['algorithm']} ({mode})"
    title = f"{told} on {where}, seed {s['seed']}{state}"
    return Group(Text(title, style="bold"), grid, *(_alarm(tell_remark(each)) for each in s["remarks"]))


def show_comparison(comparison: Comparison) -> Table:
    """One row an algorithm, the best of each column marked; as many columns as there is room for."""
    shown = list_columns(comparison)
    while True:
        table = _make_comparison(comparison, shown)
        wanted = Measurement.get(console, console.options.update(max_width=1000), table).maximum
        if wanted <= console.width or len(shown) == 1:
            return table
        shown.pop()


def show_remarks(comparison: Comparison) -> RenderableType:
    """What went wrong, a line each."""
    return Group(*map(_alarm, list_remarks(comparison)))


def show_sentence(text: str) -> Text:
    """Words, wrapped where the screen ends."""
    return Text(text, style="bold")


def show_tuning(tuning: Tuning) -> RenderableType:
    """What was chosen for every algorithm, in how many trials."""
    table = Table(title=f"best of the trials by {JUDGED_BY}", title_style="bold")
    table.add_column("algorithm", no_wrap=True)
    for name in CHOICE_HEAD:
        table.add_column(name, justify="right" if name in ("trials", "accuracy") else "left")
    for line in list_choices(tuning):
        table.add_row(*map(Text, line))
    return Group(table, Text(tell_choice(tuning)))


def show_studies(studies: dict[str, Study]) -> Table:
    """Every study and its question."""
    table = _make_plain("study", "title", "question")
    for name, study in studies.items():
        table.add_row(name, Text(study.title), Text(study.question))
    return table


def show_algorithms(descriptions: list[Description]) -> Table:
    """Every algorithm and its paper."""
    table = _make_plain("algorithm", "paper", "rules from")
    for d in descriptions:
        table.add_row(d.name, Text(d.paper), d.fidelity)
    return table


def show_layers(matrix: list[Row]) -> RenderableType:
    """Which layers go around which base rule; below, why others don't."""
    table = _make_plain("algorithm", *LAYERS)
    reasons: dict[str, str] = {}
    for row in matrix:
        letters = []
        for layer in LAYERS:
            reason = row.refused.get(layer)
            if reason is not None:
                reasons.setdefault(reason, "abcdefghijklmnopqrstuvwxyz"[len(reasons)])
            letters.append(row.terms.get(layer, "yes") if reason is None else reasons[reason])
        table.add_row(row.algorithm, *letters)
    told = [f"{letter}: {reason}" for reason, letter in reasons.items()]
    apart = [f"{pair} don't go together: {reason}" for pair, reason in list_apart().items()]
    return Group(table, "", *map(Text, told), "", *map(Text, apart))


def show_algorithm(d: Description) -> RenderableType:
    """An algorithm's paper, idea and parameters."""
    heads = ("potluck", "published, if it differs") if d.modes else ("default",)
    table = _make_plain("parameter", "type", *heads, "meaning")
    for p in d.parameters:
        if p.name != "local":
            defaults = (p.default, p.paper)[: len(heads)]
            table.add_row(p.name, *(Text(text) for text in (p.type, *defaults, p.meaning)))
    train = Text("what this algorithm should have otherwise than [train]")
    table.add_row("train", "table", *("" for _ in heads), train)
    where = (
        f"Set them in [algorithms.{d.name}] of an experiment, or with --set algorithms.{d.name}.NAME=VALUE."
    )
    graded = Text(f"Rules taken from: {d.fidelity}.")
    return Group(Text(d.paper, style="bold"), "", Text(d.idea), "", graded, "", table, "", Text(where))


def show_list(runs: list[RunLine]) -> RenderableType:
    """Runs and how far they are; below, what went wrong."""
    table = _make_plain("folder", "algorithm", "seed", "state", "accuracy")
    for r in runs:
        accuracy = percent(r["accuracy_mean"]) + (f" {ALARM}" if r["remarks"] else "")
        seed = NONE if r["seed"] is None else str(r["seed"])
        texts = (r["folder"], r["algorithm"] or NONE, seed, r["state"], accuracy)
        table.add_row(*(Text(text, overflow="fold") for text in texts))
    told = (f"{r['folder']}: {tell_remark(remark)}" for r in runs for remark in r["remarks"])
    return Group(table, *map(_alarm, told))


def _tell_lost(s: Outcome) -> str:
    """Tasks that were lost, by reason; where nobody's update could be used, what that tends to mean."""
    reasons = ", ".join(f"{n} {why}" for why, n in s["lost"].items())
    hopeless = s["lost"].get("bad") and not s["tasks"]
    return f"{reasons}: no update was made of finite numbers; lower train.lr" if hopeless else reasons


def _tell_privacy(spent: Privacy | None) -> str:
    if spent is None:
        return ""
    known = spent["epsilon"] is not None
    epsilon = (
        f"epsilon {spent['epsilon']:.3g}" if known else "epsilon unknown (pip install 'potluck[privacy]')"
    )
    sent = f"{spent['updates']} updates of the most active device, sigma {spent['sigma']:g}"
    return f"{epsilon} at delta {spent['delta']:g}: {sent}; {spent['model']}"


def _make_comparison(comparison: Comparison, shown: list[Column]) -> Table:
    seeds, name = len(comparison.experiment.seeds), comparison.experiment.name
    alarming = {run.summary["algorithm"] for run in comparison.runs if run.summary["remarks"]}
    notes = [
        "accuracy: mean over devices on their own test data",
        "times are virtual",
        "* is best",
        *([f"{ALARM}: see below"] if alarming else []),
        *(["vs: difference in points, paired by seed", explain_intervals(seeds)] if seeds > 1 else []),
        *([tell_global_test(comparison.tested)] if any(c.name == GLOBAL_TEST for c in shown) else []),
    ]
    table = Table(
        title=f"{name}: mean of {seeds} seeds" if seeds > 1 else name,
        title_style="bold",
        caption="; ".join(notes),
        caption_justify="left",
    )
    table.add_column("algorithm", no_wrap=True)
    for column in shown:
        table.add_column(column.name, justify="right", no_wrap=True)
    for i, algorithm in enumerate(comparison.algorithms):
        named = f"{algorithm} {ALARM}" if algorithm in alarming else algorithm
        table.add_row(named, *(_mark(c.texts[i], i in c.best) for c in shown))
    return table


def _make_plain(*names: str) -> Table:
    return Table(*names, box=None, padding=(0, 2, 0, 0))


def _alarm(text: str) -> Text:
    return Text(f"{ALARM} {text}", style="yellow")


def _mark(text: str, best: bool) -> Text:
    return Text(f"{text} *", style="bold") if best else Text(text)
