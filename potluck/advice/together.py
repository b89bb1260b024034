"""Several inequalities at once: which systems' layers together, and why each."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from potluck.core.advice import HELPS_FROM, Advice, AsLayer, Measured
from potluck.core.codec import Json
from potluck.core.errors import ConfigError
from potluck.engine.acceptance import ask_doubt
from potluck.jobs import Train
from potluck.layers import find_refusal, sort_layers, stacked

BASE = "fedavg"
ALIKE = 0.5  # of owners' devices, beyond chance, in one group: else whoever stands above hears a mixture
GROUPS = "cohorts"
OWNERS = {"users": "user", "edges": "edge"}  # layers that make one of several devices


@dataclass(frozen=True)
class Stack:
    """Layers around FedAvg that each answer what was measured."""

    layers: tuple[str, ...]  # in their order
    tables: dict[str, dict[str, Json]]  # [layer.NAME]
    why: Mapping[str, str]  # of each layer
    members: int  # right below the cloud

    @property
    def name(self) -> str:
        return "+".join(self.layers)

    @property
    def line(self) -> str:
        """As an experiment's file asks for it."""
        return f"layers = {json.dumps(self.layers)}"


def find_stack(advice: Sequence[Advice], measured: Measured) -> Stack | None:
    """The layers that together have most to mend, of those that go together; None: fewer than two do."""
    useful = [a.layer for a in advice if a.layer is not None and a.layer.score >= HELPS_FROM]
    chosen = [group for size in range(2, len(useful) + 1) for group in combinations(useful, size)]
    for parts in sorted(chosen, key=lambda parts: -sum(part.score for part in parts)):
        if (found := _make_stack(parts, measured)) is not None:
            return found
    return None


def _make_stack(parts: Sequence[AsLayer], measured: Measured) -> Stack | None:
    """None where these layers don't go together, here or anywhere."""
    by_name = {part.name: part for part in parts}
    names = sort_layers([*by_name])
    if find_refusal(BASE, names) is not None or not _can_stand(names, measured):
        return None
    members = _count_members(names, measured)
    tables = {name: _fit_table(by_name[name].settings, members) for name in names}
    why = {name: by_name[name].why for name in names}
    if GROUPS in names:
        for name in OWNERS.keys() & {*names}:
            alike = _read_alike(name, measured)
            if alike is None or alike < ALIKE:
                return None
            why[GROUPS] += (
                f"; devices of one {OWNERS[name]} are of one group ({alike:.2f}: 1 all, 0 by chance)"
            )
    try:
        doubt = ask_doubt(stacked(BASE, Train(), {}, None, **tables), members)
    except ConfigError:  # such as more cohorts than members can feed
        return None
    return None if doubt else Stack(tuple(names), tables, why, members)


def _can_stand(names: Sequence[str], measured: Measured) -> bool:
    """Whether each user is below one edge, where both are layers."""
    return not {"users", "edges"} <= {*names} or (measured.users is not None and measured.users.together)


def _count_members(names: Sequence[str], measured: Measured) -> int:
    """Who is right below the cloud."""
    if "edges" in names and measured.edges is not None:
        return measured.edges.count
    if "users" in names and measured.users is not None:
        u = measured.users
        return u.several + round((1 - u.share) * measured.devices)
    return measured.devices


def _read_alike(name: str, measured: Measured) -> float | None:
    owners = measured.users if name == "users" else measured.edges
    return None if owners is None else owners.alike


def _fit_table(settings: Mapping[str, Json], members: int) -> dict[str, Json]:
    """With no more members a round than there are: systems count devices."""
    clients = settings.get("clients")
    return {**settings, **({"clients": min(clients, members)} if isinstance(clients, int) else {})}
