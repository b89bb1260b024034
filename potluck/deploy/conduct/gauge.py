"""How fast devices and their links are, by the work that they do: medians of the last few tasks."""

from collections import deque
from statistics import median

from potluck.core.messages import Node, Spent
from potluck.deploy.conduct.claims import LEAST, MOST
from potluck.fleet import REFERENCE_OPS

KEPT = 8  # tasks
SMALL = 64 << 10  # bytes; less tells more of latency than of a rate
CHANGE = 0.2  # what differs by less isn't told


class Gauge:
    """What was measured of each device; nothing here has to last."""

    def __init__(self) -> None:
        self.seen: dict[Node, dict[str, deque[float]]] = {}

    def note(self, node: Node, ops: float, spent: Spent, down: int, up: int) -> None:
        """A task was done: so many multiply-accumulates, seconds and bytes."""
        kept = self.seen.setdefault(node, {})
        found = {}
        if ops > 0 and spent.compute > 0:
            found["compute"] = 1000 * spent.compute * REFERENCE_OPS / ops
        if down > SMALL and spent.down > 0:
            found["down"] = 8 * down / spent.down
        if up > SMALL and spent.up > 0:
            found["up"] = 8 * up / spent.up
        elif up and spent.up > 0:
            found["latency"] = spent.up
        for name, number in found.items():
            kept.setdefault(name, deque(maxlen=KEPT)).append(min(max(number, LEAST), MOST))

    def find_news(self, node: Node, told: dict[str, float]) -> dict[str, float]:
        """What is to be told of a device: what was measured often enough, and isn't as it was."""
        kept = self.seen.get(node, {})
        found = {name: median(numbers) for name, numbers in kept.items() if len(numbers) == KEPT}
        return {
            name: number
            for name, number in found.items()
            if name not in told or abs(number - told[name]) > CHANGE * told[name]
        }
