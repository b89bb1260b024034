"""What a device holds, and how fast it is right now: claims don't change when devices do."""

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.messages import Reply
from potluck.core.trees import nbytes
from potluck.fleet.cost import transfer_seconds


@value
class Gauge:
    """Rows by class, after ballast there and back and a few forward passes: `spent` tells the pace."""

    model: ModelSpec
    passes: int = 3

    def cost(self, at: Local) -> Cost:
        net = at.models[self.model]
        rows, x = len(at.rows), at.pool.x
        counts = torch.full((net.classes,), rows)
        form = {"counts": counts, "row_bytes": _count_row_bytes(x), "ballast": at.inbox["ballast"]}
        return Cost(float(self.passes * net.ops), form, weight=float(rows))

    def run(self, at: Local) -> Result:
        net, x = at.models[self.model], at.pool.x
        with torch.no_grad():
            net(net.init(at.seed), x.new_zeros((self.passes, *x.shape[1:])))  # only the time is of interest
        counts = torch.bincount(at.y, minlength=net.classes).cpu()
        body = {"counts": counts, "row_bytes": _count_row_bytes(x), "ballast": at.inbox["ballast"]}
        return Result(body, weight=float(len(at.rows)))


@value
class DeviceGauge:
    """A device as it was found."""

    counts: tuple[int, ...]  # rows by class
    row_bytes: int
    compute: float  # seconds of a forward pass of one row
    up: float  # bits per second
    down: float
    latency: float = 0.0  # seconds one way, by its own word

    @property
    def rate(self) -> float:
        return (self.up + self.down) / 2

    def transfer(self, size: float) -> float:
        """Seconds that a model of so many bytes takes down and up."""
        down, up = (transfer_seconds(size, rate, self.latency) for rate in (self.down, self.up))
        return down + up


def read_gauge(reply: Reply, latency: float) -> DeviceGauge:
    """What the reply to a `Gauge` tells; `latency` is the device's word, heeded where it can be true."""
    spent, job = reply.spent, reply.task.job
    assert isinstance(job, Gauge)
    return DeviceGauge(
        tuple(reply.body["counts"].tolist()),
        int(reply.body["row_bytes"]),
        spent.compute / job.passes,
        _rate(nbytes(reply.body), spent.up, latency),
        _rate(nbytes(reply.task.send), spent.down, latency),
        latency if latency < min(spent.up, spent.down) else 0.0,
    )


def _count_row_bytes(x: Tensor) -> int:
    """Of a row and its label."""
    return int(x.shape[1:].numel() * x.element_size() + 8)


def _rate(size: int, seconds: float, latency: float) -> float:
    passing = seconds - latency if seconds > latency else seconds
    return 8 * size / passing if passing > 0 else float("inf")
