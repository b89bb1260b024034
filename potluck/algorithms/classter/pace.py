"""When devices are asked and what becomes of their answers: the contract, and rounds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from potluck.algorithms.classter.state import Arrivals, Detectors
from potluck.authoring import Command, Lane, Reply, add, fold, value


class Pace(Protocol):
    """When devices are asked and what becomes of their answers; its state is the algorithm's."""

    def start(self, classes: int) -> Arrivals | None: ...
    def lanes(self, clients: int) -> Iterable[Lane]: ...
    def count_devices(self, clients: int) -> int: ...  # in one barrier
    def count_updates(self, m: Detectors) -> Sequence[int]: ...  # as the assignment sees them
    def begin(self, m: Detectors, lane: Lane, rows: float) -> Detectors: ...  # so many rows are trained on
    def merge(
        self, m: Detectors, lane: Lane, replies: Sequence[Reply]
    ) -> tuple[Detectors, list[Command]]: ...


@value
class Together:
    """In rounds: each class's model moves by the mean change of those who trained it, weighted by samples."""

    def start(self, classes: int) -> None:
        return None

    def lanes(self, clients: int) -> tuple[Lane, ...]:
        return ("train",)

    def count_devices(self, clients: int) -> int:
        return clients

    def count_updates(self, m: Detectors) -> Sequence[int]:
        return m.updates

    def begin(self, m: Detectors, lane: Lane, rows: float) -> Detectors:
        return m

    def merge(self, m: Detectors, lane: Lane, replies: Sequence[Reply]) -> tuple[Detectors, list[Command]]:
        models, updates = list(m.models), list(m.updates)
        for c in sorted({r.task.tag[0] for r in replies}):
            mine = [r for r in replies if r.task.tag[0] == c]
            models[c], updates[c] = add(models[c], fold(mine)), updates[c] + len(mine)
        return replace(m, models=models, updates=updates), []
