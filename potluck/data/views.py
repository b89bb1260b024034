"""Rows seen in several ways: a pool that holds each row once for every way in which somebody sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from potluck.core.errors import ConfigError
from potluck.data.flip import flip_labels
from potluck.data.holding import Overlay, Split
from potluck.data.pool import Pool
from potluck.data.trigger import Trigger

_AT_ONCE = 4096  # images turned in one call; bounds memory


@dataclass(frozen=True)
class View:
    """A way to see a row: the image turned, features times `scale` plus `offset`, the label renamed."""

    scale: tuple[float, ...] = ()  # one number, or one a feature; (): features as they are
    offset: tuple[float, ...] = ()
    degrees: float = 0.0  # counter-clockwise
    labels: tuple[int, ...] = ()  # the new name of every class; (): as they are
    flip: str = ""  # in which way labels are wrong; "": they are right
    key: int = 0  # of wrong labels
    trigger: Trigger | None = None  # of a backdoor

    def turn(self, degrees: float) -> "View":
        """The same, with images turned further; angles add up, so that nothing is interpolated twice."""
        return replace(self, degrees=round(self.degrees + degrees, 9) % 360)

    def beside(self, other: "View") -> "View":
        """Both ways at once; at most one of them stretches features, and one renames labels."""
        scale, offset = self.scale or other.scale, self.offset or other.offset
        return replace(
            self.turn(other.degrees), scale=scale, offset=offset, labels=self.labels or other.labels
        )

    def of(self, pool: Pool, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Rows as seen: features and labels."""
        at = torch.from_numpy(rows)
        x, y = pool.x[at], pool.y[at]
        if self.degrees and len(rows):
            black = -pool.mean / pool.std  # what was 0 before the pool was normalised
            x = torch.cat([turn(part, self.degrees, black) for part in torch.split(x, _AT_ONCE)])
        if self.scale:
            x = x * x.new_tensor(self.scale) + x.new_tensor(self.offset)
        if self.labels:
            y = torch.tensor(self.labels)[y]
        if self.flip:
            y = flip_labels(y, rows, pool.classes, self.flip, self.key)
        return (x, y) if self.trigger is None else self.trigger.put(x, y, rows, float(pool.x.max()))


def turn(images: Tensor, degrees: float, black: float = 0.0) -> Tensor:
    """Images [N, C, H, H] turned counter-clockwise: exact by quarters, else bilinear with black corners."""
    quarters, rest = divmod(degrees, 90)
    if not rest:
        return torch.rot90(images, int(quarters), (-2, -1))
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    where = images.new_tensor([[c, -s, 0.0], [s, c, 0.0]]).expand(len(images), 2, 3)  # from out to in
    grid = F.affine_grid(where, list(images.shape), align_corners=False)
    return F.grid_sample(images - black, grid, align_corners=False) + black


def check_turn(key: str, pool: Pool, degrees: float) -> None:
    """Refuse to turn what is no image, or would become one of another shape."""
    if len(pool.shape) != 3 or not pool.x.is_floating_point():
        raise ConfigError(
            f"{key} = 'rotation': rows of {pool.name} are {list(pool.shape)}, no images of channels x height "
            "x width; use groups of kind 'permutation' or 'affine', or another source"
        )
    if pool.shape[1] != pool.shape[2] and degrees % 180:
        raise ConfigError(
            f"{key} = 'rotation': images of {pool.name} are {pool.shape[1]} x {pool.shape[2]}, so only half "
            "turns fit; use square images, 2 groups or 180 degrees"
        )


@dataclass(frozen=True, eq=False)
class Viewed(Overlay):
    """A partition whose clients see their rows each in their own way."""

    view: NDArray[np.int32]  # [clients]
    place: NDArray[np.int64]  # [views, rows] where the pool holds a row as seen
    trained: NDArray[np.int32]  # [clients] the view of train rows, where labels may be wrong

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        view = self.trained if split == "train" else self.view
        seen: NDArray[np.int64] = self.place[view[client], self.base.rows(client, split)]
        rows = seen if split == "test" and self.in_order else np.sort(seen)
        rows.setflags(write=False)
        return rows


class Album(NamedTuple):
    """A pool with every row in every way that it is seen."""

    pool: Pool
    place: NDArray[np.int64]  # [views, rows of the old pool] row of the new one; -1: nobody sees it so
    origin: NDArray[np.int64]  # of every row of the new pool: the row of the old one


def develop(pool: Pool, views: Sequence[View], seen: NDArray[np.bool_], apart: NDArray[np.int32]) -> Album:
    """The pool with rows as they are `seen` [views, rows]; test and server rows are so in the view `apart`.

    A row's first view takes the row's own place, further ones are put at the end: where everybody holds
    rows of their own, the pool doesn't grow. Who holds what must be known before: `free` of the new pool
    means nothing, since rows are there several times.
    """
    place = np.full((len(views), len(pool)), -1)
    taken = np.zeros(len(pool), np.bool_)
    x, y = pool.x.clone(), pool.y.clone()
    more: list[tuple[Tensor, Tensor]] = []
    origin = [np.arange(len(pool))]
    total = len(pool)
    for at, (view, mask) in enumerate(zip(views, seen, strict=True)):
        first, again = np.flatnonzero(mask & ~taken), np.flatnonzero(mask & taken)
        if view != View():
            x[torch.from_numpy(first)], y[torch.from_numpy(first)] = view.of(pool, first)
        more.append(view.of(pool, again))
        place[at, first], place[at, again] = first, total + np.arange(len(again))
        origin.append(again)
        taken |= mask
        total += len(again)
    of = np.concatenate(origin)

    def mark(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        rows, out = np.flatnonzero(mask), np.zeros(total, np.bool_)
        out[place[apart[rows], rows]] = True
        return out

    grown = replace(
        pool,
        x=torch.cat([x, *(part for part, _ in more)]),
        y=torch.cat([y, *(part for _, part in more)]),
        test=mark(pool.test),
        user=None if pool.user is None else pool.user[of],
        server=None if pool.server is None else mark(pool.server),
        validators=None,  # who holds their rows is known
        time=None if pool.time is None else pool.time[of],
        people=None if pool.people is None else pool.people[of],
    )
    return Album(grown, place, of)
