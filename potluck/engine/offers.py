"""What a node is offered by the points above it, and which of it the device settles on. Nothing is scored."""

from collections.abc import Mapping
from typing import NamedTuple

from potluck.core.job import Local
from potluck.core.messages import Choice, Node, Task
from potluck.engine.context import EventContext
from potluck.engine.host import Host
from potluck.engine.point import Point
from potluck.engine.seeds import EVALUATION
from potluck.execute.reference import run_alone

Chosen = Mapping[str, float | str]


class Settled(NamedTuple):
    """What a node would use."""

    task: Task
    chosen: Chosen | None = None  # its name and what was measured, where the device chose


def find_offers(
    host: Host, points: Mapping[Node, Point], node: Node, serial: int
) -> dict[str, Task | Choice]:
    """By view: its own aggregator's views first, the cloud's word last; `serial`: of the evaluation."""
    offers: dict[str, Task | Choice] = {}
    for aggregator in (node,) if node == host.root else host.topology.path(node):
        point, ctx = points[aggregator], EventContext(host, aggregator, (EVALUATION, serial, node))
        offers |= point.algorithm.serve(point.own.state, node, ctx)
    return offers


def settle(offer: Choice, at: Local) -> Settled:
    """Which of several tasks the device chooses, on the spot."""
    result = run_alone(offer.job, at)
    return Settled(offer.tasks[result.body], {"name": result.body, **result.metrics})
