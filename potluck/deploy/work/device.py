"""A device: its own rows, its own memory, one job at a time.

It takes parcels and answers with parcels, and knows no network. It builds nothing that isn't in its
vocabulary, and nothing leaves it but results, weights and metrics.
"""

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from potluck.core import codec
from potluck.core.codec import Limits
from potluck.core.errors import DecodeError, PotluckError, StorageError
from potluck.core.job import Job, Local, Nets, Result, Samples, trains
from potluck.core.messages import Node
from potluck.core.trees import Tree
from potluck.deploy import parcels
from potluck.deploy.parcels import LINE
from potluck.deploy.work.versions import Memory, Version
from potluck.engine.checks import find_problem
from potluck.execute.reference import Halted, Item, run_alone, train

# What a job may raise over what it was sent: it was made elsewhere, perhaps by another version.
FAULTS = (
    *(PotluckError, ArithmeticError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, TypeError, ValueError),
)


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows that are nobody else's."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, eq=False)
class Holding:
    """The rows of a device, by part."""

    pool: Samples
    parts: Mapping[str, NDArray[np.int64]]  # train, validation, test: places in the pool
    classes: int

    def rows(self, part: str) -> NDArray[np.int64]:
        return self.parts.get(part, np.zeros(0, np.int64))


class Device:
    """Does what parcels ask for."""

    def __init__(
        self,
        folder: Path,
        holding: Holding,
        models: Nets,
        allow: Collection[str],
        *,
        version: str = "",  # of Potluck
        claims: Callable[[], dict[str, float]] = dict,
        limits: Limits = parcels.BODY,
    ) -> None:
        self.holding, self.models, self.limits = holding, models, limits
        self.version, self.claims = version, claims
        self.allow = frozenset(allow)
        self.memory = Memory(folder)

    def answer(self, parcel: bytes, down: float = 0.0, halt: Callable[[], bool] | None = None) -> bytes:
        """A report on a parcel; empty where there is nothing to say. `down`: seconds that it took to come."""
        try:
            head, body = parcels.unpack_order(parcel, self.allow, self.limits)
        except DecodeError as error:
            return parcels.pack(parcels.Failed("", "refused", str(error)[:LINE]))
        if isinstance(head, parcels.Hello):
            return parcels.pack(self._greet(head))
        if isinstance(head, parcels.CallOff):
            return b""
        try:
            if isinstance(head, parcels.Work):
                return self._work(head, body, down, halt)
            return parcels.pack(self._score(head, body))
        except Halted:
            return b""
        except DecodeError as error:
            return parcels.pack(parcels.Failed(head.key, "refused", str(error)[:LINE]))
        except StorageError:
            raise  # a full disk is for the device's owner: its process ends, and goes on from there
        except FAULTS as error:
            return parcels.pack(parcels.Failed(head.key, "failed", f"{type(error).__name__}: {error}"[:LINE]))

    def _greet(self, head: parcels.Hello) -> parcels.Present | parcels.Failed:
        if head.protocol == parcels.PROTOCOL:
            return self.present()
        spoken = f"protocol {head.protocol!r:.20}, this device speaks {parcels.PROTOCOL}"
        return parcels.Failed("", "refused", f"{spoken}: install the same version")

    def present(self) -> parcels.Present:
        """What a device says of itself."""
        holding = self.holding
        labels = np.bincount(holding.pool.y.numpy()[holding.rows("train")], minlength=holding.classes)
        rows = {part: len(places) for part, places in holding.parts.items()}
        return parcels.Present(parcels.PROTOCOL, self.version, rows, labels.tolist(), self.claims())

    def _work(self, head: parcels.Work, body: bytes, down: float, halt: Callable[[], bool] | None) -> bytes:
        done = self.memory.find_report(head.slot, head.key)
        if done is not None:
            return done
        began = time.perf_counter()
        at = self._place(head.slot, head.base, head.seed, head.node, self._read(body))
        cost = head.job.cost(at)
        result = _run(head.job, at, halt)
        wrong = find_problem(result, cost, trusted=True)
        if wrong:
            return parcels.pack(parcels.Failed(head.key, "bad", wrong[:LINE]))
        took = time.perf_counter() - began
        metrics = {name: float(number) for name, number in result.metrics.items()}
        told = parcels.Done(head.key, float(result.weight), metrics, result.keep is not None, down, took)
        report = parcels.pack(told, b"" if result.body is None else codec.encode(result.body))
        self.memory.store(head.slot, head.base, Version(head.key, result.keep, report))
        return report

    def _score(self, head: parcels.Score | parcels.Choose, body: bytes) -> parcels.Scored:
        sent, chosen = self._read(body), None
        if isinstance(head, parcels.Choose):
            at = self._place(head.slot, head.base, head.seed, head.node, sent["send"])
            found = run_alone(head.job, at)
            chosen = {"name": found.body, **found.metrics}
            head, sent = head.scores[found.body], sent["tasks"][found.body]
        rows = self.holding.rows(head.part)
        at = self._place(head.slot, head.base, head.seed, head.node, sent, rows)
        result = _run(head.job, at, None)
        return parcels.Scored(head.key, {n: float(x) for n, x in result.metrics.items()}, chosen)

    def _read(self, body: bytes) -> Tree:
        return parcels.read_body(body, self.allow, self.limits)

    def _place(
        self,
        slot: Hashable,
        base: str | None,
        seed: int,
        node: Node,
        sent: dict[str, Tree],
        test: NDArray[np.int64] | None = None,
    ) -> Local:
        keep, holding = self.memory.recall(slot, base), self.holding
        return Local(node, holding.rows("train"), sent, keep, seed, self.models, holding.pool, test)


def _run(job: Job, at: Local, halt: Callable[[], bool] | None) -> Result:
    return train(Item(job, at), halt) if trains(job) else run_alone(job, at)
