"""Served jobs, each where it would run: how good they are on their test rows, or what they say."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.errors import JobError
from potluck.execute.plan import Executor
from potluck.execute.reference import SCORING_BATCH, Item, Scored, identify_model, score_together
from potluck.jobs.answering import Answering
from potluck.jobs.train import Train
from potluck.simulate.global_test import set_test

Scores = dict[str, float]  # means over the rows that a model was tested on, and how many these were


class Told(NamedTuple):
    """What a model says of some rows, in their order, and what they are."""

    rows: NDArray[np.int64]  # of the pool
    logits: Tensor  # [rows, classes]
    labels: Tensor
    held: Tensor  # [classes] how many rows of each the device trains on


def score(items: Sequence[Item], executor: Executor) -> list[Scores]:
    """How good they are, in the mean over rows."""
    return [found.means for found in _test(items, executor)]


def list_answers(
    items: Sequence[Item], stretches: Sequence[Sequence[NDArray[np.int64]]], executor: Executor
) -> list[list[Told]]:
    """What each says of some stretches of rows; what is trained first is trained once for all of them."""
    asked, places = [], []
    for item, rows in zip(items, stretches, strict=True):
        once, back = np.unique(np.concatenate(rows), return_inverse=True)
        asked.append(set_test(_let_answer(item), once))
        places.append((once, np.split(back, np.cumsum([len(r) for r in rows])[:-1])))
    out = []
    for item, found, (once, parts) in zip(items, _test(asked, executor), places, strict=True):
        labels, width = _read_labels(item, once), item.at.models[item.job.model].classes
        logits = found.told["logits"].double().cpu() if len(once) else torch.zeros(0, width).double()
        held = torch.bincount(_read_labels(item, item.at.rows), minlength=logits.shape[-1]).double()
        where = [torch.from_numpy(p) for p in parts]
        out.append([Told(once[p], logits[at], labels[at], held) for p, at in zip(parts, where, strict=True)])
    return out


def _read_labels(item: Item, rows: NDArray[np.int64]) -> Tensor:
    y = item.at.pool.y
    return y[torch.tensor(rows, device=y.device)].cpu()  # a copy: rows may be read-only


def _let_answer(item: Item) -> Item:
    job = item.job
    if not isinstance(job, Train):
        raise JobError(f"layers: prior: {type(job).__name__} is scored in a way of its own; serve a Train")
    return Item(replace(job, objective=Answering(job.objective)), item.at)


def _test(items: Sequence[Item], executor: Executor) -> list[Scored]:
    out: list[Scored] = [Scored({}, {}) for _ in items]
    still: dict[Hashable, list[int]] = {}  # models used as they are, by the tensors that they share
    alone: dict[Hashable, list[int]] = {}  # of their own, or trained before they are used: many at once
    for i, item in enumerate(items):
        apart = item.job.whole or len(item.job.draw(item.at).index) > 0
        group, name = (alone, item.job.shape()) if apart else (still, identify_model(item))
        group.setdefault(name, []).append(i)
    for together in still.values():
        first = items[together[0]]
        if len(together) == 1 and first.at.test is not None and len(first.at.test) <= SCORING_BATCH:
            alone.setdefault(first.job.shape(), []).append(together[0])
            continue
        for i, found in zip(together, score_together([items[i] for i in together]), strict=True):
            out[i] = found
    for together in alone.values():
        results = executor.run([items[i] for i in together])
        for i, result in zip(together, results, strict=True):
            out[i] = Scored(dict(result.metrics), result.body if isinstance(result.body, dict) else {})
    return out
