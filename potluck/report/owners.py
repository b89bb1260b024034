"""How cohorts fit hidden groups where several devices are one: those of a user, or of an edge.

Whoever answers as one is in one cohort. If all devices of it are of one group, agreement device by device
counts the largest most; if they aren't, no choice is right for all of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from potluck.experiment import Run
from potluck.report.cohorts import Membership, measure_agreement, read_hidden_groups, read_memberships

T = TypeVar("T")


class OwnersAgreement(NamedTuple):
    """The index with each owner as one, over how many, and how many have devices of several groups."""

    rand: float
    owners: int
    torn: int


def measure_owners_agreement(run: Run) -> dict[str, OwnersAgreement]:
    """By "user" or "edge", of a run's last evaluation; nothing where devices have no index either."""
    every, truth = read_memberships(run.lines), read_hidden_groups(run.lines)
    if not every or truth.keys() != every[-1].chosen.keys():
        return {}
    found = {}
    for kind, owner in read_owners(run).items():
        own = list_owned(owner, truth)
        groups = {who: _find_most([truth[n] for n in nodes]) for who, nodes in own.items()}
        if fits := measure_agreement(gather_choices(every[-1], own), groups, seen=False):
            torn = sum(len({truth[n] for n in nodes}) > 1 for nodes in own.values())
            found[kind] = OwnersAgreement(fits.rand, fits.devices, torn)
    return found


def read_owners(run: Run) -> dict[str, dict[int, int]]:
    """By "user" or "edge", where groups are of whole ones or they answer as one: whose each device is."""
    crowd, groups = run.devices, run.experiment.data.groups
    if crowd is None:
        return {}
    whose = {"user": crowd.get("user"), "edge": crowd.get("edge")}
    return {
        kind: {n: who for n, who in zip(crowd["nodes"], owners, strict=True) if who >= 0}
        for kind, owners in whose.items()
        if owners is not None and (kind in crowd["tiers"] or (groups is not None and groups.by == kind))
    }


def list_owned(owner: Mapping[int, int], nodes: Mapping[int, int]) -> dict[int, list[int]]:
    """By owner, which of these devices are its own."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        if node in owner:
            found.setdefault(owner[node], []).append(node)
    return found


def gather_choices(at: Membership, own: Mapping[int, Sequence[int]]) -> Membership:
    """What most devices of each owner would choose."""
    chosen = {who: _find_most([at.chosen[n] for n in nodes]) for who, nodes in own.items()}
    times = {who: sum(at.times[n] for n in nodes) for who, nodes in own.items()}
    return Membership(at.round, at.time, chosen, times)


def _find_most(values: Sequence[T]) -> T:
    """The commonest; of several the one that comes first."""
    return Counter(values).most_common(1)[0][0]
