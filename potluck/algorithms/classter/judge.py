"""How good the detectors and the general model are, as devices find (Potluck's own): how sure each may
be, and which of them is served.

After every distillation some devices fit a temperature and a bias a class to what each says of their rows,
wave by wave; the classes that they hold are known to be common there, so these don't pass for biases. On
rows that no detector trains on they count how often each is right, as it would be used: the general model
with its answers weighed by how common classes are, the detectors as they are.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from potluck.algorithms.classter.device.detect import count_kept
from potluck.algorithms.classter.device.question import DETECTORS, GENERAL, KINDS, Question
from potluck.authoring import Node, Reply, Tree, value
from potluck.jobs.calibrate import Search, Sums, begin_search, share_of, take_step

WAVES = 8  # of sums; the first tells which classes are common, the others are steps of the fit
MEMORY = 0.5  # of earlier judgements in the next: a few devices' rows are few
_MOST = 100.0  # no logarithm of a chance is farther from 0 (`jobs.calibrate.FAINT`, and a bias)


@value(eq=False)
class Fitted:
    """How sure a model may be: of logits, z x slope + bias; classes are equally common."""

    slope: Tensor
    bias: Tensor

    def told(self) -> dict[str, Tensor]:
        """As devices and the server are sent it; the field names of `jobs.calibrate.Scaling`."""
        even = _even(len(self.bias), self.bias.dtype, self.bias.device)
        return {"slope": self.slope, "bias": self.bias, "source": even}


@cache
def _even(classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One tensor for all, since who is sent the same tensors uses the same model."""
    return torch.full((classes,), 1 / classes, dtype=dtype, device=device)


@value(eq=False)
class Asking:
    """A fit in progress."""

    nodes: Sequence[Node]
    about: int  # updates in the general model
    wave: int = 0
    offset: Tensor | None = None  # logs of how common classes are among those who are asked
    at: Mapping[str, Tensor] | None = None  # by kind: what is asked for next
    searches: Mapping[str, Mapping[str, Tensor]] | None = None  # by kind; None: begun anew


@value(eq=False)
class Standing:
    """What devices said: rows that count, and how many of them each was right about."""

    rows: float = 0.0
    right: tuple[float, float] = (0.0, 0.0)

    def after(self, rows: float, right: Sequence[float]) -> "Standing":
        one, other = (MEMORY * old + new for old, new in zip(self.right, right, strict=True))
        return Standing(MEMORY * self.rows + rows, (one, other))

    @property
    def prefers_general(self) -> bool:
        return self.rows > 0 and self.right[1] >= self.right[0]


class Wave(NamedTuple):
    """What came of one wave: the fit goes on, or is done and both are known."""

    asking: Asking | None
    fitted: Mapping[str, Fitted] | None = None
    rows: float = 0.0
    right: tuple[float, float] = (0.0, 0.0)


def hear(asking: Asking, replies: Sequence[Reply]) -> Wave:
    """One wave's answers; who doesn't answer is asked no more, and the fit goes on from where it is."""
    good = [r for r in replies if r.weight > 0 and is_possible(r.body, r.weight, _read_share(r))]
    if not good:
        return Wave(None)
    nodes = [r.task.to for r in good]
    sums = {kind: add_up([r.body[kind] for r in good]) for kind in KINDS}
    if asking.offset is None:
        offset = share_of(sums[GENERAL].counts).log()
        at = {kind: begin_search(s.slope, len(s.counts)).at for kind, s in sums.items()}
        return Wave(Asking(nodes, asking.about, 1, offset, at))
    assert asking.at is not None
    fresh = asking.searches is None or len(nodes) < len(asking.nodes)  # other rows: another likelihood
    found = {kind: _step(asking, kind, s, fresh) for kind, s in sums.items()}
    if asking.wave + 1 < WAVES:
        at = {kind: s.at for kind, s in found.items()}
        searches = {kind: s._asdict() for kind, s in found.items()}
        return Wave(Asking(nodes, asking.about, asking.wave + 1, asking.offset, at, searches))
    fitted = {kind: Fitted(s.best[0], s.best[1:]) for kind, s in found.items()}
    rows, one, other = sum(r.body["right"] for r in good).tolist()
    return Wave(None, fitted, rows, (one, other))


def _step(asking: Asking, kind: str, sums: Sums, fresh: bool) -> Search:
    assert asking.at is not None
    if fresh or asking.searches is None:
        return take_step(begin_search(sums.slope, len(sums.counts))._replace(at=asking.at[kind]), sums)
    return take_step(Search(**asking.searches[kind]), sums)


def add_up(each: Sequence[Tree]) -> Sums:
    """The sums of all who answered."""
    return Sums(*(sum(one[name] for one in each) for name in Sums._fields))


def _read_share(reply: Reply) -> float:
    assert isinstance(reply.task.job, Question)
    return reply.task.job.share


def is_possible(body: Tree, rows: float, share: float) -> bool:
    """Whether rows, a share of them kept back, can have these sums: nobody's lie may go farther than they."""
    kept, *right = body["right"].tolist()
    if not all(0 <= r <= kept <= count_kept(int(rows), share) for r in right):
        return False
    for kind in (DETECTORS, GENERAL):
        s = Sums(**body[kind])
        within = (s.counts >= 0).all() and s.counts.sum() <= rows * (1 + 1e-9)
        bounded = 0 <= s.loss <= 1e3 * _MOST * rows and s.slope.abs().max() <= _MOST * rows
        bent = s.curve.abs().max() <= _MOST**2 * rows and torch.allclose(s.curve, s.curve.t())
        if not (within and bounded and bent and torch.linalg.eigvalsh(s.curve).min() >= -1e-6 * rows):
            return False
    return True
