"""Devices that answer falsely: who they are and how they lie. No algorithm is told.

Attackers train and take their time as everybody does, then falsify what they send. Some lie alone (in
`simulate.attack`):

`sign_flip`: the update times -scale. `scaling`: the update times scale. `noise`: Gaussian noise is added to
it, of scale times the root mean square of each tensor. `free_ride`: no use is made of training; zeros are
sent, or noise whose deviation is the scale itself. `malformed`: what no aggregate may see (`FLAWS`).
`misreport`: a true update, but a weight, a metric or a whole number that can't be (`MISREPORTS`).
`forge_affinity`: true updates too, but where a device says itself which group it fits (Auxo's check-in), it
claims to fit one by so much as the scale: any, another each time (`what = "spread"`, unless said), or all
attackers the same (`gather`). Where an algorithm doesn't ask, all is true.

Others collude (`COLLUDING`; who hears whom is in `simulate.crew`, the formulas with their sources and
deviations in `simulate.collusion`): `fang` and `fang_krum`, crafted against trimmed means and against Krum;
`alie`, a little is enough; `min_max` and `min_sum`, as far from the mean as honest updates lie from each
other; `ipm`, the mean against itself; `backdoor`, which hides a second task in the model.

What the scale of these is: `fang_krum`: the distance between colluders' updates (0.01). `alie`: deviations
from the mean (by the paper's formula). `ipm`: the factor on the mean (0.5). `backdoor`: the factor on the
update (what makes colluders' mean update the round's). The others have none.

Wrong labels are the data's (`data.flip`), false speeds are claims (`boast`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute
from potluck.data.trigger import Trigger
from potluck.fleet.validation import check, check_count, check_share, read_number

if TYPE_CHECKING:
    from potluck.fleet.profiles import Fleet

# Unless said; None: by a formula.
SCALES: dict[str, float | None] = {"sign_flip": 1.0, "scaling": 10.0, "noise": 1.0, "free_ride": 0.0}
SCALES |= {"forge_affinity": 1.0}
SCALES |= {"fang_krum": 0.01, "alie": None, "ipm": 0.5, "backdoor": None}
COLLUDING = ("fang", "fang_krum", "alie", "min_max", "min_sum", "ipm", "backdoor")
ALONE = ("sign_flip", "scaling", "noise", "free_ride", "malformed", "misreport", "forge_affinity")
ATTACKS = (*ALONE, *COLLUDING)
KNOWLEDGE = ("all", "own")  # whose updates colluders hear of: honest devices', or their own alone
TARGET, PATCH = 0, 3  # of a backdoor, unless said
POISONED = 0.3  # as in the paper's batches of 64, of which 20 rows are the backdoor's
DIRECTIONS = ("std", "unit", "sign")  # in which min_max and min_sum leave the mean
AIMS = ("spread", "gather")  # of forged affinity: over all groups, or in one
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
    # Malformed, misreport: always this flaw; min_max, min_sum: the direction; forge_affinity: the aim.
    what: str | None = None
    knows: str | None = None  # of colluders, of KNOWLEDGE; all unless said
    target: int | None = None  # of a backdoor, as are these: the class that a trigger stands for
    patch: int | None = None  # pixels of the trigger's side
    poisoned: float | None = None  # share of attackers' train rows that bear it

    def __post_init__(self) -> None:
        kind, what, scale = self.kind, self.what, self.scale
        check("attack.kind", kind, kind in ATTACKS, f"no such kind; {nearest(kind, ATTACKS)}")
        if what is not None:
            known = {
                "malformed": (*FLAWS, HUGE),
                "misreport": MISREPORTS,
                "min_max": DIRECTIONS,
                "min_sum": DIRECTIONS,
                "forge_affinity": AIMS,
            }.get(kind, ())
            fix = "is of kind = 'malformed', 'misreport', 'forge_affinity', 'min_max' or 'min_sum'; leave out"
            check("attack.what", what, bool(known), fix)
            noun = {DIRECTIONS: "direction", AIMS: "aim"}.get(known, "flaw")
            check("attack.what", what, what in known, f"no such {noun}; {nearest(what, known)}")
        if self.knows is not None:
            hears = kind in COLLUDING and kind != "backdoor"
            check("attack.knows", self.knows, hears, f"{kind} asks for nobody's update; leave it out")
            fix = f"no such knowledge; {nearest(self.knows, KNOWLEDGE)}"
            check("attack.knows", self.knows, self.knows in KNOWLEDGE, fix)
        if scale is not None:
            check("attack.scale", scale, kind in SCALES, f"{kind} has no scale; leave it out")
            size = read_number(scale)
            least, good = ("0 or more", size >= 0) if kind == "free_ride" else ("above 0", size > 0)
            check("attack.scale", scale, good and size < np.inf, f"give a finite number, {least}")
        check("attack.start", self.start, 0 <= read_number(self.start) < np.inf, "give seconds, 0 or more")
        self._check_backdoor()

    def _check_backdoor(self) -> None:
        if self.kind == "backdoor":
            fix = "a backdoor's rows are poisoned from the first moment on; leave it out"
            check("attack.start", self.start, self.start == 0, fix)
            _check_whole("attack.target", self.target, 0, "a class, 0 or more")
            _check_whole("attack.patch", self.patch, 1, "the pixels of a side, at least 1")
            share, fix = self.poisoned, "give the share of attackers' train rows that bear it, in (0, 1]"
            check("attack.poisoned", share, share is None or 0 < read_number(share) <= 1, fix)
            return
        for key in ("target", "patch", "poisoned"):
            given = getattr(self, key)
            check(f"attack.{key}", given, given is None, "is of kind = 'backdoor'; leave it out")

    @property
    def strength(self) -> float | None:
        """The scale, or what it is unless said; None: by a formula, or the kind has none."""
        return SCALES.get(self.kind) if self.scale is None else self.scale

    @property
    def colludes(self) -> bool:
        """Whether attackers of a round craft their updates together."""
        return self.kind in COLLUDING

    @property
    def trigger(self) -> Trigger | None:
        """What a backdoor's rows bear."""
        if self.kind != "backdoor":
            return None
        return Trigger(
            TARGET if self.target is None else self.target,
            PATCH if self.patch is None else self.patch,
            POISONED if self.poisoned is None else self.poisoned,
        )


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
    knows: str | None = None,
    target: int | None = None,
    patch: int | None = None,
    poisoned: float | None = None,
) -> "Fleet":
    """A copy in which some attack: a share (one at least) or so many of every edge, by key; or these nodes.

    From `kind` on, these are the fields of `Attack`.
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
    how = Attack(kind, scale, start, what, knows, target, patch, poisoned)
    return replace(fleet, attack=how, attackers=who)


def _check_whole(key: str, number: int | None, least: int, what: str) -> None:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= least
    check(key, number, number is None or whole, f"give {what}, as a whole number")


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
