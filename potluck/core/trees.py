"""Trees of tensors: nested dicts, lists and tuples, and what the engine does with them.

Nothing here changes a tensor in place. A tree's other leaves (numbers, strings, None) are carried along.
What is shared is looked at once where that will do: a few references can stand for more than anyone could
walk through. What compares two trees goes as far as the second, which is our own.
"""

from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from potluck.core.errors import JobError

Tree = Any  # nested dict / list / tuple whose leaves are tensors and plain values
Params = dict[str, Tensor]
DEPTH = 250  # containers in one another; a walk may take three of Python's 1000 frames for each
LEAVES = 10_000_000  # tensors in a list of them, however few there are
_HOLE = torch.empty(0)
_NESTS = (dict, list, tuple)
_LARGEST = torch.finfo(torch.float32).max


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a `tree`, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    found: list[Tensor] = []
    if isinstance(tree, _NESTS):
        _collect(tree, found, {}, 1)
    return found


def _collect(tree: Tree, found: list[Tensor], spans: dict[int, tuple[int, int]], depth: int) -> None:
    """Into a list, not by generators within generators: every task does this."""
    for child in tree.values() if isinstance(tree, dict) else tree:
        if type(child) is Tensor:
            found.append(child)
        elif isinstance(child, _NESTS):
            span = spans.get(id(child))
            if span is None:
                begin = len(found)
                _collect(child, found, spans, _descend(depth))
                spans[id(child)] = begin, len(found)
            else:
                found += found[span[0] : span[1]]
                if len(found) > LEAVES:
                    raise JobError(f"a tree of more than {LEAVES:,} tensors")
        elif isinstance(child, Tensor):
            found.append(child)


def _descend(depth: int) -> int:
    if depth >= DEPTH:
        raise JobError(f"a tree nested deeper than {DEPTH}")
    return depth + 1


def tmap(fn: Callable[..., Tree], tree: Tree, *others: Tree) -> Tree:
    """A `tree` of the same form with `fn` applied to its tensors (and to those of `others` beside them)."""
    if isinstance(tree, Tensor):
        return fn(tree, *others)
    if isinstance(tree, dict):
        if len(others) == 1:  # a model and another, mostly: every task does this, so it is kept short
            (other,) = others
            return {
                k: fn(v, other[k]) if type(v) is Tensor else tmap(fn, v, other[k]) for k, v in tree.items()
            }
        return {k: tmap(fn, v, *(o[k] for o in others)) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [tmap(fn, v, *(o[i] for o in others)) for i, v in enumerate(tree)]
        if isinstance(tree, list):
            return parts
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree


def split(tree: Tree) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Tree]]:
    """The tensors of a `tree`, and the function that puts others in their places."""
    tensors = leaves(tree)  # first: it refuses what nobody could walk through
    hollow = tmap(lambda _: _HOLE, tree)  # whoever keeps the function doesn't keep the tensors

    def rebuild(tensors: Sequence[Tensor]) -> Tree:
        rest = iter(tensors)
        return tmap(lambda _: next(rest), hollow)

    return tensors, rebuild


def add(a: Tree, b: Tree, scale: float = 1.0) -> Tree:
    """`a` + `scale` * `b`, tensor by tensor of two trees."""
    if abs(scale) > _LARGEST:  # torch refuses a factor that no single number can be; the sum is what it is
        return tmap(lambda x, y: (x + scale * y.double()).to(x.dtype), a, b)
    return tmap(lambda x, y: torch.add(x, y, alpha=scale), a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """`a` - `b`, tensor by tensor of two trees."""
    return tmap(torch.sub, a, b)


def scale(a: Tree, factor: float) -> Tree:
    """`factor` * `a`, tensor by tensor of a tree."""
    return tmap(lambda x: x * factor, a)


def zeros(a: Tree) -> Tree:
    """Zeros in the form of the tree `a`."""
    return tmap(torch.zeros_like, a)


def copy_tree(tree: Tree) -> Tree:
    """A copy that shares no memory: a kept row must not pin the stack that it was computed in."""
    return _copy(tree, {}, 0)


def _copy(tree: Tree, copies: dict[int, Tree], depth: int) -> Tree:
    """What was shared is shared again, so that the copy takes no more memory than the tree."""
    made: Tree = copies.get(id(tree))
    if made is not None:
        return made
    if isinstance(tree, Tensor):
        made = tree.detach().clone(memory_format=torch.contiguous_format)
    elif isinstance(tree, dict):
        depth = _descend(depth)
        made = {k: _copy(v, copies, depth) for k, v in tree.items()}
    elif isinstance(tree, list | tuple):
        depth = _descend(depth)
        parts = [_copy(v, copies, depth) for v in tree]
        named = isinstance(tree, tuple) and hasattr(tree, "_fields")
        made = parts if isinstance(tree, list) else type(tree)(*parts) if named else tuple(parts)
    else:
        return tree
    copies[id(tree)] = made
    return made


def nbytes(tree: Tree) -> int:
    """Bytes that a `tree` takes on the wire: tensors as they are, other leaves 8 bytes each."""
    if isinstance(tree, _NESTS):
        return _count_bytes(tree, {}, 1)
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, str | bytes):
        return len(tree)
    return 0 if tree is None else 8


def _count_bytes(tree: Tree, known: dict[int, int], depth: int) -> int:
    total = 0
    for child in tree.values() if isinstance(tree, dict) else tree:
        if type(child) is Tensor:
            total += child.nbytes
        elif isinstance(child, _NESTS):
            size = known.get(id(child))
            if size is None:
                size = known[id(child)] = _count_bytes(child, known, _descend(depth))
            total += size
        else:
            total += 8 if type(child) is float else nbytes(child)
    return total


def same_form(tree: Tree, like: Tree) -> bool:
    """Whether two trees have the same keys, shapes and types."""
    if isinstance(like, Tensor):
        return isinstance(tree, Tensor) and tree.shape == like.shape and tree.dtype == like.dtype
    if isinstance(like, dict):
        if not isinstance(tree, dict) or tree.keys() != like.keys():
            return False
        for k, v in like.items():
            t = tree[k]
            if type(v) is Tensor and type(t) is Tensor:  # a model, mostly: every reply does this
                if t.shape != v.shape or t.dtype != v.dtype:
                    return False
            elif not same_form(t, v):
                return False
        return True
    if isinstance(like, list | tuple):
        return (
            isinstance(tree, list | tuple)
            and len(tree) == len(like)
            and all(same_form(t, v) for t, v in zip(tree, like, strict=True))
        )
    if isinstance(like, bytes):
        return isinstance(tree, bytes) and len(tree) == len(like)
    if isinstance(like, Real):
        return isinstance(tree, Real)
    return not isinstance(tree, Tensor | dict | list | tuple)


def form(tree: Tree) -> Hashable:
    """Equal for trees with the same keys, shapes, types and other leaves: those that can be stacked."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype
    if isinstance(tree, dict):
        return tuple([(k, v.shape, v.dtype) if type(v) is Tensor else (k, form(v)) for k, v in tree.items()])
    if isinstance(tree, list | tuple):
        return type(tree).__name__, tuple(form(v) for v in tree)
    return type(tree).__name__, tree


def finite(tree: Tree) -> bool:
    """Whether no number of a tree is NaN or infinite, and all can be looked at (see `is_dense`)."""
    if not isinstance(tree, _NESTS):
        return _is_finite(tree)
    nests, seen, alike = [tree], {id(tree)}, dict[Hashable, list[Tensor]]()
    for nest in nests:
        for child in nest.values() if isinstance(nest, dict) else nest:
            if type(child) is Tensor and child.layout is torch.strided and child.is_floating_point():
                alike.setdefault((child.dtype, child.device), []).append(child)
            elif not isinstance(child, _NESTS):
                if not _is_finite(child):
                    return False
            elif id(child) not in seen:
                seen.add(id(child))
                nests.append(child)
    return all(_are_finite(some) for some in alike.values())


def _are_finite(some: list[Tensor]) -> bool:
    # Finite norms prove it of all at once; an infinite one may be an overflow.
    if len(some) > 1 and not some[0].is_meta and torch.stack(torch._foreach_norm(some)).isfinite().all():
        return True
    return all(map(_is_finite, some))


def _is_finite(leaf: Tree) -> bool:
    if isinstance(leaf, Tensor):
        if leaf.layout is not torch.strided or leaf.is_meta:
            return False
        if not (leaf.is_floating_point() or leaf.is_complex()):
            return True
        # A finite sum proves it in one pass; an infinite one may be an overflow, so it is looked at again.
        return bool(torch.isfinite(leaf.sum())) or bool(torch.isfinite(leaf).all())
    if isinstance(leaf, float):
        return leaf - leaf == 0.0
    return is_number(leaf) if isinstance(leaf, Real) else not isinstance(leaf, complex)


def is_dense(tree: Tree) -> bool:
    """Whether all tensors of a tree have their numbers in memory, one by one: what rules can add up."""
    return all(t.layout is torch.strided and not t.is_meta for t in leaves(tree))


def is_number(thing: Tree) -> bool:
    """Whether this is a finite real number: what may be added up."""
    try:
        return isinstance(thing, Real) and isfinite(thing)
    except OverflowError:  # a whole number that is larger than any float
        return False


def within(tree: Tree, most: Tree) -> bool:
    """Whether whole numbers lie between 0 and those of a tree of the same form; others aren't looked at."""
    if isinstance(most, dict):
        return not most or all(within(tree[k], v) for k, v in most.items())
    if isinstance(most, Tensor):
        if most.dtype.is_floating_point or most.dtype.is_complex or most.dtype == torch.bool:
            return True
        return bool(((tree >= 0) & (tree <= most.to(tree.device))).all())
    if isinstance(most, list | tuple):
        return all(within(t, v) for t, v in zip(tree, most, strict=True))
    return not isinstance(most, Integral) or (isinstance(tree, Integral) and 0 <= int(tree) <= int(most))


def weighted_sum(trees: Sequence[Tree], weights: Tensor) -> Tree:
    """The sum over i of `weights`[i] * `trees`[i]: one product per leaf, in the order given.

    The rows are laid side by side first, so the result has the same bytes whether they come from one stack
    or from many.
    """
    return sum_rows(stack_trees(trees), weights)


def sum_rows(table: Tree, weights: Tensor) -> Tree:
    """The same of a tree whose tensors count in their first axis what is summed."""

    def combine(t: Tensor) -> Tensor:
        return (weights.to(t.device, t.dtype) @ t.reshape(len(t), -1)).reshape(t.shape[1:])

    return tmap(combine, table)


def stack_trees(trees: Sequence[Tree]) -> Tree:
    """Trees of one form as one, whose tensors count them in their first axis."""
    return tmap(lambda *rows: _stack(rows), trees[0], *trees[1:])


def _stack(rows: Sequence[Tensor]) -> Tensor:
    """The rows as one contiguous table; free when they already are one, in this order."""
    base = rows[0]._base
    if base is not None and base.shape == (len(rows), *rows[0].shape) and base.is_contiguous():
        step, inner = rows[0].numel(), base.stride()[1:]  # strides: a row may be a transposed view

        def beside(i: int, row: Tensor) -> bool:
            return row._base is base and row.storage_offset() == i * step and row.stride() == inner

        if all(beside(i, row) for i, row in enumerate(rows)):
            return base
    return torch.stack(list(rows))
