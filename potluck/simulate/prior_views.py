"""Beside a view, the same models with every device's own prior: fitted on validation rows, weighed by others.

The devices of a view fit one temperature and one bias a class together, by sums (`jobs.calibrate`). Each then
weighs its model's answers by how common classes are among the rows that it meets, whose labels it doesn't
see, or among those that it trains on (`jobs.prior`). Attackers take part in the fit, as they would, though no
lie about it is modelled. Where models are evaluated on validation rows, no row is answered by a fit that has
seen its label: half of all rows are answered by a fit on the other half, and weighed among a device's own of
their half.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.errors import require
from potluck.core.keys import derive, hash_all
from potluck.jobs.calibrate import (
    ROUNDS,
    Scaling,
    Sums,
    begin_search,
    count_bytes,
    end_search,
    share_of,
    sum_up,
    take_step,
)
from potluck.jobs.prior import WEIGH, ServedForm, weigh_by_labels
from potluck.simulate.served_scores import Scores, Told

Facts = dict[str, float | list[float]]
_KEY = derive(0, int.from_bytes(b"halves"))


class Weighed(NamedTuple):
    """What came of a view: every device's scores on each stretch of test rows, and what was fitted."""

    scores: list[list[Scores]]
    fits: list[Facts]


class Fit(NamedTuple):
    """What devices found together, and what is told of it."""

    scaling: Scaling
    facts: Facts


def weigh_view(devices: Sequence[Sequence[Told]], form: ServedForm, apart: bool) -> Weighed:
    """Each device's rows to fit on, then stretches to test on; `apart`: that may be of the former's rows."""
    known, *tests = zip(*devices, strict=True)
    if not apart:
        fit = fit_together(known)
        return Weighed([score_weighed(test, fit.scaling, form) for test in tests], [fit.facts])
    fits = [fit_together([_take_half(d, which) for d in known]) for which in (0, 1)]
    scores = []
    for test in tests:
        halves = [
            score_weighed([_take_half(d, which) for d in test], fits[1 - which].scaling, form)
            for which in (0, 1)
        ]
        scores.append([join_halves(*pair) for pair in zip(*halves, strict=True)])
    return Weighed(scores, [fit.facts for fit in fits])


def _take_half(told: Told, which: int) -> Told:
    """The rows of one half of all rows there are, by hash."""
    mine = torch.from_numpy((hash_all(_KEY, told.rows) & np.uint64(1)) == which)
    return Told(told.rows[mine.numpy()], told.logits[mine], told.labels[mine], told.held)


def fit_together(devices: Sequence[Told]) -> Fit:
    """By as many rounds of sums as any fit takes; who has no rows has nothing to say."""
    having = [d for d in devices if len(d.labels)]
    require(
        len(having) > 0,
        "layers",
        ["prior"],
        "no device of the panel has validation rows to fit on; raise data.validation",
    )
    logits, labels, weight = _lay_out(having)
    classes = logits.shape[-1]
    search = begin_search(logits, classes)
    for _ in range(ROUNDS):
        each = torch.vmap(sum_up, (0, 0, 0, None))(logits, labels, weight, search.at)
        sums = Sums(*(t.sum(0) for t in each))
        search = take_step(search, sums)
    scaling = end_search(search, share_of(sums.counts))
    facts: Facts = {
        "temperature": float(1 / scaling.slope),
        "biases": scaling.bias.tolist(),
        "rows": float(sums.counts.sum()),
        "rounds": float(ROUNDS),
        "bytes": float(len(devices) * sum(count_bytes(classes))),
    }
    return Fit(scaling, facts)


def score_weighed(devices: Sequence[Told], scaling: Scaling, form: ServedForm) -> list[Scores]:
    """Of every device, how good its weighed answers are; a device without rows has no scores but that."""
    if not any(len(d.labels) for d in devices):
        return [{"rows": 0.0} for _ in devices]
    logits, labels, weight = _lay_out(devices)
    plain = scaling.read(logits)
    weighed: dict[ServedForm, Tensor] = {
        name: weigh(plain, weight, scaling.source) for name, weigh in WEIGH.items()
    }
    weighed["labels"] = weigh_by_labels(plain, torch.stack([d.held for d in devices]), scaling.source)
    right: dict[str, Tensor] = {name: logs.argmax(-1) == labels for name, logs in weighed.items()}
    losses = F.cross_entropy(weighed[form].transpose(-1, -2), labels, reduction="none")
    columns = {
        "accuracy": right[form],
        "loss": losses,
        **right,  # by every form
        "calibrated": plain.argmax(-1) == labels,  # what temperature and biases come to alone
    }
    rows = weight.sum(-1)
    table = {
        name: (torch.where(weight > 0, c.double(), 0.0).sum(-1) / rows).tolist()
        for name, c in columns.items()
    }
    return [
        {**({name: means[i] for name, means in table.items()} if n else {}), "rows": n}
        for i, n in enumerate(rows.tolist())
    ]


def join_halves(one: Scores, other: Scores) -> Scores:
    """The scores of both halves of a device's rows as those of all."""
    rows = one["rows"] + other["rows"]
    names = [n for n in (one if one["rows"] else other) if n != "rows"]
    means = {n: sum(half[n] * half["rows"] / rows for half in (one, other) if half["rows"]) for n in names}
    return {**means, "rows": rows}


def _lay_out(devices: Sequence[Told]) -> tuple[Tensor, Tensor, Tensor]:
    """[devices, rows, ...] logits, labels and weights, with padding after a device's last row."""
    sizes = torch.tensor([len(d.labels) for d in devices])
    pad = torch.nn.utils.rnn.pad_sequence
    logits = pad([d.logits for d in devices], batch_first=True)
    labels = pad([d.labels for d in devices], batch_first=True)
    real = torch.arange(labels.shape[1]) < sizes.unsqueeze(1)
    return logits, labels, real.to(logits.dtype)
