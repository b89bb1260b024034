"""A step on a CPU as the plain list of operations that it came to: no mapping and no graph of gradients.

Small models spend their time between operations, so three more things are spared. What an operation makes
goes to memory that stays where it is, instead of being asked for and given back at every step. All views of
that memory are made once. And operations are called by torch's own bindings where these can do that, which
take half of the time of calling them by their schema.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from potluck.core.trees import Tree, leaves, tmap
from potluck.execute.captured.numbers import is_steady
from potluck.execute.captured.watched import Watched

Run = Callable[[], object]

_aten = torch.ops.aten
_EMPTY = {
    _aten.empty.memory_format,
    _aten.empty_like.default,
    _aten.empty_strided.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}
_ZEROS = {_aten.zeros.default, _aten.new_zeros.default, _aten.zeros_like.default}
_CONSTANT = {  # looks at a tensor's form alone
    *_ZEROS,
    _aten.full_like.default,
    _aten.new_full.default,
    _aten.new_ones.default,
    _aten.ones_like.default,
}
_IN_PLACE: dict[
    OpOverload, Callable[..., object]
] = {  # by their bindings: the same arguments in the same places
    _aten._foreach_add_.List: torch._foreach_add_,
    _aten._foreach_addcmul_.Scalar: torch._foreach_addcmul_,
    _aten._foreach_mul_.Scalar: torch._foreach_mul_,
    _aten.add_.Tensor: Tensor.add_,
    _aten.baddbmm_.default: Tensor.baddbmm_,
    _aten.copy_.default: Tensor.copy_,
    _aten.gt.Tensor_out: torch.gt,
    _aten.mul_.Tensor: Tensor.mul_,
    _aten.neg_.default: Tensor.neg_,
    _aten.scatter_add_.default: Tensor.scatter_add_,
    _aten.sub.out: torch.sub,
    _aten.zero_.default: Tensor.zero_,
}


class TracedStep(NamedTuple):
    """A step that was seen."""

    bound: Callable[[list[Tensor]], Run]  # for others of the `given`'s memory: the step of these
    reads: set[int]  # addresses of memory that it looks at


def trace(
    step: Callable[..., object], fixed: list[Tensor], given: list[Tensor], scratch: list[torch.UntypedStorage]
) -> TracedStep:
    """A step of `(*fixed, *given)`.

    They must stay where they are as long as the step is used; what they hold may change. It is run here, so
    they must not hold anything yet. `scratch` is memory for what it makes, which grows; steps that aren't run
    at the same time may share it.
    """
    seen: list[_Call] = []
    with Watched(lambda op, *told: seen.append(_Call(op, *tmap(Tensor.detach, told)))):
        step(*fixed, *given)
    try:
        calls = _plan(seen, _find_memories(fixed), scratch)
    except (_UntracedError, RuntimeError, TypeError, ValueError):  # it can still be computed
        return TracedStep(lambda given: lambda: step(*fixed, *given), _find_memories(fixed))
    return TracedStep(partial(_bind, calls, given), set().union(*(call.reads for call, _ in calls)))


class _Call(NamedTuple):
    """An operation that was seen, and what came of it."""

    op: OpOverload
    args: tuple[Tree, ...]
    named: dict[str, Tree]
    out: Tree

    @property
    def reads(self) -> set[int]:
        return _find_memories((self.args, self.named))

    @property
    def changes(self) -> set[int]:
        """Memory of arguments that it changes."""
        if not self.op._schema.is_mutable:
            return set()
        names = self.op._schema.arguments
        given = {**dict(zip((a.name for a in names), self.args, strict=False)), **self.named}
        written = [given[a.name] for a in names if a.alias_info is not None and a.alias_info.is_write]
        return _find_memories(written)

    @property
    def makes(self) -> set[int]:
        """Memory of its own."""
        return _find_memories(self.out) - self.reads

    @property
    def constant(self) -> bool:
        """Whether it makes the same numbers every time."""
        drawn = torch.Tag.nondeterministic_seeded in self.op.tags
        return self.op in _CONSTANT or not (drawn or self.reads or self.changes)

    @property
    def steady(self) -> bool:
        """Whether it makes tensors of the same shapes next time."""
        return is_steady(self.op, self.args, self.out) or bool(self.changes)


class _UntracedError(Exception):
    """A step may do something else next time."""


def _plan(
    seen: Sequence[_Call], kept: set[int], scratch: list[torch.UntypedStorage]
) -> list[tuple[_Call, Callable[..., Run]]]:
    """The operations that are needed for what is to be kept, and how each is done again."""
    known = kept.union(*(call.makes for call in seen))
    for call in seen:
        if not call.steady:
            raise _UntracedError(f"{call.op} goes by numbers")
        if call.changes - known or (call.changes and call.makes):
            raise _UntracedError(f"{call.op} changes what wasn't made here, or makes something besides")
    needed, calls = set(kept), list[_Call]()
    for call in reversed(seen):
        if (call.changes | call.makes) & needed:  # a view makes nothing, and is there
            calls.insert(0, call)
            needed |= call.reads
    changed = set().union(*(call.changes for call in calls))
    again = [c for c in calls if c.op not in _EMPTY and (not c.constant or c.makes & changed)]
    lasting = kept.union(*(call.makes for call in calls if call.constant))
    return [(call, _find_way(call)) for call in _reuse_memory(again, known - lasting, scratch)]


def _reuse_memory(
    calls: Sequence[_Call], passing: set[int], scratch: list[torch.UntypedStorage]
) -> list[_Call]:
    """The same in less memory, so that it stays in the cache: what isn't read any more makes room."""
    last = {name: i for i, call in enumerate(calls) for name in call.reads | call.makes}
    free, lent = list(scratch), dict[int, torch.UntypedStorage]()
    out = []

    def move(t: Tensor) -> Tensor:
        room = lent.get(_find_memory(t))
        return t if room is None else t.new_empty(0).set_(room, t.storage_offset(), t.shape, t.stride())

    for i, call in enumerate(calls):
        for t in leaves((call.args, call.named, call.out)):
            name, size = _find_memory(t), t.untyped_storage().nbytes()
            if name in passing and name not in lent:
                fitting = [room for room in free if size <= room.nbytes() <= 4 * size + 4096]
                if not fitting:
                    scratch.append(torch.UntypedStorage(size))
                lent[name] = min(fitting, key=lambda room: room.nbytes()) if fitting else scratch[-1]
                free = [room for room in free if room is not lent[name]]
        out.append(_Call(call.op, *tmap(move, (call.args, call.named, call.out))))
        free += [lent[name] for name in (call.reads | call.makes) & passing if last[name] == i]
    return out


def _bind(calls: Sequence[tuple[_Call, Callable[..., Run]]], was: list[Tensor], now: list[Tensor]) -> Run:
    """The step of other tensors than those that it was seen with."""
    pairs = zip(was, now, strict=True)
    moves = {_find_memory(a): (b.storage_offset() - a.storage_offset()) * a.itemsize for a, b in pairs}

    def move(t: Tensor) -> Tensor:
        by = moves.get(_find_memory(t), 0) // t.itemsize  # it may be read as another type
        return t.as_strided(t.shape, t.stride(), t.storage_offset() + by) if by else t

    runs = [into(*tmap(move, (call.args, call.named)), call.out) for call, into in calls]

    def run() -> None:
        for one in runs:
            one()

    return run


def _find_way(call: _Call) -> Callable[..., Run]:
    """How an operation is done again, which is done once: the next ones find what it makes. By a way that is
    seen to make the same, or its results are copied."""
    if call.changes:
        op: Callable[..., object] = _IN_PLACE.get(call.op, call.op)
        op(*call.args, **call.named)
        return lambda args, named, out: partial(op, *args, **named)
    want = call.op(*call.args, **call.named)
    _copy(lambda: want, call.out)
    for way in _list_ways(call.op):
        tried = tmap(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype), call.out)
        try:
            way(call.args, call.named, tried)()
        except (TypeError, RuntimeError, NotImplementedError):
            continue
        if all(map(_is_same, leaves(tried), leaves(want))):
            return way
    return lambda args, named, out: partial(_copy, partial(call.op, *args, **named), out)


def _list_ways(op: OpOverload) -> Iterator[Callable[..., Run]]:
    """Of arguments and memory, calls that might fill it."""
    if op in _ZEROS:
        yield lambda args, named, out: partial(Tensor.zero_, out)
    if op is _aten.clone.default:
        yield lambda args, named, out: partial(Tensor.copy_, out, args[0])
    if op is _aten.relu.default:  # whose binding can't say where to
        yield lambda args, named, out: partial(torch.clamp_min, *args, 0, out=out)
    packet = op.overloadpacket
    if bound := getattr(torch, packet.__name__, None):
        yield lambda args, named, out: partial(bound, *args, **named, out=out)
    asks = [a.name for a in op._schema.arguments]
    for other in (getattr(packet, name) for name in packet.overloads()):
        outs = [a.name for a in other._schema.arguments if a.is_out]
        if outs and [a.name for a in other._schema.arguments if not a.is_out] == asks:
            yield partial(_call_with_out, other, outs)


def _call_with_out(op: OpOverload, outs: list[str], args: Tree, named: Tree, out: Tree) -> Run:
    return partial(op, *args, **named, **dict(zip(outs, [out] if len(outs) == 1 else out, strict=True)))


def _copy(op: Callable[[], Tree], out: Tree) -> None:
    for t, made in zip(leaves(out), leaves(op()), strict=True):
        t.copy_(made)


def _is_same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, 0.0, 0.0, equal_nan=True)


def _find_memories(tensors: Tree) -> set[int]:
    """Addresses of what isn't empty."""
    return {_find_memory(t) for t in leaves(tensors)} - {0}


def _find_memory(t: Tensor) -> int:
    return t.untyped_storage().data_ptr()
