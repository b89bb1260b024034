"""Pages of results: a section for each study, between markers, written anew when the study is run."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from potluck import algorithms as registry
from potluck.core.units import NONE, duration, number, size
from potluck.experiment.study import Measure, Results, Study
from potluck.experiment.summary import tell_tested
from potluck.layers import drop_fitted
from potluck.report.choices import (
    CHOICE_HEAD,
    list_choices,
    list_trials,
    name_choices,
    tell_choice,
    tell_chosen,
)
from potluck.report.columns import (
    describe_end,
    describe_federation,
    explain_intervals,
    tell_estimate,
    tell_global_test,
    tell_percents,
    tell_points,
)

PAGES = Path("docs/results")
HEAD = """# {title}: results

## How to read the sections

Every section is written by `potluck study NAME --scale paper`, from the file `studies/NAME.py` or, if
it is a variant, from the file whose name its own begins with. Sections marked as quick show that a study
works; they say nothing about the methods.

± is half of the 95 % interval of a mean over seeds, by Student's t; with fewer than three seeds there is
none. The global test is on rows that no device holds: the mean over devices of the model that each uses, or
the shared model where devices use models of their own.
"""


def find_page(name: str, study: Study) -> Path:
    """The page that a study is written into: its own, or that of its family, which its name begins with."""
    return PAGES / f"{study.results or name.partition('_')[0]}.md"


def write_section(results: Results) -> str:
    """A study's results as Markdown: the study's own page or tables of all measures, and what was run."""
    study, plan = results.plan.study, results.plan
    quick = "" if plan.name == "paper" else " (quick)"
    parts = [f"## {study.title}{quick}", study.question]
    if quick:
        parts.append("**A quick run, seconds on small data: it shows that the study works, and no more.**")
    parts += [make_tables(results) if study.page is None else study.page(results), study.notes]
    parts += [make_tuning_tables(results), describe_runs(results)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def replace_section(page: Path, results: Results, text: str) -> bool:
    """Put a section in the place of the study's older one; a quick one never replaces a paper's."""
    title = page.stem.replace("_", " ").capitalize()
    content = page.read_text(encoding="utf-8") if page.exists() else HEAD.format(title=title)
    name, scale = results.name, results.plan.name
    found = re.search(
        rf"<!-- study {re.escape(name)}, (\w+) -->.*?<!-- end of {re.escape(name)} -->\n", content, re.DOTALL
    )
    if found and found[1] == "paper" and scale != "paper":
        return False
    marked = f"<!-- study {name}, {scale} -->\n\n{text}\n<!-- end of {name} -->\n"
    if found:
        content = content[: found.start()] + marked + content[found.end() :]
    else:
        content = f"{content.rstrip()}\n\n{marked}"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(content, encoding="utf-8")
    return True


def make_tables(results: Results) -> str:
    """Arms by measures; with several scenarios, a table of arms by scenarios for each measure."""
    study, scenarios = results.plan.study, results.plan.scenarios
    if len(scenarios) == 1:
        return make_table_of_measures(results, scenarios[0]) + _write_legend(results)
    parts = [f"{measure.name}:\n\n{make_table_of_scenarios(results, measure)}" for measure in study.measures]
    return "\n\n".join(parts) + _write_legend(results)


def make_table_of_measures(results: Results, scenario: str = "") -> str:
    """One line an arm, one column a measure, and differences to the first arm."""
    arms, first = [arm.name for arm in results.plan.arms], results.plan.arms[0].name
    columns: list[tuple[str, list[str]]] = []
    for measure in results.plan.study.measures:
        columns.append((measure.name, _mark_best(results, measure, arms, scenario)))
        if measure.paired and len(results.plan.scale.seeds) > 1:
            columns.append(
                (f"vs {first}", [_tell_difference(results, measure, arm, scenario) for arm in arms])
            )
    chosen = results.tunings.get(scenario)
    if chosen is not None:
        taken = {arm.name: arm.tuned_as or arm.name for arm in results.plan.arms}
        columns.append((name_choices(chosen), [tell_chosen(chosen, taken[arm]) for arm in arms]))
    return make_markdown_table(["", *(name for name, _ in columns)], [arms, *(texts for _, texts in columns)])


def make_table_of_scenarios(results: Results, measure: Measure) -> str:
    """One measure: one line an arm, one column a scenario, differences to the first arm in brackets."""
    arms = [arm.name for arm in results.plan.arms]
    columns = []
    for scenario in results.plan.scenarios:
        texts = _mark_best(results, measure, arms, scenario)
        if measure.paired and len(results.plan.scale.seeds) > 1:
            apart = [_tell_difference(results, measure, arm, scenario) for arm in arms]
            texts = [t if d == NONE else f"{t} ({d})" for t, d in zip(texts, apart, strict=True)]
        columns.append(texts)
    return make_markdown_table(["", *results.plan.scenarios], [arms, *columns])


def make_tuning_tables(results: Results) -> str:
    """What was chosen, and every trial with what came of it."""
    parts = []
    for scenario, found in results.tunings.items():
        where = f" in {scenario}" if scenario else ""
        tried: dict[str, list[str]] = {}
        for trial in list_trials(found):
            text = f"{trial.settings}: {trial.accuracy}"
            tried.setdefault(trial.method, []).append(f"**{text}**" if trial.chosen else text)
        lines = [[*line, "; ".join(tried[line.method])] for line in list_choices(found)]
        head = [f"tuned{where}", *CHOICE_HEAD, "all of them"]
        parts.append(
            f"Tuning{where}. {tell_choice(found)}\n\n{make_markdown_table(head, [*zip(*lines, strict=True)])}"
        )
    return "\n\n".join(parts)


def describe_runs(results: Results) -> str:
    """Enough to do it again."""
    plan = results.plan
    runs = [run for same in results.runs.values() for run in same]
    settings = "".join(f" --set {setting}" for setting in plan.settings)
    command = f"potluck study {results.name} --scale {plan.name}{settings}"
    last = max(run.summary["finished"] or "" for run in runs)[:10]
    walls = [run.summary["wall_seconds"] for run in runs]
    tried = sum(
        len(trial["results"]) for t in results.tunings.values() for own in t.results.values() for trial in own
    )
    trials = f" after {tried} trials" if tried else ""
    what, end = describe_federation(runs[0].experiment), describe_end(runs[0].experiment)
    return (
        f"Run by `{command}`, last on {last}, on {'; '.join(results.machines)}. {what}; "
        f"{end}; seeds {', '.join(map(str, plan.scale.seeds))}. {len(runs)} runs{trials}, "
        f"{duration(sum(walls))} of real time, the longest {duration(max(walls))}. {_tell_fidelity(results)}"
    )


def _tell_fidelity(results: Results) -> str:
    """What the arms' rules were taken from."""
    arms: dict[str, list[str]] = {}
    for arm in results.plan.arms:
        layers = drop_fitted(arm.changes.get("layers", []))
        how = "stacked by Potluck" if layers else f"by the {registry.fidelity(arm.algorithm)}"
        arms.setdefault(how, []).append(arm.name)
    sources = [f"{', '.join(names)} {how}" for how, names in sorted(arms.items())]
    return f"Rules: {'; '.join(sources)}."


def make_markdown_table(head: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *zip(*columns, strict=True)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def _mark_best(results: Results, measure: Measure, arms: Sequence[str], scenario: str) -> list[str]:
    means = [results.estimate(measure, arm, scenario).mean for arm in arms]
    known = [mean for mean in means if mean is not None]
    best = {"more": max, "less": min}[measure.better](known) if measure.better and known else None
    texts = [_tell_value(results, measure, arm, scenario) for arm in arms]
    won = [mean is not None and mean == best and len(arms) > 1 for mean in means]
    return [f"**{text}**" if first else text for text, first in zip(texts, won, strict=True)]


def _tell_value(results: Results, measure: Measure, arm: str, scenario: str) -> str:
    values = results.values(measure, arm, scenario)
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        missing = "not reached" if measure.unit == "seconds" else NONE
        return f"{len(there)} of {len(values)} seeds" if there else missing
    found = results.estimate(measure, arm, scenario)
    if measure.unit == "share":
        return tell_percents(found)
    text: dict[str, Callable[[float], str]] = {"seconds": duration, "bytes": size}
    tell = text.get(measure.unit, number)
    return tell_estimate(found, tell, tell)


def _tell_difference(results: Results, measure: Measure, arm: str, scenario: str) -> str:
    if arm == results.plan.arms[0].name:
        return NONE
    found = results.difference(measure, arm, scenario)
    if measure.unit == "share":
        return tell_points(found)
    return tell_estimate(found, lambda mean: f"{'+' if mean >= 0 else ''}{number(mean)}", number)


def _write_legend(results: Results) -> str:
    seeds = len(results.plan.scale.seeds)
    if seeds < 2:
        return f"\n\nOne seed. Times are on the virtual clock; bold is best.{_tell_models(results)}"
    return (
        f"\n\nMeans of {seeds} seeds; {explain_intervals(seeds)}. Differences are paired by seed, those of "
        "accuracies in percentage points. Times are on the virtual clock; bold is best."
        f"{_tell_models(results)}"
    )


def _tell_models(results: Results) -> str:
    """Which models the global test is of, if that is told."""
    if all(measure.of != "global_accuracy" for measure in results.plan.study.measures):
        return ""
    tested = {
        arm.name: tell_tested(
            run.summary for (_, name), runs in results.runs.items() if name == arm.name for run in runs
        )
        for arm in results.plan.arms
    }
    told = tell_global_test(tested)
    return f" {told[0].upper()}{told[1:]}."
