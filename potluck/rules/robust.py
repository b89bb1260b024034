"""Which updates can be believed: judged by each other, whatever is done with them afterwards.

Krum (Blanchard et al. 2017) scores an update by its distances to its nearest neighbours; Multi-Krum does
without the worst; Adaptive-Krum does without those of the worst that stand out (FedEdge, Wang et al. 2023,
has the name; how it is decided here is Potluck's own). The coordinate-wise median and trimmed mean are those
of Yin et al. 2018. Norm clipping shortens what is long.

Krum has to be told f, how many of a round's updates may be odd. Krum and Multi-Krum leave all f out, so a
large f costs honest updates where nobody attacks: unless `attackers` says f, it is a share of the updates,
rounded down. Adaptive-Krum leaves out none but those that stand out, so its f is an upper bound: as many as
can be withstood, (n - 3) / 2 of n, unless said.

A rule that makes one update of many (Krum, median, trimmed mean) puts it into every reply that it keeps: any
mean of them is that update, whatever their weights, and who counts answers, learns who is fast or adds up
rows still hears from everybody. Only floating-point numbers are compared or replaced; Krum and the
coordinate-wise rules replace all of a body's (control variates are updates too), clipping only the update.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import nearest, require
from potluck.core.messages import Reply
from potluck.core.parts import part, parts, role
from potluck.core.trees import Tree, leaves, tmap
from potluck.rules.vectors import length

Mode = Literal["adaptive", "gap", "fixed_f"]
FEWEST = 5  # updates that Krum can tell apart
SHARE = 0.2  # of a round's updates that may be odd, unless said
FAR = 1e300  # a squared distance that is too large to compute; sums of it are still numbers
Floats = NDArray[np.float64]


@value(eq=False)
class Verdict:
    """What came of judging some replies; kept and odd together are all of them, each in the order given."""

    kept: list[Reply]  # what is merged; their updates may have been changed
    odd: list[Reply]  # judged anomalous
    far: list[float]  # of each odd one: mean L2 distance to the updates of the others
    judged: bool = False  # whether odd ones were looked for; not if there were too few to tell
    changed: int = 0  # kept ones whose update isn't what their device sent


@role("robust")
class Robust(Protocol):
    """Judges updates that started from the same model, by nothing but each other."""

    def judge(self, replies: Sequence[Reply]) -> Verdict: ...


@part("robust")
@value
class Krum:
    """The one update that lies nearest to its neighbours stands for all but the `attackers` worst."""

    attackers: Annotated[int | None, "f, at most what can be withstood; left out: a share"] = None
    share: Annotated[float, "of the updates, rounded down: f, unless attackers are given"] = SHARE

    def __post_init__(self) -> None:
        _check_attackers(self.attackers)
        _check_share(self.share, "the share of updates that may be odd, rounded down")
        once = self.attackers is None or self.share == SHARE
        require(once, "attackers", self.attackers, f"leave out it or share = {self.share!r}: both say f")

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        found = Ranking.of(replies, _count_odd(replies, self.attackers, self.share))
        if found is None:
            return keep_all(replies)
        verdict = found.without(replies, found.worst)
        best = replies[int(found.order[0])].body
        return replace(
            verdict, kept=[_put_floats(r, best) for r in verdict.kept], changed=len(verdict.kept) - 1
        )


@part("robust")
@value
class MultiKrum:
    """All but the `attackers` updates that lie farthest from their neighbours."""

    attackers: Annotated[int | None, "f, at most what can be withstood; left out: a share"] = None
    share: Annotated[float, "of the updates, rounded down: f, unless attackers are given"] = SHARE

    def __post_init__(self) -> None:
        _check_attackers(self.attackers)
        _check_share(self.share, "the share of updates that may be odd, rounded down")
        once = self.attackers is None or self.share == SHARE
        require(once, "attackers", self.attackers, f"leave out it or share = {self.share!r}: both say f")

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        found = Ranking.of(replies, _count_odd(replies, self.attackers, self.share))
        if found is None:
            return keep_all(replies)
        return found.without(replies, found.worst)


@part("robust")
@value
class AdaptiveKrum:
    """All but those of the `attackers` worst that stand out: where nobody attacks, perhaps nobody does.

    `adaptive`: whose score is above twice the median and above median + 3 x 1.4826 x MAD. `gap`: from the
    largest jump between the sorted scores of the worst on. `fixed_f`: all of the worst, as in Multi-Krum.
    """

    mode: Annotated[Mode, "which of the worst are odd"] = "adaptive"
    attackers: Annotated[
        int | None, "f, at most; left out: as many as can be withstood, (n - 3) / 2 of n"
    ] = None

    def __post_init__(self) -> None:
        require(self.mode in get_args(Mode), "mode", self.mode, nearest(str(self.mode), get_args(Mode)))
        _check_attackers(self.attackers)

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        found = Ranking.of(replies, self.attackers)
        if found is None:
            return keep_all(replies)
        first, scores, worst = len(replies) - found.attackers, found.scores, found.worst
        if self.mode == "adaptive":
            middle = np.median(scores)
            spread = 1.4826 * np.median(np.abs(scores - middle))  # a deviation, if scores were normal
            worst = worst[scores[worst] > max(middle + 3 * spread, 2 * middle)]
        elif self.mode == "gap" and len(worst):
            jumps = np.diff(scores[found.order])[first - 1 :]  # into each of the worst
            worst = worst[int(jumps.argmax()) if jumps.max() > 0 else len(worst) :]
        return found.without(replies, worst)


@part("robust")
@value
class TrimmedMean:
    """Of each number the mean without its largest and smallest; every device counts alike."""

    share: Annotated[float, "of the updates, left out at each end"] = SHARE

    def __post_init__(self) -> None:
        _check_share(self.share, "the share of updates left out at each end; 0.5 is kind 'median'")

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        return _trim(replies, _take_share(self.share, replies))


@part("robust")
@value
class Median:
    """Of each number the median; every device counts alike."""

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        return _trim(replies, (len(replies) - 1) // 2)


@part("robust")
@value
class Clip:
    """Updates no longer than a norm; longer ones keep their direction."""

    norm: Annotated[float | None, "L2; left out: the median of those at hand"] = None

    def __post_init__(self) -> None:
        fix = "must be above 0, or left out for the median of the updates' norms"
        require(self.norm is None or self.norm > 0, "norm", self.norm, fix)

    def judge(self, replies: Sequence[Reply]) -> Verdict:
        if not replies:  # no median either
            return keep_all(replies)
        norms = [length(floats(r.body["delta"])) for r in replies]
        limit = median(norms) if self.norm is None else self.norm
        kept = [
            _shorten(r, limit / norm) if norm > limit else r for r, norm in zip(replies, norms, strict=True)
        ]
        return Verdict(kept, [], [], changed=sum(norm > limit for norm in norms))


def list_judges() -> dict[str, Callable[..., Robust]]:
    """All that judge, as an experiment's file names them: `multi_krum` is MultiKrum."""
    return {re.sub(r"\B([A-Z])", r"_\1", kind.__name__).lower(): kind for kind in parts("robust").values()}


# ------------------------------------------------------------------------------------------------ formulas


@value(eq=False)
class Ranking:
    """Updates by Krum's score, the best first; equal ones stay in the order given."""

    squares: Floats  # [n, n] squared distances
    scores: Floats
    order: NDArray[np.intp]
    attackers: int  # f

    @classmethod
    def of(cls, replies: Sequence[Reply], attackers: int | None) -> "Ranking | None":
        """None if there are too few to tell; no more attackers than can be withstood, n > 2 f + 2."""
        n = len(replies)
        if n < FEWEST:
            return None
        most = (n - 3) // 2
        f = most if attackers is None else min(attackers, most)
        squares = squared_distances([r.body["delta"] for r in replies])
        scores = krum_scores(squares, f)
        fraction, power = np.frexp(scores)
        even = np.ldexp(fraction.round(10), power)  # rounding must not decide between equal ones
        return cls(squares, scores, np.argsort(even, kind="stable"), f)

    @property
    def worst(self) -> NDArray[np.intp]:
        """Those that may be attackers, the best first."""
        return self.order[len(self.order) - self.attackers :]

    def without(self, replies: Sequence[Reply], odd: NDArray[np.intp]) -> Verdict:
        """What it comes to if these are odd."""
        places = sorted(int(i) for i in odd)
        rest = [i for i in range(len(replies)) if i not in places]
        far = [float(np.sqrt(self.squares[i, rest]).mean()) for i in places]
        return Verdict([replies[i] for i in rest], [replies[i] for i in places], far, judged=True)


def squared_distances(updates: Sequence[Tree]) -> Floats:
    """Between all pairs [n, n], of floating-point numbers only: others (counters) would drown them."""
    gram: Tensor | None = None
    for rows in zip(*(floats(u) for u in updates), strict=True):
        table = torch.stack([row.detach().reshape(-1).double() for row in rows])
        product = table @ table.T
        gram = product if gram is None else gram + product
    assert gram is not None, "an update without numbers"
    products: Floats = gram.cpu().numpy()
    own = np.diag(products)
    with np.errstate(invalid="ignore"):
        out = np.maximum(own[:, None] + own[None] - products - products.T, 0.0)  # symmetric to the last bit
    out = np.nan_to_num(np.minimum(out, FAR), nan=FAR)
    np.fill_diagonal(out, 0.0)
    return out


def krum_scores(squares: Floats, attackers: int) -> Floats:
    """Of each, the sum of its n - f - 2 least squared distances to others."""
    near = np.sort(squares, axis=1)[:, 1 : len(squares) - attackers - 1]  # the first is its own, 0
    return np.asarray(near.sum(1))


def keep_all(replies: Sequence[Reply]) -> Verdict:
    """Nothing is known of them."""
    return Verdict(list(replies), [], [])


def _trim(replies: Sequence[Reply], ends: int) -> Verdict:
    """Every reply with the means of what is left without so many at each end."""
    if ends < 1:
        return keep_all(replies)

    def middle(*rows: Tensor) -> Tensor:
        if not rows[0].is_floating_point():
            return rows[0]
        ordered = torch.stack(rows).sort(0).values[ends : len(rows) - ends]
        return ordered.double().mean(0).to(rows[0].dtype)

    bodies = [r.body for r in replies]
    mean = tmap(middle, bodies[0], *bodies[1:])
    return Verdict([_put_floats(r, mean) for r in replies], [], [], changed=len(replies))


def _put_floats(reply: Reply, body: Tree) -> Reply:
    """A reply with the floating-point numbers of another body."""
    mixed = tmap(lambda own, new: new if own.is_floating_point() else own, reply.body, body)
    return replace(reply, body=mixed)


def floats(update: Tree) -> list[Tensor]:
    """The tensors of an update that can be compared."""
    return [p for p in leaves(update) if p.is_floating_point()]


def _shorten(reply: Reply, factor: float) -> Reply:
    delta = tmap(lambda p: p * factor if p.is_floating_point() else p, reply.body["delta"])
    return replace(reply, body={**reply.body, "delta": delta})


def _count_odd(replies: Sequence[Reply], attackers: int | None, share: float) -> int:
    """f, as given or by its share."""
    return _take_share(share, replies) if attackers is None else attackers


def _take_share(share: float, replies: Sequence[Reply]) -> int:
    return int(share * len(replies) + 1e-9)  # 0.3 x 10 isn't 2.9999


def _check_share(share: float, what: str) -> None:
    require(0 < share < 0.5, "share", share, f"must be above 0 and below 0.5: {what}")


def _check_attackers(attackers: int | None) -> None:
    fix = "must be 0 or more: how many of a round's updates may be anomalous; or left out"
    require(attackers is None or attackers >= 0, "attackers", attackers, fix)
