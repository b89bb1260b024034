"""Phones that claim more than they have, with and without Fed-RAC's checks.

`potluck study fedrac_lies --scale paper` takes MNIST and 18 runs of about 12 s of one core, 2 minutes with
`--jobs 2`.
"""

from _fedrac import (
    LATE,
    MNIST,
    MNIST_MEMORY,
    MNIST_TIME,
    PERFORMANCE,
    QUICK,
    QUICK_TIME,
    SERVED,
    TOOK_PART,
    fedrac,
    phones,
)

from potluck.algorithms.fedrac.results import count_rounds_astray, find_members
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Results, Scale, Study, overlay
from potluck.report.reproduction import make_markdown_table, make_tables

LIARS = {
    "rates": [1, 2, 5, 11, 29],  # the slowest five, of 1.1 to 4.1 Mbit/s
    "memory": [31, 33, 39],  # fast ones with good links, which have 1 GB here
}
CLAIMS = {"rates": {"up": 20.0, "down": 20.0}, "memory": {"memory": 6.0}}  # times the truth
FLEETS = {"rates": {}, "memory": phones(MNIST_MEMORY, small=LIARS["memory"])}
SOON = 5  # rounds


def lying(name: str, checked: bool = True) -> Arm:
    return fedrac(name, verification={"remeasure": 0, "enabled": checked})


def honest() -> Arm:
    arm = lying("nobody lies")
    return Arm(arm.name, arm.algorithm, arm.parameters, {**arm.changes, "fleet": {"claims": []}})


def lateness(run: Run, node: int) -> tuple[int, bool]:
    """Rounds that a phone was late in, and whether it still was in the last one of its tier."""
    tier = find_members(run)[node]
    rounds = [r for r in run.lines if r["metric"] == "tier_round"]
    own = [r for r in rounds if r["group"] == tier]
    return sum(node in r["value"]["late"] for r in rounds), bool(own) and node in own[-1]["value"]["late"]


def ended(results: Results, scenario: str) -> str:
    """Where liars are in the end, and how long it took."""
    rows = []
    truth = [find_members(run) for run in results.runs[scenario, results.plan.arms[0].name]]
    for arm in (arm.name for arm in results.plan.arms[1:]):
        each = list(zip(results.runs[scenario, arm], truth, strict=True))
        liars = [(run, node, places[node]) for run, places in each for node in LIARS[scenario]]
        late = [lateness(run, node) for run, node, _ in liars]
        same = sum(count_rounds_astray(run, node, tier) is not None for run, node, tier in liars)
        settled = sum(not still for _, still in late)
        soon = sum(rounds <= SOON and not still for rounds, still in late)
        told = [f"{count} of {len(liars)}" for count in (settled, soon, same)]
        rows.append([arm, *told, f"{max(rounds for rounds, _ in late)}"])
    head = ["", "in time at last", f"after {SOON} late rounds at most", "in the tier of an honest one",
            "most late rounds"]  # fmt: skip
    return make_markdown_table(head, [list(column) for column in zip(*rows, strict=True)])


def page(results: Results) -> str:
    parts = [make_tables(results)]
    for scenario in results.plan.scenarios:
        parts.append(f"Liars, {scenario}, over all seeds:\n\n{ended(results, scenario)}")
    return "\n\n".join(parts)


STUDY = Study(
    title="Fed-RAC: phones that claim too much",
    question="Five phones claim 20 times their rates, or three claim 6 times their memory. Do they end in "
    "the right tier, and what do lies cost where nobody checks?",
    arms=[honest(), lying("lies, checked"), lying("lies, unchecked", checked=False)],
    scenarios={
        name: {"fleet": {**FLEETS[name], "claims": [{"nodes": nodes, **CLAIMS[name]}]}}
        for name, nodes in LIARS.items()
    },
    measures=(PERFORMANCE, SERVED, TOOK_PART, LATE),
    page=page,
    notes="Every phone has rows of four classes only, so that whom nobody hears is missed. Rates are "
    "measured before anybody is placed. Memory can't be, but who is late three times in a row goes a tier "
    "down.",
    quick=Scale(overlay(QUICK, QUICK_TIME), seeds=(1,)),
    paper=Scale(
        overlay(MNIST, MNIST_TIME, {"data": {"partition": "shards", "classes_per_client": 4}}),
        seeds=(1, 2, 3),
    ),
)
