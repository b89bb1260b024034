"""Seeds: by who asked whom for what, never by when or where it is computed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.messages import Move, Node, Task, Tell
from potluck.engine.flight import Flight

NAMELESS = -1  # in place of a barrier's serial, for items without an id
EVALUATION = -7  # stream of the run's seed: what is served and scored is drawn apart from what is trained


def seed_work(seed: int, flight: Flight, item: Task | Tell) -> int:
    """What a task or a tell draws from."""
    if type(item) is Task and item.id is not None:
        return keys.derive(seed, item.to, flight.sender, item.id[1], item.id[2])
    return _seed_by_count(seed, item.to, flight)


def seed_all(seed: int, tasks: Sequence[Task], nodes: NDArray[np.int64], sender: Node) -> NDArray[np.uint64]:
    """What tasks of one barrier draw from: `seed_work` of each."""
    at = [task.id for task in tasks if task.id is not None]
    places = np.array([place for _, _, place in at], np.int64)
    keyed = keys.hash_all(keys.hash_all(seed, nodes), np.array([sender]))
    return keys.hash_all(keys.hash_all(keyed, np.array([at[0][1]])), places)


def seed_move(seed: int, flight: Flight, move: Move) -> int:
    """What a move draws its rows from."""
    return _seed_by_count(seed, move.src, flight)


def seed_choice(seed: int, node: Node) -> int:
    """What a device draws from that chooses between several offers: the same at every evaluation."""
    return keys.derive(seed, EVALUATION, -1, node)


def seed_score(seed: int, serial: int, node: Node) -> int:
    """What a served job draws from; `serial`: of the evaluation."""
    return keys.derive(seed, EVALUATION, serial, node)


def _seed_by_count(seed: int, node: Node, flight: Flight) -> int:
    """Of what has no id: by how many items its sender has sent so far, whatever others do meanwhile."""
    return keys.derive(seed, node, flight.sender, NAMELESS, flight.count)
