"""Which cohort participants are like: where each belongs, who belongs nowhere, and what members look like."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.algorithms.auxo.clustering import compare_fits, find_likest
from potluck.algorithms.auxo.device import Request, blend_rewards

LEAST = 3  # members, below which their mean says nothing of a round
LOOKS = 3  # at who is a member, of those that were told nothing
NORMAL = 1.4826  # deviations of a normal law that its median absolute one is short of
TRUST = 5  # visitors of one kind in a round, at which their mean is worth as much as it ever is


class Look(NamedTuple):
    """A round's updates, as seen from its members' mean."""

    rows: Tensor  # of those heard
    home: Sequence[str | None]  # of which cohort's members each of these tells; None: of none
    told: Sequence[Mapping[str, float]]  # how well each of these fits each cohort
    fits: Sequence[Mapping[str, float]]  # and each of all
    strays: NDArray[np.bool_]  # who is like none


def take_look(
    rows: Tensor,
    wild: NDArray[np.bool_],
    like: Mapping[str, Tensor],
    names: Sequence[str],
    here: str,
    heard: Sequence[Request],
    share: float,
) -> Look | None:
    """What can be told once there are several cohorts, all known here; who is wild isn't heard."""
    if len(names) < 2 or any(name not in like for name in names):
        return None
    table, calm = torch.stack([like[name] for name in names]), torch.from_numpy(~wild)
    shift, home = follow_members(rows[calm], table, find_told(heard, names), names.index(here))
    strays = find_strays(rows, table + shift, wild, share)
    known = [None if stray else names[k] for stray, k in zip(strays[~wild], home, strict=True)]
    fits = [dict(zip(names, line, strict=True)) for line in compare_fits(rows - shift, table).tolist()]
    told = [fits[i] for i in np.flatnonzero(~wild).tolist()]
    return Look(rows[calm] - shift, known, told, fits, strays)


def find_homes(
    fits: Sequence[Mapping[str, float]] | None,
    here: str,
    seen: Sequence[Request],
    gamma: float,
) -> list[str]:
    """Where each participant will think that it belongs, once it has heard of this round.

    Whoever doesn't fit here now isn't a member, whatever it claims: it counts where it fits best.
    """
    homes = []
    for i, request in enumerate(seen):
        now = {} if fits is None else fits[i]
        after = blend_rewards(request["rewards"], now, gamma)
        home = max(after, key=lambda name: after[name]) if after else here
        if home == here and now.get(here, 0.0) < 0:
            home = max(now, key=now.__getitem__)
        homes.append(home)
    return homes


def find_told(seen: Sequence[Request], names: Sequence[str]) -> list[int | None]:
    """Which of these cohorts each was told before that it suits best; None: it was told of none."""
    known = [{k: r["rewards"][name] for k, name in enumerate(names) if name in r["rewards"]} for r in seen]
    return [max(rewards, key=lambda k: rewards[k]) if rewards else None for rewards in known]


def follow_members(
    rows: Tensor, like: Tensor, told: Sequence[int | None], here: int
) -> tuple[Tensor, list[int]]:
    """How far a round's updates are, all of them, from where they would be known; and whose each is then.

    As a model learns what its members want, their updates come to point elsewhere, and visitors' do too: what
    lasts is how these differ from members. So a round is looked at from its members' mean. Members are who
    were told so in other rounds. Were they who looks like it now, those whom the change has taken furthest
    would count as visitors, what visitors look like would follow them, and the mistake would feed itself. Of
    who was told nothing yet, looks have to decide; where hardly anybody was told, from where all together fit
    best what all look like, whether nothing has changed or everybody's mean has.
    """
    members = [i for i, one in enumerate(told) if one == here]
    if len(members) >= LEAST:
        starts = [rows[members].mean(0) - like[here]]
    else:
        middle = torch.stack([like.mean(0) if one is None else like[one] for one in told])
        starts = [torch.zeros_like(like[0]), (rows - middle).mean(0)]
    found = [_settle(rows, like, told, here, start) for start in starts]
    _, shift, home = min(found, key=lambda one: one[0])
    return shift, home


def _settle(
    rows: Tensor, like: Tensor, told: Sequence[int | None], here: int, shift: Tensor
) -> tuple[float, Tensor, list[int]]:
    """The same from somewhere, looked at again; and how far rows are then from what they are taken for."""
    home = list[int]()
    for _ in range(LOOKS):
        near = find_likest(rows - shift, like).tolist()
        home = [now if before is None else before for before, now in zip(told, near, strict=True)]
        members = [i for i, one in enumerate(home) if one == here]
        if len(members) >= LEAST:
            shift = rows[members].mean(0) - like[here]
    return float((rows - shift - like[home]).square().sum()), shift, home


def find_strays(rows: Tensor, like: Tensor, wild: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Who is like no cohort: less like its nearest one than a share of what is typical; 0: nobody is.

    Likeness is the cosine with what a cohort's members look like. Two deviations (by the median one) below
    the median are asked for too, since models that have learnt leave nothing but noise, which tells nothing;
    of wild updates, which are long, twice the share and one deviation will do. Without likeness in the middle
    nobody is told apart.
    """
    found = (rows @ like.T / like.norm(dim=1).clamp_min(1e-12)).max(1).values.numpy()
    middle = np.median(found)
    deviation = NORMAL * np.median(np.abs(found - middle))
    far = found < middle - np.where(wild, 1, 2) * deviation
    return np.asarray(far & (found < np.where(wild, 2, 1) * share * middle) & (share * middle > 0), np.bool_)


def update_likeness(
    like: Mapping[str, Tensor], rows: Tensor, home: Sequence[str | None], here: str, momentum: float
) -> dict[str, Tensor]:
    """What members of each cohort look like here, after another look; those at home nowhere have no say."""
    out = dict(like)
    for name in dict.fromkeys(home):
        if name is None:
            continue
        who = [i for i, one in enumerate(home) if one == name]
        now = rows[who].mean(0)
        weight = momentum if name == here else 1 - 0.8 ** min(len(who), TRUST)
        out[name] = (1 - weight) * like[name] + weight * now if name in like else now
    return out
