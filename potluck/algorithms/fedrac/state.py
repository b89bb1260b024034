"""Fed-RAC's state: the tiers' models, who trains in which of them, and how devices move."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from torch import Tensor

from potluck.algorithms.fedrac.assignment import Place
from potluck.algorithms.fedrac.claims import Device
from potluck.algorithms.fedrac.clustering.resources import Bools, Floats
from potluck.algorithms.fedrac.notes import TIER
from potluck.algorithms.fedrac.schedule import count_rounds, find_leader
from potluck.authoring import Lane, ModelSpec, Node, Note, Params, value


@value(eq=False)
class Tiers:
    """The tiers' models, the richest first, their members, and what is known of everybody."""

    specs: tuple[ModelSpec, ...]
    params: tuple[Params, ...]
    rounds: tuple[int, ...]  # of each tier; R_f
    done: tuple[int, ...]
    chained: bool
    left_out: frozenset[Node] = frozenset()  # too little memory for any model
    known: dict[Node, Device] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()  # of a round: T_f / R_f
    clusters: dict[Node, int] = field(default_factory=dict)
    places: dict[Node, Place] = field(default_factory=dict)  # empty until everybody was measured
    sizes: tuple[int, ...] = ()
    floor: dict[Node, int] = field(default_factory=dict)  # no richer tier than this, of those too often late
    late: dict[Node, int] = field(default_factory=dict)  # rounds in a row
    losses: dict[Node, float] = field(default_factory=dict)  # of a device's last round
    taught: dict[Node, tuple[int, int]] = field(default_factory=dict)  # whose lesson each has: tier, edition
    frozen: dict[int, tuple[int, Params]] = field(default_factory=dict)  # teachers: edition, model
    means: dict[int, float] = field(default_factory=dict)  # loss of each tier's last round
    due: tuple[Lane, ...] = ()  # those whose members are to be measured again before they train
    idle: int = 0  # attempts to measure that too few answered
    mixed: Params | None = None  # one model of all tiers' layers
    at_once: bool = False  # tiers train in the same rounds
    helps: dict[Node, tuple[Place, ...]] = field(default_factory=dict)  # poorer tiers' work that each does
    knows: Tensor | None = None  # [tiers, classes] rows that each tier's model is trained on in a round

    @property
    def left(self) -> list[int]:
        """Rounds that each tier still has; none without members."""
        each = zip(self.rounds, self.done, self.sizes, strict=True)
        return [rounds - done if size else 0 for rounds, done, size in each] if self.sizes else [0]

    @property
    def round(self) -> int:
        return count_rounds(self.left, self.done, self.chained, self.at_once) + self.idle

    def members(self, tier: int) -> list[Node]:
        return [node for node, place in self.places.items() if place.tier == tier]

    def count_rows(self, leader_weight: float = 1.0) -> list[float]:
        """Rows that each tier's model is trained on in a round; the leader's count so many times."""
        rows, leader = [0.0] * len(self.specs), find_leader(self.left, self.done)
        for node, place in self.places.items():
            rows[place.tier] += self.known[node].rows * (leader_weight if place.tier == leader else 1.0)
            for work in self.helps.get(node, ()):
                rows[work.tier] += work.rows * (leader_weight if work.tier == leader else 1.0)
        return rows


def place_devices(m: Tiers, moves: Mapping[Node, Place]) -> Tiers:
    """The same with some in other places; who moves begins anew in being late."""
    places = dict(sorted({**m.places, **moves}.items()))
    count = np.bincount([place.tier for place in places.values()], minlength=len(m.specs))
    late = {node: times for node, times in m.late.items() if node not in moves}
    return replace(m, places=places, sizes=tuple(int(n) for n in count), late=late)


def move_devices(m: Tiers, found: Mapping[Node, Place], why: Mapping[Node, str]) -> tuple[Tiers, list[Note]]:
    """Those that have a reason to move, in the places that were found for them, and a note of each."""
    moves = {node: found[node] for node in why if node in found and _differs(m.places.get(node), found[node])}
    notes = [note_place(node, place, why[node], m.places.get(node)) for node, place in moves.items()]
    return place_devices(m, moves), notes


def note_place(node: Node, place: Place, why: str, before: Place | None = None) -> Note:
    """What is recorded of a device's place."""
    work = {"tier": place.tier, "epochs": place.epochs, "rows": place.rows, "batch": place.batch}
    summary = {**work, "why": why}
    return Note(TIER, summary if before is None else {**summary, "from": before.tier}, node)


def _differs(before: Place | None, after: Place) -> bool:
    return before is None or replace(before, who=after.who) != after


def lighten(place: Place) -> Place:
    """The same place with less work: for those who are late in the last tier. One row stays."""
    if place.epochs > 1:
        return replace(place, epochs=place.epochs - 1, reduced=True)
    return replace(place, rows=max(1, int(0.9 * place.rows)), reduced=True)


def find_nearest_clusters(m: Tiers, nodes: Sequence[Node], scores: Floats) -> dict[Node, int]:
    """Clusters of all nodes; a newcomer's is the one whose mean score is nearest."""
    known = [m.clusters.get(node, -1) for node in nodes]
    labels = np.array(known)
    means = [
        scores[labels == tier].mean() if (labels == tier).any() else np.inf for tier in range(len(m.specs))
    ]
    nearest = np.abs(scores[:, None] - np.array(means)).argmin(1)
    return {
        n: int(near) if cluster < 0 else cluster
        for n, cluster, near in zip(nodes, known, nearest, strict=True)
    }


def close_tiers(m: Tiers, nodes: Iterable[Node], allowed: Bools | None) -> Bools:
    """Which tiers each may join [nodes, tiers]: those allowed, but none above its floor."""
    order = list(nodes)
    table = np.ones((len(order), len(m.specs)), bool) if allowed is None else allowed.copy()
    for i, node in enumerate(order):
        table[i, : m.floor.get(node, 0)] = False
    return table
