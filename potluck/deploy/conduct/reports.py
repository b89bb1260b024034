"""What devices report, judged before it reaches an algorithm: nothing in it is believed that can't be."""

from math import inf
from typing import NamedTuple

import numpy as np
import torch

from potluck.core.codec import Limits
from potluck.core.errors import DecodeError
from potluck.core.job import Cost, Local, Result
from potluck.core.messages import Task, Tell, Why
from potluck.core.trees import Tree, nbytes
from potluck.deploy import parcels
from potluck.deploy.conduct.terms import Rows, Terms
from potluck.engine.checks import find_problem

SLACK = 1 << 20  # bytes of a report beside its numbers


class Work(NamedTuple):
    """What a device made of its work."""

    body: Tree
    weight: float
    metrics: dict[str, float]
    kept: bool  # whether its memory changed


class Refusal(NamedTuple):
    """Why a report isn't taken."""

    text: str
    why: Why


def read_work(report: bytes, cost: Cost, limits: Limits) -> Work | Refusal:
    """A report on work; `cost`: what its job promised."""
    try:
        head, rest = parcels.unpack_report(report, limits)
        if isinstance(head, parcels.Failed):
            told = parcels.make_line(f"{head.status:.20}: {head.why}")
            return Refusal(told, "refused" if head.status == "refused" else "bad")
        if not isinstance(head, parcels.Done):
            return Refusal(f"a {type(head).__name__} where work was asked for", "bad")
        tree = parcels.read_body(rest, limits=limits)
        wrong = find_problem(Result(tree, head.weight, None, head.metrics), cost, trusted=False)
    except DecodeError as error:
        return Refusal(parcels.make_line(f"unreadable: {error}"), "bad")
    if wrong:
        return Refusal(wrong, "bad")
    return Work(tree, float(head.weight), dict(head.metrics), head.kept is True)


def shorten(report: bytes, cost: Cost) -> bytes:
    """A report that can be stored: one that is far longer than what was asked for is refused here already."""
    most = inf if cost.sends is None else SLACK + 4 * nbytes(cost.sends)
    if len(report) <= most:
        return report
    return parcels.pack(parcels.Failed("", "bad", f"{len(report)} bytes where {most:.0f} are enough"))


def imagine(item: Task | Tell, count: int, terms: Terms) -> Local:
    """A device as the server knows it: how many rows it has, and nothing of its memory."""
    pool = _Zeros(terms.rows, count)
    rows = np.broadcast_to(np.int64(0), count)  # a device may say that it has billions
    return Local(item.to, rows, item.send, None, 0, terms.models, pool)


class _Zeros:
    """Rows as a server sees them: their number and form. They take no memory."""

    def __init__(self, rows: Rows, count: int) -> None:
        self.x = torch.zeros(1, dtype=rows.dtype).expand(count, *rows.shape)
        self.y = torch.zeros(1, dtype=torch.int64).expand(count)
