"""How many clients fit into one stack: what one of them takes, and what is free."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.core.job import Batch
from potluck.core.trees import Tree, leaves, nbytes, tmap
from potluck.execute.reference import Item, lay_out, look_at, recall

SHARE = 0.25  # of what is free: libraries take workspaces of their own, and others use this machine too
MOST = 4096  # clients in a stack; beyond that a GPU is busy anyway
# On a CPU a stack is read and written at every step. One that outgrows the caches trained models of 60,000
# and 160,000 parameters 1.2 times slower than one of this size; for smaller models it is no limit.
NEAR = 32 << 20
UNKNOWN = 2 << 30  # bytes that are taken to be free where the system doesn't tell


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
        known = (params, held, batch, at.inbox, [at.pool.x, at.pool.y])
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


def free_bytes(device: str, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that can be had on a device now."""
    if device != "cpu":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved
    found = [_find_available(proc / "meminfo"), *_find_limits(proc / "self" / "cgroup", cgroup)]
    known = [size for size in found if size is not None]
    return max(0, min(known)) if known else UNKNOWN


def _find_available(meminfo: Path) -> int | None:
    """MemAvailable; None where there is no such file."""
    return None if (kilobytes := _read_table(meminfo).get("MemAvailable:")) is None else 1024 * kilobytes


def _find_limits(membership: Path, root: Path) -> list[int | None]:
    """What this process's control groups, and those above them, leave of their memory limits."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return []
    left: list[int | None] = []
    for _, kinds, name in (line for line in lines if len(line) == 3):
        if kinds == "":  # version 2
            base, limit, used, cached = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in kinds.split(","):
            base, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        place = base / name.strip("/")
        for at in (place, *(p for p in place.parents if p.is_relative_to(base))):
            most, taken = _read_number(at / limit), _read_number(at / used)
            if most is not None and taken is not None:  # files that are only cached make room when asked
                left.append(most - taken + _read_table(at / "memory.stat").get(cached, 0))
    return left


def _read_number(path: Path) -> int | None:
    """The number in a file; None if there is none, as in a limit of `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _read_table(path: Path) -> dict[str, int]:
    """Names and numbers, line by line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
