"""Which cohort participants are like: where each belongs, who belongs nowhere, and what members look like."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from potluck.algorithms.auxo.device import Request

NORMAL = 1.4826  # deviations of a normal law that its median absolute one is short of
TRUST = 5  # visitors of one kind in a round, at which their mean is worth as much as it ever is


def find_homes(
    fits: Sequence[Sequence[float]] | None,
    names: Sequence[str],
    here: str,
    seen: Sequence[Request],
    gamma: float,
) -> list[str]:
    """Where each participant will think that it belongs, once it has heard of this round.

    Whoever doesn't fit here now isn't a member, whatever it claims: it counts where it fits best.
    """
    homes = []
    for i, request in enumerate(seen):
        after = dict(request["rewards"])
        now = {} if fits is None else dict(zip(names, fits[i], strict=True))
        for name, fit in now.items():
            after[name] = gamma * fit + (1 - gamma) * after.get(name, fit)
        home = max(after, key=lambda name: after[name]) if after else here
        if home == here and now.get(here, 0.0) < 0:
            home = max(now, key=lambda name: now[name])
        homes.append(home)
    return homes


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
