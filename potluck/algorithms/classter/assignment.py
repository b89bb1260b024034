"""Who trains which class: devices say once which classes they hold, and are given one of them each time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from potluck.algorithms.classter.state import Member
from potluck.authoring import Context, Node, Reply

Schedule = Literal["least", "gather", "random"]


def enrol(replies: Iterable[Reply]) -> dict[Node, Member]:
    """What devices said that were asked which classes they hold."""
    return {r.task.to: Member(tuple(r.body["holds"].nonzero().flatten().tolist()), r.weight) for r in replies}


def find_ready(nodes: Sequence[Node], ctx: Context) -> list[Node]:
    """Those of some nodes who can be asked now; nobody else will get them at this event."""
    if not nodes:
        return []
    free = ctx.only(nodes).sample(len(nodes))
    return [node for node in nodes if node in free]


def assign_classes(
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
        classes = members[node].classes
        if not classes:
            continue
        if schedule != "random":
            least = min(ahead[c] for c in classes)
            classes = tuple(c for c in classes if ahead[c] == least)
        chosen = classes[int(rng.integers(len(classes)))]
        ahead[chosen] += schedule == "least"
        out.append((node, chosen))
    return out


def imbalance(updates: Sequence[int]) -> float:
    """v = 1 - min e / mean e: 0 when all classes were trained alike, 1 when one was never trained."""
    mean = sum(updates) / len(updates)
    return 1 - min(updates) / mean if mean else 0.0
