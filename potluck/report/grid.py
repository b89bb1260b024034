"""What tuning tried and chose, for a terminal and for pages alike."""

from typing import NamedTuple

from potluck.experiment import Tuning
from potluck.report.units import percent

SAID = "mean accuracy on devices' validation rows"


class Line(NamedTuple):
    """One method: a text for each rate, which of them was chosen, and whether it lies at the grid's edge."""

    method: str
    texts: list[str]
    chosen: int
    edge: bool


def grid(tuning: Tuning) -> list[Line]:
    """The grid as a table; its columns are `tuning.grid`."""
    return [
        Line(
            method,
            [percent(mean) for mean in tuning.means(method)],
            tuning.grid.index(tuning.choice(method)),
            tuning.at_edge(method),
        )
        for method in tuning.results
    ]


def rate(tuning: Tuning, method: str) -> str:
    """The chosen rate, marked when a better one may lie outside of the grid."""
    return f"{tuning.choice(method):g}" + (" (edge)" if tuning.at_edge(method) else "")


def remark(tuning: Tuning) -> str:
    """How rates were chosen, in a sentence or two."""
    seeds = ", ".join(map(str, tuning.seeds))
    length = "" if tuning.length == 1 else f", trials of {tuning.length:.0%} of a run"
    plural = "s" * (len(tuning.seeds) > 1)
    edges = [method for method in tuning.results if tuning.at_edge(method)]
    beyond = f" At the edge of the grid: {', '.join(edges)}; a rate beyond it may do better." if edges else ""
    return f"Chosen by {SAID} (seed{plural} {seeds}{length}); no test row was read.{beyond}"
