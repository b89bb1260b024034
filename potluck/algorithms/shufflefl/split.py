"""Where a user's time goes, from when its hub is asked until it answers: noted, in seconds a device.

Computing and communication are means over the devices that were found; planning is the gateway's, for which
all wait. What is left is waiting, for the slowest of them. Moves count as long as they should take.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from potluck.algorithms.shufflefl.cap import Course
from potluck.authoring import Command, Node, Note, Reply, value


@value(name="shufflefl.Split")
class Split:
    """Seconds so far, of all devices together."""

    began: float = 0.0  # time on the clock, brought forward by pauses
    paused: float | None = None  # since when the hub has had nothing to do
    computing: float = 0.0
    moving: float = 0.0
    planning: float = 0.0

    def pause(self, now: float) -> Self:
        return replace(self, paused=now)

    def resume(self, now: float) -> Self:
        """On after a pause; if there was none, from the beginning."""
        if self.paused is None:
            return type(self)(now)
        return replace(self, began=self.began + now - self.paused, paused=None)

    def add(self, replies: Sequence[Reply], courses: Iterable[Course] = ()) -> Self:
        computing = self.computing + sum(r.spent.compute for r in replies)
        links = sum(r.spent.down + r.spent.up for r in replies) + sum(c.moving for c in courses)
        return replace(self, computing=computing, moving=self.moving + links)

    def note(self, now: float, devices: int, me: Node) -> list[Command]:
        each = [seconds / max(1, devices) for seconds in (self.computing, self.moving)]
        waiting = now - self.began - sum(each) - self.planning
        names = ("computing_seconds", "communication_seconds", "waiting_seconds")
        return [Note(name, seconds, me) for name, seconds in zip(names, (*each, waiting), strict=True)]
