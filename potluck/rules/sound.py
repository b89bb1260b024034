"""Whether what a merge made can be served: no new number of a rule's state is NaN or infinite.

Every merge is looked at, so a look costs next to nothing: what is the same object as before isn't looked at
again, and a finite sum proves all numbers of a tensor at once.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter

import torch
from torch import Tensor

from potluck.core.messages import Node, Reply
from potluck.core.trees import Tree, finite, leaves

NOT_FINITE = "made NaN or infinite numbers"
HUGE = 1e3  # a larger number is no change that training makes
Children = Callable[[Tree], Collection[Tree]]
_PLAIN = frozenset({int, float, str, bool, bytes, type(None)})
_CHILDREN: dict[type, Children] = {}


def is_sound(made: Tree, before: Tree) -> bool:
    """Whether all tensors are finite that a state has and the one before hadn't."""
    if made is before:
        return True
    fresh: list[Tensor] = []
    _gather(made, before, fresh)
    total = 0.0
    for t in fresh:
        if t.dtype.is_floating_point:
            total += torch.sum(t).item()
    # Large numbers overflow in a sum; and what wasn't finite before is no fault of this merge.
    return total - total == 0.0 or not _spoils(made, before)


def find_largest(replies: Sequence[Reply], most: int) -> dict[Node, float]:
    """Who sent the updates with the largest numbers, and these; the largest first, at most so many."""
    sizes = {r.task.to: max((_measure(t) for t in leaves(r.body)), default=0.0) for r in replies}
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:most])


def find_cause(updates: dict[Node, float]) -> str:
    """What is likeliest behind numbers that grow without end; `updates`: their largest numbers, by sender."""
    told = ", ".join(f"{size:.3g} from {node}" for node, size in updates.items())
    server, device = "lower server_lr", "lower lr, or bound what devices send by [robust]"
    huge = max(updates.values(), default=0.0) > HUGE
    fix = f"updates are enormous: {device}; or {server}" if huge else f"{server}; or {device}"
    return f"the largest numbers of the last updates are {told or 'not known'}; {fix}"


def _measure(t: Tensor) -> float:
    return float(t.abs().max()) if t.is_floating_point() and t.numel() else 0.0


def _gather(made: Tree, before: Tree, fresh: list[Tensor]) -> None:
    """Tensors that are new, roughly: children are compared by their place, which seldom changes."""
    kind = type(made)
    children = _CHILDREN.get(kind) or _find_children(kind)
    new, old = children(made), children(before) if type(before) is kind else ()
    for child, was in zip(new, old if len(old) == len(new) else chain(old, repeat(None)), strict=False):
        if child is was:
            continue
        if type(child) is Tensor:
            fresh.append(child)
        elif type(child) not in _PLAIN:
            if isinstance(child, Tensor):
                fresh.append(child)
            else:
                _gather(child, was, fresh)


def _spoils(made: Tree, before: Tree) -> bool:
    """Whether anything isn't finite that was, or wasn't there; children are compared by their names."""
    if made is before:
        return False
    if isinstance(made, Tensor):
        return not finite(made) and (not isinstance(before, Tensor) or finite(before))
    old = _name_children(before)
    return any(_spoils(child, old.get(name)) for name, child in _name_children(made).items())


def _name_children(tree: Tree) -> Mapping[Tree, Tree]:
    children = _find_children(type(tree))(tree)
    return tree if isinstance(tree, dict) else dict(enumerate(children))


def _find_children(kind: type) -> Children:
    """What a value of this class holds: entries, items or fields; remembered by class."""
    known = _CHILDREN.get(kind)
    if known is None:
        names = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        known = (
            (lambda tree: [getattr(tree, name) for name in names]) if len(names) < 2 else attrgetter(*names)
        )
        if issubclass(kind, dict):
            known = dict.values
        elif issubclass(kind, list | tuple):
            known = tuple
        _CHILDREN[kind] = known
    return known
