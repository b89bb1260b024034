"""When a detector has converged, by the losses that devices report."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated

from potluck.algorithms.classter.state import Detectors
from potluck.authoring import Command, Note, Reply, require, value


@value
class Convergence:
    """A model has converged once its loss falls by no more than `tolerance` from one window to the next."""

    window: Annotated[int, "answers that are averaged"] = 10
    tolerance: Annotated[float, "share of the loss of the window before"] = 0.01

    def __post_init__(self) -> None:
        fix = "must be at least 1: answers that are averaged"
        require(self.window >= 1, "convergence.window", self.window, fix)
        fix = "must be at least 0 and below 1"
        require(0 <= self.tolerance < 1, "convergence.tolerance", self.tolerance, fix)

    def extend(self, losses: list[float], more: Iterable[float]) -> list[float]:
        """The losses that are needed from now on."""
        return [*losses, *more][-2 * self.window :]

    def is_reached(self, losses: Sequence[float]) -> bool:
        if len(losses) < 2 * self.window:
            return False
        before, after = sum(losses[: self.window]), sum(losses[-self.window :])
        return after >= (1 - self.tolerance) * before  # 0 is as low as it gets


def note_convergence(
    m: Detectors, replies: Sequence[Reply], convergence: Convergence
) -> tuple[Detectors, list[Command]]:
    """With what these answers tell of convergence."""
    losses, converged, notes = list(m.losses), dict(m.converged), list[Command]()
    for c in sorted({r.task.tag[0] for r in replies}):
        mine = [r.metrics["loss"] for r in replies if r.task.tag[0] == c]
        losses[c] = convergence.extend(losses[c], mine)
        if c not in converged and convergence.is_reached(losses[c]):
            converged[c] = m.updates[c]
            notes.append(Note("converged", m.updates[c], group=c))
    trained = m.trained
    if any(count and not known for count, known in zip(m.updates, trained.tolist(), strict=True)):
        trained = trained.new_tensor([count > 0 for count in m.updates])
    return replace(m, losses=losses, converged=converged, trained=trained), notes
