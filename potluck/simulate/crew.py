"""Who of the attackers crafts lies together, and when: attackers who collude.

A group are the training tasks of one barrier (one aggregator, lane and serial) that have begun by the time
when the first of them ends, whosever that is, and whose replies are of the same form. At that moment, before
anybody has answered, all of them are computed, and what its attackers send is crafted from what its honest
devices truly send: each attacker then answers at its own time. What others send later on the virtual clock is
known to them, as the papers have it; so are updates that come too late for the server. Not heard of are
devices that leave before their end, which have no update, and numbers that are NaN or infinite. Who begins
later, behind other work in its device's queue, belongs to a group of those who do. Tasks that come one at a
time, as those of asynchronous algorithms, are groups of one.

Who is in a group goes by the virtual clock alone, and what is crafted by true results and tasks' seeds: no
executor, order or resumed run makes a difference.
"""

from collections.abc import Hashable
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Result, trains
from potluck.core.messages import Node, Task
from potluck.core.trees import finite, leaves
from potluck.engine.flight import Flight
from potluck.engine.seeds import seed_work
from potluck.fleet import Attack
from potluck.simulate.attack import LYING
from potluck.simulate.collusion import craft
from potluck.simulate.training import PendingTraining


@value(frozen=False, eq=False)
class CrewState:
    """What was agreed on, and isn't sent yet."""

    groups: dict[Hashable, list[int]] = field(default_factory=dict)  # flights of which none has ended
    lies: dict[int, Result] = field(default_factory=dict)  # by flight


class Crew:
    """All attackers, where they collude."""

    def __init__(
        self,
        attack: Attack,
        attackers: NDArray[np.bool_],
        training: PendingTraining,
        seed: int,
        state: CrewState,
    ) -> None:
        self.attack, self.training, self.seed, self.state = attack, training, seed, state
        self.attackers: set[Node] = set(np.flatnonzero(attackers).tolist())
        self.devices = len(attackers)

    def join(self, flight: Flight) -> None:
        """A flight has begun that will end."""
        item = flight.item
        if type(item) is Task and item.to < self.devices and trains(item.job):
            self.state.groups.setdefault(_name(flight, item), []).append(flight.id)

    def leave(self, flight: Flight) -> None:
        """Nobody waits for it any more."""
        item = flight.item
        self.state.lies.pop(flight.id, None)
        if type(item) is Task:
            group = self.state.groups.get(_name(flight, item), [])
            if flight.id in group:
                group.remove(flight.id)
                if not group:
                    del self.state.groups[_name(flight, item)]

    def answer(self, flight: Flight, task: Task, result: Result) -> Result:
        """What comes of a flight that is due and whose true result this is: a lie, if an attacker's."""
        name = _name(flight, task)
        group = self.state.groups.get(name, [])
        if flight.id in group:  # else another of its group was first
            del self.state.groups[name]
            self._conspire([flight if fid == flight.id else self.training.queues.look(fid) for fid in group])
        return self.state.lies.pop(flight.id, result)

    def _conspire(self, group: list[Flight]) -> None:
        """Craft what all attackers of a group send."""
        if not any(_read(flight).to in self.attackers for flight in group):
            return
        by_form: dict[Hashable, list[tuple[Flight, Result]]] = {}
        for flight in group:
            result = self.training.compute(flight, _read(flight))
            if result.finite or finite(result.body):
                form = tuple((t.shape, t.dtype) for t in leaves(result.body))
                by_form.setdefault(form, []).append((flight, result))
        for alike in by_form.values():
            self._craft(alike)

    def _craft(self, alike: list[tuple[Flight, Result]]) -> None:
        honest = [result.body for flight, result in alike if _read(flight).to not in self.attackers]
        crew = [(flight, result) for flight, result in alike if _read(flight).to in self.attackers]
        if not crew:
            return
        seeds = [keys.derive(seed_work(self.seed, flight, _read(flight)), LYING) for flight, _ in crew]
        bodies = craft(self.attack, honest, [result.body for _, result in crew], seeds)
        for (flight, result), body in zip(crew, bodies, strict=True):
            self.state.lies[flight.id] = replace(result, body=body, finite=False)


def _read(flight: Flight) -> Task:
    assert type(flight.item) is Task
    return flight.item


def _name(flight: Flight, task: Task) -> Hashable:
    """Equal for the tasks of one barrier; a task without an id is alone."""
    return (flight.sender, flight.count) if task.id is None else (flight.sender, *task.id[:2])
