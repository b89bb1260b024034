"""What devices tell Fed-RAC of themselves, checked: rates and speed by timed trials, memory by being late.

A claim that a measurement bears out, to within a tolerance, stays as it was made; else what was measured
takes its place. Memory can't be timed: who is late again and again although its speed and rates were verified
has less of it than it says.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from potluck.algorithms.fedrac.device.trial import Trial
from potluck.authoring import Claims, Got, Node, Reply, nbytes, value
from potluck.fleet import REFERENCE_OPS

Differences = dict[str, tuple[float, float]]  # what was believed and what was measured, by name


@value
class Device:
    """A participant as it is believed to be."""

    compute: float  # ms for a forward pass of one row of the reference model
    up: float  # bits per second
    down: float
    latency: float  # seconds
    memory: float  # bytes
    rows: int
    labels: tuple[float, ...] = ()  # rows of each class, where devices are asked

    @property
    def rate(self) -> float:
        """Of something that goes there and back."""
        return 2 / (1 / self.up + 1 / self.down)

    @property
    def vector(self) -> tuple[float, float, float]:
        """Speed, rate and memory: more is better."""
        return 1 / self.compute, self.rate, self.memory


def read_claims(nodes: Sequence[Node], claims: Claims, rows: Sequence[int]) -> dict[Node, Device]:
    """Everybody as they say, with so many rows."""
    columns = (claims.compute, claims.up, claims.down, claims.latency, claims.memory)
    each = zip(nodes, *(column.tolist() for column in columns), rows, strict=True)
    return {node: Device(*values) for node, *values in each}


def check_claims(
    believed: Device, reply: Reply, tolerance: float, ops: int | None = None
) -> tuple[Device, Differences]:
    """The device after what a reply showed, and what was off; `ops`: of a row, if it was a `Trial`."""
    found = {
        "up": measure_rate(nbytes(reply.body), reply.spent.up, believed.latency),
        "down": measure_rate(nbytes(reply.task.send), reply.spent.down, believed.latency),
    }
    if ops is not None and isinstance(reply.task.job, Trial):
        found["compute"] = 1000 * reply.spent.compute * REFERENCE_OPS / (reply.task.job.passes * ops)
    off: Differences = {}
    for name, measured in found.items():
        claimed: float = getattr(believed, name)
        if measured > 0 and isfinite(measured) and abs(measured - claimed) > tolerance * claimed:
            off[name] = claimed, measured
    new = {name: off[name][1] if name in off else getattr(believed, name) for name in found}
    after = replace(believed, up=new["up"], down=new["down"], compute=new.get("compute", believed.compute))
    return after, off


def measure_rate(size: int, seconds: float, latency: float) -> float:
    """Bits per second of a transfer; the device's latency is taken off where it can be true."""
    passing = seconds - latency if seconds > latency else seconds
    return 8 * size / passing if passing > 0 and size > 0 else float("inf")


def count_late(late: dict[Node, int], got: Got) -> dict[Node, int]:
    """Rounds in a row that each was late in, after one more."""
    answered = {r.task.to for r in got.replies}
    after = {node: times for node, times in late.items() if node not in answered}
    for task in got.find_lost("late"):
        after[task.to] = after.get(task.to, 0) + 1
    return after
