"""One model for every class, trained by devices that hold the class: classes are clustered, not devices.

Devices say once which classes they hold. From then on each is given the model of one of them. What becomes of
the answers, and when devices are asked, is a *pace*: in rounds (`Together`) or one by one (`AsTheyCome`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.messages import Command, Lane, Node, Note, Reply
from potluck.core.trees import Params, add
from potluck.rules.fold import fold

Schedule = Literal["least", "gather", "random"]


@value(eq=False)
class Member:
    """What a device said when it enrolled."""

    classes: tuple[int, ...]
    rows: float


@value(eq=False)
class Classes:
    """The models of all classes and how far they have come."""

    models: list[Params]
    updates: list[int]  # e_n: answers that each has taken in
    members: dict[Node, Member]
    losses: list[list[float]]  # of each class's last answers, oldest first
    trained: Tensor  # [classes] whether each was ever trained
    paced: Any  # of the pace
    converged: Mapping[int, int] = field(default_factory=dict)  # class -> its updates by then
    general: Params | None = None  # what was made of all of them last
    distilled: int = 0  # updates before that was begun
    chosen: Mapping[Lane, list[Node]] = field(
        default_factory=dict
    )  # who is being enrolled, to be trained next
    round: int = 0

    @property
    def total(self) -> int:
        return sum(self.updates)


def assigned(
    nodes: Sequence[Node],
    members: Mapping[Node, Member],
    seen: Sequence[int],
    schedule: Schedule,
    rng: np.random.Generator,
) -> list[tuple[Node, int]]:
    """A class for every node that holds one: the least trained of those it holds, or any.

    With `least`, nodes that were assigned before in this call count as if they had trained; with `gather`
    they don't, so several train the same model, and it moves by their mean.
    """
    ahead, out = list(seen), list[tuple[Node, int]]()
    for node in nodes:
        held = members[node].classes
        if not held:
            continue
        if schedule != "random":
            least = min(ahead[c] for c in held)
            held = tuple(c for c in held if ahead[c] == least)
        chosen = held[int(rng.integers(len(held)))]
        ahead[chosen] += schedule == "least"
        out.append((node, chosen))
    return out


def imbalance(updates: Sequence[int]) -> float:
    """v = 1 - min e / mean e: 0 when all classes were trained alike, 1 when one was never trained."""
    mean = sum(updates) / len(updates)
    return 1 - min(updates) / mean if mean else 0.0


@value
class Convergence:
    """A model has converged once its loss falls by no more than `tolerance` from one window to the next."""

    window: int = 10  # answers
    tolerance: float = 0.01  # of the loss of the window before

    def __post_init__(self) -> None:
        fix = "must be at least 1: answers that are averaged"
        require(self.window >= 1, "convergence.window", self.window, fix)
        fix = "must be at least 0 and below 1"
        require(0 <= self.tolerance < 1, "convergence.tolerance", self.tolerance, fix)

    def kept(self, losses: list[float], more: Iterable[float]) -> list[float]:
        return [*losses, *more][-2 * self.window :]

    def reached(self, losses: Sequence[float]) -> bool:
        if len(losses) < 2 * self.window:
            return False
        before, after = sum(losses[: self.window]), sum(losses[-self.window :])
        return after >= (1 - self.tolerance) * before  # 0 is as low as it gets


class Pace(Protocol):
    """When devices are asked and what becomes of their answers; its state is the algorithm's."""

    def start(self, classes: int) -> Any: ...
    def lanes(self, clients: int) -> Iterable[Lane]: ...
    def asked(self, clients: int) -> int: ...  # devices in one barrier
    def seen(self, m: Classes) -> Sequence[int]: ...  # updates as the assignment sees them
    def begun(self, paced: Any, lane: Lane, rows: float) -> Any: ...  # devices with so many rows train
    def merge(self, m: Classes, lane: Lane, replies: Sequence[Reply]) -> tuple[Classes, list[Command]]: ...


@value
class Together:
    """In rounds: each class's model moves by the mean change of those who trained it, weighted by samples."""

    def start(self, classes: int) -> None:
        return None

    def lanes(self, clients: int) -> tuple[Lane, ...]:
        return ("train",)

    def asked(self, clients: int) -> int:
        return clients

    def seen(self, m: Classes) -> Sequence[int]:
        return m.updates

    def begun(self, paced: None, lane: Lane, rows: float) -> None:
        return None

    def merge(self, m: Classes, lane: Lane, replies: Sequence[Reply]) -> tuple[Classes, list[Command]]:
        models, updates = list(m.models), list(m.updates)
        for c in sorted({r.task.tag[0] for r in replies}):
            mine = [r for r in replies if r.task.tag[0] == c]
            models[c], updates[c] = add(models[c], fold(mine)), updates[c] + len(mine)
        return replace(m, models=models, updates=updates), []


def started(models: list[Params], paced: Any) -> Classes:
    """Before anybody has trained."""
    like = next(iter(models[0].values()))
    trained = torch.zeros(len(models), dtype=torch.bool, device=like.device)
    return Classes(models, [0] * len(models), {}, [[] for _ in models], trained, paced)


def noted(m: Classes, replies: Sequence[Reply], convergence: Convergence) -> tuple[Classes, list[Command]]:
    """With what these answers tell of convergence."""
    losses, converged, notes = list(m.losses), dict(m.converged), list[Command]()
    for c in sorted({r.task.tag[0] for r in replies}):
        mine = [r.metrics["loss"] for r in replies if r.task.tag[0] == c]
        losses[c] = convergence.kept(losses[c], mine)
        if c not in converged and convergence.reached(losses[c]):
            converged[c] = m.updates[c]
            notes.append(Note("converged", m.updates[c], group=c))
    trained = m.trained
    if any(count and not known for count, known in zip(m.updates, trained.tolist(), strict=True)):
        trained = trained.new_tensor([count > 0 for count in m.updates])
    return replace(m, losses=losses, converged=converged, trained=trained), notes


def enrolled(replies: Iterable[Reply]) -> dict[Node, Member]:
    """Who said what."""
    return {r.task.to: Member(tuple(r.body["holds"].nonzero().flatten().tolist()), r.weight) for r in replies}


def ready(nodes: Sequence[Node], ctx: Context) -> list[Node]:
    """Those of some nodes who can be asked now; nobody else will get them at this event."""
    if not nodes:
        return []
    free = ctx.only(nodes).sample(len(nodes))
    return [node for node in nodes if node in free]
