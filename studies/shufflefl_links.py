"""ShuffleFL over slow links (its Figure 14), and where the time of a round goes.

`potluck study shufflefl_links --scale paper` takes UCI HAR and 34 runs of about 30 s of one core, 8 minutes
with `--jobs 2`.
"""

from _shufflefl import (
    FEDAVG,
    GRID,
    HAR,
    HAR_SIZES,
    LINE,
    MEASURES,
    PLANNING,
    QUICK,
    QUICK_SIZES,
    ROUND,
    page,
    shufflefl,
)

from potluck.core.units import duration
from potluck.experiment.study import Results, Scale, Study, overlay
from potluck.report.reproduction import make_markdown_table

MEDIAN = 6.1e6  # bits per second down, at a factor of 1
FREE = "x1000"  # where links take hardly any time


def bandwidth(factor: float) -> dict[str, object]:
    """All links times a factor, those of gateways too."""
    line = {**LINE, "down": factor * LINE["down"], "up": factor * LINE["up"]}
    return {"fleet": {"down": factor * MEDIAN, "tiers": {"user": line}}}


def split(results: Results) -> str:
    """Time of a round: what it takes without links, what planning takes, and what links add."""
    rows = []
    for arm in (arm.name for arm in results.plan.arms):
        free = (results.mean(ROUND, arm, FREE) or 0.0) - (results.mean(PLANNING, arm, FREE) or 0.0)
        for scenario in results.plan.scenarios:
            whole, plans = (results.mean(m, arm, scenario) or 0.0 for m in (ROUND, PLANNING))
            links = max(0.0, whole - plans - free)
            rows.append([f"{arm}, {scenario}", *map(duration, (whole, free, links, plans))])
    head = ["", "round", "computing", "communication", "planning"]
    return make_markdown_table(head, [list(column) for column in zip(*rows, strict=True)])


def parts(results: Results) -> str:
    said = (
        f"Where the time of a round goes. Computing is what a round takes at {FREE} bandwidth, communication "
        "what it takes longer here; where rows move, plans for slow links leave devices more to compute, and "
        "that counts as communication."
    )
    return f"{page(results)}\n\n{said}\n\n{split(results)}"


STUDY = Study(
    title="ShuffleFL: slow links",
    question="Rows that move must pass through links. Does ShuffleFL stay ahead of FedAvg when these have a "
    "tenth, a hundredth and a two-hundredth of the bandwidth?",
    arms=[FEDAVG, shufflefl()],
    scenarios={"x1": {}, FREE: bandwidth(1000.0), **{f"x{f:g}": bandwidth(f) for f in (0.1, 0.01, 0.005)}},
    measures=MEASURES,
    page=parts,
    notes="The paper has 29 rounds until FedAvg's final accuracy on FEMNIST (FedAvg: 91), and 33, 32 and 32 "
    "at a tenth, a hundredth and a two-hundredth.",
    quick=Scale(overlay(QUICK, QUICK_SIZES), seeds=(1,), scenarios=("x1", FREE, "x0.01")),
    paper=Scale(overlay(HAR, HAR_SIZES, {"stop": {"rounds": 25}}), seeds=(1, 2, 3), tune=GRID),
)
