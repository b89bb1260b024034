"""How many clients fit into one stack: what one of them takes, and what is free."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.core.job import Batch
from potluck.core.room import free_memory
from potluck.core.trees import Tree, leaves, nbytes, tmap
from potluck.execute.reference import Item, lay_out, look_at, recall
from potluck.models import Model

SHARE = 0.25  # of what is free: libraries take workspaces of their own, and others use this machine too
MOST = 4096  # clients in a stack; beyond that a GPU is busy anyway
# On a CPU a stack is read and written at every step. One that outgrows the caches trained models of 60,000
# and 160,000 parameters 1.2 times slower than one of this size; for smaller models it is no limit.
NEAR = 32 << 20


class Takes(NamedTuple):
    """Bytes of one client in a stack."""

    step: int  # touched at every step: parameters, optimiser, activations
    rest: int  # rows, memory and tables

    @property
    def total(self) -> int:
        return max(1, self.step + self.rest)


def find_chunk(one: Takes, cohort: int, device: str, share: float = SHARE) -> int:
    """How many clients of a cohort one stack takes: all, or a power of two that fits into free memory."""
    return fit_chunk(free_bytes(device) * share / one.total, cohort)


def find_near_chunk(one: Takes, cohort: int) -> int:
    """The same for a stack that stays near a CPU's caches."""
    return fit_chunk(NEAR / max(1, one.step), cohort)


def fit_chunk(room: float, cohort: int) -> int:
    """A stack's size where there is room for so many: a cohort isn't split for want of a power of two."""
    room = max(1, min(int(room), MOST))
    power: int = 1 << (room.bit_length() - 1)
    return cohort if power < cohort <= room else power


def measure_largest(items: Sequence[Item]) -> Takes:
    """What the client with most rows takes: a stack is as wide as its widest."""
    return measure_client(max(items, key=lambda item: len(item.at.rows)))


def measure_client(item: Item) -> Takes:
    """What one client takes, by its real loss on its first batch."""
    job, at = item
    net, keep, draw = at.models[job.model], recall(item), job.draw(at)
    own = look_at(item, net, at.rows) if job.looks else None
    with torch.no_grad():
        begun, held = job.begin(net, at.inbox, keep, own)
    params = {name: p.detach().clone().requires_grad_() for name, p in begun.items()}
    state = job.optim.start(list(params.values()))
    passing = 0
    if len(draw.index):
        pick, weight, step_keys = (table[0] for table in lay_out(item, draw))
        seen = None if own is None else tmap(lambda t: t[draw.index[0]], own.seen)
        batch = Batch(at.pool.x[pick], at.pool.y[pick], weight, step_keys, seen)
        constants = net.constants if isinstance(net, Model) else ()
        known = (params, held, batch, at.inbox, [at.pool.x, at.pool.y], constants)
        passing = _measure_saved(lambda: job.loss(net, params, batch, held), leaves(known))
    rows = min(len(at.rows), draw.index.size) * nbytes([at.pool.x[:1], at.pool.y[:1]])
    tables = 3 * 8 * draw.index.size  # which row, at which place, with which weight
    # Parameters beside their gradients and changes; gradients of activations beside these.
    return Takes(3 * nbytes(params) + nbytes(state) + 2 * passing, nbytes([held, keep, own]) + rows + tables)


def _measure_saved(forward: Callable[[], Tree], known: Iterable[Tensor]) -> int:
    """Bytes that a forward pass stores for its backward pass, beside what is there anyway."""
    there = {t.untyped_storage().data_ptr() for t in known}
    found: dict[int, int] = {}

    def note(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in there:
            found[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        out = forward()  # as long as it lives, no two storages have one address
    del out
    return sum(found.values())


def free_bytes(device: str) -> int:
    """Memory that can be had on a device now."""
    if device == "cpu":
        return free_memory()
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + reserved
