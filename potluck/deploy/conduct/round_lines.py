"""A line for each round of a deployed run."""

from collections.abc import Callable

from potluck.core.units import duration, percent
from potluck.engine.schedule import Progress


def make_watch(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Say a line when the round has changed."""
    shown = [-1]

    def watch(p: Progress) -> None:
        if p.round != shown[0]:
            shown[0] = p.round
            accuracy = "" if p.accuracy is None else f", accuracy {percent(p.accuracy)}"
            say(f"round {p.round}, {duration(p.time)}{accuracy}")

    return watch
