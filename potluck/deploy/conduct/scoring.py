"""How good the served models are, where the rows are: devices score what they would use, on their test rows.

It never changes a run, only how long it takes: scoring has a random stream of its own, reads memories without
changing them, and takes no turn in a device's queue of work.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from potluck.core.errors import DecodeError
from potluck.core.messages import Node, Task
from potluck.core.trees import Tree, is_number
from potluck.deploy import parcels
from potluck.deploy.conduct.conductor_state import Ask, ConductorState, OpenEvaluation
from potluck.engine.accounts import Accounts
from potluck.engine.checks import MOST_METRIC
from potluck.engine.host import Host
from potluck.engine.offers import find_offers
from potluck.engine.point import Point
from potluck.engine.records import Records
from potluck.engine.schedule import EvaluateAt
from potluck.engine.seeds import seed_choice, seed_score
from potluck.simulate.evaluate import choose_panel, summarise

MOST = 64  # numbers that a device may tell of one model
LONGEST = 64  # characters of a number's name


class Owner(Host, Protocol):
    """What evaluations need of a conductor."""

    state: ConductorState
    point: Point
    logs: Records
    accounts: Accounts

    @property
    def tested(self) -> bool: ...  # whether the server has rows to test on
    def is_there(self, node: Node) -> bool: ...
    def find_base(self, node: Node, slot: object) -> str | None: ...
    def reach(self, accuracy: float | None) -> None: ...


class Evaluations:
    """Asks devices for scores, and records what they come to when all have answered or left."""

    def __init__(self, owner: Owner, often: EvaluateAt) -> None:
        self.owner, self.often = owner, often
        self.panel: list[Node] = choose_panel(owner.root, often.panel, owner.seed).tolist()
        self.fresh: dict[str, None] = {}  # asks that are to leave

    def begin(self) -> None:
        """Ask every device of the panel that is there, and the server itself, to score what it would use."""
        owner, state = self.owner, self.owner.state
        own = owner.point.own
        if state.evaluated == (own.round, owner.now):
            return
        serial = state.evaluations
        state.evaluations, state.evaluated = serial + 1, (own.round, owner.now)
        owner.accounts.record(owner.logs, own.round, owner.now)
        nodes = [node for node in self.panel if owner.is_there(node)]
        asks: dict[str, Ask] = {}
        for node in [*nodes, owner.root] if owner.tested and self.often.on == "test" else nodes:
            offers = find_offers(owner, {owner.root: owner.point}, node, serial)
            for place, (view, offer) in enumerate(offers.items()):
                asks[f"{state.run}/{owner.root}/e{serial}-{node}-{place}"] = Ask(node, view, offer)
        state.open[serial] = OpenEvaluation(serial, own.round, owner.now, asks)
        self.fresh |= dict.fromkeys(asks)
        self._close_complete()

    def judge(self, key: str, body: bytes) -> None:
        """A report has come."""
        found = self._find(key)
        if found is None:
            return
        ask = found.asks.pop(key)
        scored = _read(body)
        if scored is not None:
            found.found.append((ask.node, ask.view, *scored))
        self._close_complete()

    def give_up(self, key: str) -> None:
        """Nobody will score this."""
        found = self._find(key)
        if found is not None:
            del found.asks[key]
            self._close_complete()

    def forget(self, node: Node) -> None:
        """A device has left."""
        for found in self.owner.state.open.values():
            found.asks = {key: ask for key, ask in found.asks.items() if ask.node != node}
        self._close_complete()

    def find_ask(self, key: str) -> Ask | None:
        """What is asked under a key, if its answer is still wanted."""
        found = self._find(key)
        return None if found is None else found.asks[key]

    def list_asks(self) -> Iterator[tuple[str, int, Ask]]:
        """All that is asked and not answered: key, serial of the evaluation, ask."""
        for found in self.owner.state.open.values():
            for key, ask in found.asks.items():
                yield key, found.serial, ask

    def make_order(self, key: str, serial: int, ask: Ask) -> tuple[parcels.Score | parcels.Choose, Tree]:
        """What a device is told, and what it is sent."""
        node, offer = ask.node, ask.offer
        if isinstance(offer, Task):
            return self._make_score(key, serial, offer, node), offer.send
        scores = {name: self._make_score(key, serial, task, node) for name, task in offer.tasks.items()}
        base, seed = self.owner.find_base(node, offer.slot), seed_choice(self.owner.seed, node)
        body = {"send": offer.send, "tasks": {name: task.send for name, task in offer.tasks.items()}}
        return parcels.Choose(key, offer.job, seed, offer.slot, base, scores, node), body

    def _make_score(self, key: str, serial: int, task: Task, node: Node) -> parcels.Score:
        base, seed = self.owner.find_base(node, task.slot), seed_score(self.owner.seed, serial, node)
        return parcels.Score(key, task.job, seed, task.slot, base, node, self.often.on)

    def _find(self, key: str) -> OpenEvaluation | None:
        return next((found for found in self.owner.state.open.values() if key in found.asks), None)

    def _close_complete(self) -> None:
        for serial in [n for n, found in self.owner.state.open.items() if not found.asks]:
            accuracy = self._record(self.owner.state.open.pop(serial))
            self.owner.reach(accuracy)

    def _record(self, done: OpenEvaluation) -> float | None:
        """Every device's scores, and means over devices; in the order of devices, however they came."""
        logs, root, by_view = self.owner.logs, self.owner.root, dict[str, list[float]]()
        for node, view, scores, chosen in sorted(done.found, key=lambda f: (f[0], f[1])):
            whose = None if node == root else node
            if chosen is not None and whose is not None:
                logs.write(done.round, done.time, "chosen", chosen, node=whose, view=view)
            for name, number in scores.items():
                if name != "rows":
                    prefix = "global_" if whose is None else ""
                    logs.write(done.round, done.time, prefix + name, number, node=whose, view=view)
            if whose is not None and "accuracy" in scores:
                by_view.setdefault(view, []).append(scores["accuracy"])
        for view, accuracies in by_view.items():
            for name, number in summarise(np.array(accuracies)).items():
                logs.write(done.round, done.time, f"accuracy_{name}", number, view=view)
        own = {view: s["accuracy"] for node, view, s, _ in done.found if node == root and "accuracy" in s}
        if len(own) == 1 and next(iter(by_view), None) in own:  # one model, which all devices use
            ((view, accuracy),) = own.items()
            told = {"accuracy": accuracy, "models": 1, "used": True}
            logs.write(done.round, done.time, "global_test", told, view=view)
        headline = next(iter(by_view.values()), None)
        return None if headline is None else float(np.mean(headline))


def _read(body: bytes) -> tuple[dict[str, float], dict[str, float | str] | None] | None:
    """The scores of a report, if they are numbers."""
    try:
        head, _ = parcels.unpack_report(body)
    except DecodeError:
        return None
    scores = _clean(head.metrics) if isinstance(head, parcels.Scored) else None
    if scores is None or not isinstance(head, parcels.Scored):
        return None
    if head.chosen is None:
        return scores, None
    name = head.chosen.get("name")
    told = {name: number for name, number in head.chosen.items() if type(name) is str and name != "name"}
    chosen = parcels.make_line(name, LONGEST) if isinstance(name, str) else ""
    return scores, {"name": chosen, **(_clean(told) or {})}


def _clean(numbers: Mapping[str, float | str]) -> dict[str, float] | None:
    if len(numbers) > MOST:
        return None
    good = all(
        isinstance(n, str) and len(n) <= LONGEST and n.isidentifier() and n.isascii() and _can_be(n, x)
        for n, x in numbers.items()
    )
    return {name: float(number) for name, number in numbers.items()} if good else None


def _can_be(name: str, number: float | str) -> bool:
    least, most = (0.0, 1.0) if name == "accuracy" else (-MOST_METRIC, MOST_METRIC)
    return not isinstance(number, str) and is_number(number) and least <= number <= most
