"""Whether a run's journal leads from each of its snapshots to the next: its state follows from it alone."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from potluck.core import safe_files
from potluck.core.errors import SnapshotError
from potluck.deploy.conduct import journal
from potluck.deploy.conduct.conductor import Conductor
from potluck.deploy.conduct.conductor_state import ConductorState
from potluck.deploy.conduct.terms import Terms
from potluck.engine import snapshot
from potluck.engine.records import Records


class Replayed(NamedTuple):
    """What a replay came to."""

    entries: int
    first: int  # snapshots
    last: int
    difference: str | None  # where it parts from what was stored; None: nowhere


def replay(folder: Path, terms: Terms) -> Replayed:
    """From the oldest snapshot that is kept to the newest, by the journal; writes nothing."""
    serials = [int(Path(name).stem) for name in snapshot.list_all(folder)]
    if len(serials) < 2:
        raise SnapshotError(f"{folder}: fewer than two snapshots, so there is nothing to replay yet")
    entries = 0
    for before, after in pairwise(serials):
        conductor = Conductor(terms, _read(folder, before), Records(None))
        for at, what, body in journal.read(folder, before, cut=False):
            conductor.apply(at, what, body)
            entries += 1
        stored = _read(folder, after)
        made, stored.records = conductor.make_state(), conductor.state.records  # the log isn't written again
        difference = find_difference(made, stored)
        if difference is not None:
            return Replayed(entries, serials[0], after, difference)
    return Replayed(entries, serials[0], serials[-1], None)


def find_difference(ours: object, theirs: object, where: str = "") -> str | None:
    """The first place at which two stored values differ, to the bit; what they share in memory may differ."""
    ours, theirs = (x.item() if isinstance(x, np.generic) else x for x in (ours, theirs))  # as stored
    if type(ours) is not type(theirs):
        return f"{where}: {type(ours).__name__}, not {type(theirs).__name__}"
    pairs: Iterable[tuple[str, object, object]]
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return None if same and _bits(ours) == _bits(theirs) else f"{where}: tensors differ"
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        same = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return None if same and ours.tobytes() == theirs.tobytes() else f"{where}: arrays differ"
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"{where}: keys {list(ours)!r:.60}, not {list(theirs)!r:.60}"
        pairs = ((f"{where}[{key!r}]", ours[key], theirs[key]) for key in ours)
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} entries, not {len(theirs)}"
        pairs = ((f"{where}[{i}]", x, y) for i, (x, y) in enumerate(zip(ours, theirs, strict=True)))
    elif is_dataclass(ours):
        names = [f.name for f in fields(ours)]
        pairs = ((f"{where}.{name}", getattr(ours, name), getattr(theirs, name)) for name in names)
    else:
        same = ours == theirs or (ours != ours and theirs != theirs)
        return None if same else f"{where}: {ours!r:.40}, not {theirs!r:.40}"
    return next((found for at, x, y in pairs if (found := find_difference(x, y, at)) is not None), None)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _read(folder: Path, serial: int) -> ConductorState:
    name = f"{snapshot.FOLDER}/{serial:08d}.snapshot"
    data = safe_files.read_file(folder, name)
    state = snapshot.read(data[snapshot.DIGEST :], "cpu", folder / name)
    if not isinstance(state, ConductorState):
        raise SnapshotError(f"{folder / name}: isn't of a deployed run")
    return state
