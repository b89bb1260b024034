"""Do some clients contradict others? A model for all can't suit those who see the same class differently.

Clients are sorted into groups by what their rows of the same class look like, so that who holds which classes
doesn't matter. Whether groups are real is asked of rows that had no part in it: a probe (nearest class mean,
in the metric of the noise) that knows a client's group should name its rows better than one for everybody.
Rows dealt anew within each class tell how much of that is chance.

A client's own rows are never among those that it is judged by: where classes are rare, a client that nobody
shares a class with would otherwise be its own best group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.core.advice import Conflict, Ints

Floats = NDArray[np.float64]

MOST = 6  # groups that are looked for: with more, each has too little of a small federation
DIMENSIONS = 32  # of a row, after projection: class means of small clients need few
PSEUDO = 5.0  # rows by which a group's class mean is drawn to everybody's: a group need not hold all classes
STEPS, STARTS, DEALS = 30, 4, 3
WORTH = 0.01  # accuracy that one group more must bring


@dataclass(frozen=True, eq=False)
class HalvedRows:
    """Rows of several clients, in half A or B."""

    x: Floats  # [rows, dimensions]
    y: Ints  # [rows]
    owner: Ints  # [rows]
    half: Ints  # [rows] 0 or 1
    clients: int
    classes: int

    def sums(self, x: Floats, which: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Sums [clients, classes, dimensions] and numbers [clients, classes] of some rows."""
        cell = (self.owner * self.classes + self.y)[which]
        total = np.zeros((self.clients * self.classes, x.shape[1]))
        np.add.at(total, cell, x[which])
        count = np.bincount(cell, minlength=self.clients * self.classes).astype(float)
        return total.reshape(self.clients, self.classes, -1), count.reshape(self.clients, self.classes)


def find_conflict(
    x: Floats, y: Ints, owner: Ints, clients: int, classes: int, rng: np.random.Generator
) -> Conflict:
    """Groups among clients [rows -> owner], by rows x [rows, features] of classes y."""
    half = np.empty(len(y), np.int64)
    order = np.lexsort((rng.random(len(y)), y, owner))  # halves have equal shares of a client's classes
    half[order] = np.arange(len(y)) % 2
    rows = HalvedRows(_project(x, rng), y, owner, half, clients, classes)
    pooled = _score_probe(rows, _whiten(rows, 0 * owner), np.zeros(clients, np.int64), 1)
    found = {k: _sort(rows, k, rng) for k in range(2, min(MOST, clients // 3) + 1)}
    if not found:
        return Conflict(1, 0.0, pooled, pooled, 0.0, np.zeros(clients, np.int64))
    best = max(apart for _, _, apart in found.values())
    groups = min(k for k, (_, _, apart) in found.items() if apart >= best - WORTH)
    member, explained, apart = found[groups]
    chance = max(_gain_by_chance(rows, groups, rng) for _ in range(DEALS))
    return Conflict(groups, explained, pooled, apart, chance, member)


def _gain_by_chance(rows: HalvedRows, groups: int, rng: np.random.Generator) -> float:
    """What groups gain where there are none: every client has rows of anybody's, of its own classes."""
    place = np.lexsort((rng.random(len(rows.y)), rows.y))
    x = np.empty_like(rows.x)
    x[np.argsort(rows.y, kind="stable")] = rows.x[place]
    dealt = HalvedRows(x, rows.y, rows.owner, rows.half, rows.clients, rows.classes)
    pooled = _score_probe(dealt, _whiten(dealt, 0 * rows.owner), np.zeros(rows.clients, np.int64), 1)
    return _sort(dealt, groups, rng)[2] - pooled


def _sort(rows: HalvedRows, groups: int, rng: np.random.Generator) -> tuple[Ints, float, float]:
    """Members of so many groups, what they explain, and the accuracy of a probe for each."""
    x = _whiten(rows, rows.owner)
    total, count = rows.sums(x, np.ones(len(x), np.bool_))
    one = _measure_costs(total, count, np.zeros(rows.clients, np.int64), 1).sum()
    tries = [_settle(total, count, start, groups) for start in _find_starts(total, count, groups, rng)]
    cost, member = min(tries, key=lambda found: found[0])
    return member, 1 - cost / one, _score_probe(rows, x, member, groups)


def _settle(total: Floats, count: Floats, member: Ints, groups: int) -> tuple[float, Ints]:
    """Everybody goes to the nearest group, until nobody moves."""
    everybody = np.arange(len(member))
    for _ in range(STEPS):
        cost = _measure_costs(total, count, member, groups)
        moved = cost.argmin(1)
        if (moved == member).all():
            break
        member = moved
    return float(_measure_costs(total, count, member, groups)[everybody, member].sum()), member


def _measure_costs(total: Floats, count: Floats, member: Ints, groups: int) -> Floats:
    """[clients, groups] squared distances of clients' class means, by rows, to those of others in a group."""
    norm = (total**2).sum(2) / count.clip(1)
    means, own = _find_means(total, count, member, groups)
    cross = np.einsum("icd,kcd->ik", total, means)
    length = count @ (means**2).sum(2).T
    cost: Floats = norm.sum(1)[:, None] - 2 * cross + length
    mine = norm.sum(1) - 2 * (total * own).sum((1, 2)) + (count * (own**2).sum(2)).sum(1)
    cost[np.arange(len(member)), member] = mine
    return cost


def _find_means(total: Floats, count: Floats, member: Ints, groups: int) -> tuple[Floats, Floats]:
    """Class means of groups [groups, classes, dim], and of every client's own one without it."""
    whole = total.sum(0) / count.sum(0).clip(1)[:, None]
    inside = np.eye(groups)[member]
    sums, numbers = np.einsum("ik,icd->kcd", inside, total), inside.T @ count
    means = (sums + PSEUDO * whole) / (numbers + PSEUDO)[:, :, None]
    own = (sums[member] - total + PSEUDO * whole) / (numbers[member] - count + PSEUDO)[:, :, None]
    return means, own


def _score_probe(rows: HalvedRows, x: Floats, member: Ints, groups: int) -> float:
    """Of the nearest class mean of others in the group that the other half of a client's rows suggests."""
    everything = np.ones(len(x), np.bool_)
    total, count = rows.sums(x, everything)
    right = 0
    inside = np.eye(groups)[member]
    sums, numbers = np.einsum("ik,icd->kcd", inside, total), inside.T @ count
    whole = total.sum(0) / count.sum(0).clip(1)[:, None]
    present = count.sum(0) > 0
    for half in (0, 1):
        seen, known = rows.sums(x, rows.half != half)
        asked = rows.half == half
        for client in np.unique(rows.owner[asked]):
            others = sums - inside[client][:, None, None] * total[client]
            rest = numbers - inside[client][:, None] * count[client]
            means = (others + PSEUDO * whole) / (rest + PSEUDO)[:, :, None]  # [groups, classes, dim]
            far = (known[client] * (means**2).sum(2) - 2 * (seen[client] * means).sum(2)).sum(1)
            mine = means[far.argmin()]
            own = asked & (rows.owner == client)
            score = 2 * x[own] @ mine.T - (mine**2).sum(1)
            right += int((np.where(present, score, -np.inf).argmax(1) == rows.y[own]).sum())
    return right / len(x)


def _find_starts(total: Floats, count: Floats, groups: int, rng: np.random.Generator) -> list[Ints]:
    """Where to begin: k-means++ on the main directions in which clients' class means differ."""
    whole = total.sum(0) / count.sum(0).clip(1)[:, None]
    apart = (total - count[:, :, None] * whole) / np.sqrt(count.clip(1))[:, :, None]
    flat = apart.reshape(len(apart), -1)
    u, s, _ = np.linalg.svd(flat @ flat.T)
    points = u[:, : groups + 1] * np.sqrt(s[: groups + 1])
    starts = []
    for _ in range(STARTS):
        centres = points[rng.integers(len(points))][None]
        for _ in range(groups - 1):
            far = ((points[:, None] - centres) ** 2).sum(2).min(1)
            sure = far.sum() > 0
            pick = rng.choice(len(points), p=far / far.sum()) if sure else rng.integers(len(points))
            centres = np.concatenate([centres, points[pick][None]])
        starts.append(((points[:, None] - centres) ** 2).sum(2).argmin(1))
    return starts


def _project(x: Floats, rng: np.random.Generator) -> Floats:
    """Rows on their main directions; very wide ones on random directions first."""
    if x.shape[1] > 512:
        x = x @ rng.normal(size=(x.shape[1], 512)) / np.sqrt(x.shape[1])
    x = x - x.mean(0)
    _, directions = np.linalg.eigh(x.T @ x)
    found: Floats = x @ directions[:, ::-1][:, :DIMENSIONS]
    return found


def _whiten(rows: HalvedRows, kind: Ints) -> Floats:
    """Rows in the metric of their spread about the mean of their class, among rows of a kind."""
    cell = np.unique(kind * rows.classes + rows.y, return_inverse=True)[1]
    count = np.bincount(cell)
    means = np.zeros((len(count), rows.x.shape[1]))
    np.add.at(means, cell, rows.x)
    off = rows.x - (means / count[:, None])[cell]
    free = max(1, len(cell) - len(count))
    spread = off.T @ off / free
    whole = np.var(rows.x, axis=0).mean()
    # A little of everything's spread: rows of one class may not differ at all in some direction.
    spread += 0.05 * whole * np.eye(len(spread))
    values, directions = np.linalg.eigh(spread)
    found: Floats = rows.x @ directions / np.sqrt(values)
    return found
