"""Devices that answer falsely: who they are and how they lie. No algorithm is told.

Attackers train and take their time as everybody does, then falsify what they send (in `simulate.attack`):

`sign_flip`: the update times -scale. `scaling`: the update times scale. `noise`: Gaussian noise is added to
it, of scale times the root mean square of each tensor. `free_ride`: no use is made of training; zeros are
sent, or noise whose deviation is the scale itself. `malformed`: what no aggregate may see (`FLAWS`).
`misreport`: a true update, but a weight, a metric or a whole number that can't be (`MISREPORTS`).

`fang`: Fang et al. 2020, "Local Model Poisoning Attacks to Byzantine-Robust Federated Learning", their attack
on trimmed means with partial knowledge: against the direction in which the mean of honest updates goes, each
number is drawn between 3 and 4 deviations away from that mean. There attackers estimate mean and deviation
from what all of them would honestly send. Deviation from the paper: here nobody waits for others, so each
takes its own honest update for the mean and the root mean square of each tensor for the deviation of its
numbers; `scale` is a factor on it.

Wrong labels are the data's (`data.flip`), false speeds are claims (`boast`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute
from potluck.fleet.validation import check, check_count, check_share, read_number

if TYPE_CHECKING:
    from potluck.fleet.profiles import Fleet

SCALES = {"sign_flip": 1.0, "scaling": 10.0, "noise": 1.0, "free_ride": 0.0, "fang": 1.0}  # unless said
ATTACKS = (*SCALES, "malformed", "misreport")
# Of malformed bodies: one by hash each time, unless said.
FLAWS = ("nothing", "empty", "missing", "extra", "list", "shape", "dtype", "sparse", "text", "nan", "inf")
# Of what is told beside an update: one by hash each time, unless said.
MISREPORTS = (
    *("weight huge", "weight negative", "weight nan", "weight text", "weight tensor"),
    *("metric missing", "metric nan", "metric inf", "metric huge", "metric text", "metric extra"),
    "metrics list",  # in place of a table
    *("number", "whole huge", "whole negative"),  # in place of a tensor; beyond what is possible
)
# Only if said: a huge number is well-formed while it is finite; to bound what it does is for rules.
HUGE = "huge"


@dataclass(frozen=True)
class Attack:
    """How attackers lie, and from when on."""

    kind: str
    scale: float | None = None
    start: float = 0.0  # virtual seconds; answers before that are true
    what: str | None = None  # of malformed and misreport: always this flaw

    def __post_init__(self) -> None:
        kind, what, scale = self.kind, self.what, self.scale
        check("attack.kind", kind, kind in ATTACKS, f"no such kind; {nearest(kind, ATTACKS)}")
        if what is not None:
            known = {"malformed": (*FLAWS, HUGE), "misreport": MISREPORTS}.get(kind, ())
            fix = "is of kind = 'malformed' or 'misreport'; leave it out"
            check("attack.what", what, bool(known), fix)
            check("attack.what", what, what in known, f"no such flaw; {nearest(what, known)}")
        if scale is not None:
            check("attack.scale", scale, kind in SCALES, f"{kind} has no scale; leave it out")
            size = read_number(scale)
            least, good = ("0 or more", size >= 0) if kind == "free_ride" else ("above 0", size > 0)
            check("attack.scale", scale, good and size < np.inf, f"give a finite number, {least}")
        check("attack.start", self.start, 0 <= read_number(self.start) < np.inf, "give seconds, 0 or more")

    @property
    def strength(self) -> float:
        """The scale, or what it is unless said."""
        return SCALES.get(self.kind, 0.0) if self.scale is None else self.scale


def place_attackers(
    fleet: "Fleet",
    key: int,
    *,
    share: float | None = None,
    per_edge: int | None = None,
    nodes: Sequence[int] | None = None,
    kind: str,
    scale: float | None = None,
    start: float = 0.0,
    what: str | None = None,
) -> "Fleet":
    """A copy in which some attack: a share (one at least) or so many of every edge, by key; or these nodes.

    `kind`, `scale`, `start` and `what` are those of `Attack`.
    """
    if sum(who is not None for who in (share, per_edge, nodes)) != 1:
        raise ConfigError("fleet.attack: give one of share, per_edge and nodes, to say who attacks")
    n, who = len(fleet), np.zeros(len(fleet), bool)
    if share is not None:
        check_share("attack.share", share, "devices that attack")
        who[permute(key, n)[: max(1, round(share * n))]] = True
    elif per_edge is not None:
        who[_draw_by_edge(fleet.edge, per_edge, key)] = True
    else:
        for node in nodes or ():
            check("attack.nodes", node, 0 <= node < n, f"devices are 0 to {n - 1}")
        who[list(nodes or ())] = True
        check("attack.nodes", nodes, bool(nodes), "name somebody, or leave fleet.attack out")
    check("attack", f"{who.sum()} of {n}", not who.all(), "everybody attacks; leave somebody honest")
    return replace(fleet, attack=Attack(kind, scale, start, what), attackers=who)


def _draw_by_edge(edge: NDArray[np.int32], count: int, key: int) -> NDArray[np.intp]:
    check_count("attack.per_edge", count)
    edges, sizes = np.unique(edge[edge >= 0], return_counts=True)
    check("attack.per_edge", count, len(edges) > 0, "there are no edges; set fleet.edges, or give share")
    check("attack.per_edge", count, count <= sizes.min(), f"an edge has {sizes.min()} devices only")
    found = []
    for place, size in zip(edges, sizes, strict=True):
        members = np.flatnonzero(edge == place)
        found.append(members[permute(derive(key, int(place)), int(size))[:count]])
    return np.concatenate(found)
