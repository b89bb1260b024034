"""Updates of which a part doesn't travel."""

from functools import lru_cache

import torch
from torch import Tensor

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.around import AroundObjective
from potluck.jobs.objective import CrossEntropy, Objective


@value
class Thin(AroundObjective):
    """Any objective, of whose change only some entries are sent, as one vector.

    The server sends a number, `mask`; it and the model's size say which entries these are, so that no places
    need to be sent. Every entry has the same chance to stay. What was dropped counts as no change.
    """

    inner: Objective = CrossEntropy()
    drop: float = 0.1  # share of the entries

    def __post_init__(self) -> None:
        require(0 <= self.drop < 1, "drop", self.drop, "must be at least 0 and below 1, such as 0.1")

    @property
    def packs(self) -> bool:
        return True

    def count_kept(self, entries: int) -> int:
        return max(1, round((1 - self.drop) * entries))

    def sends(self, params: Params) -> dict[str, Tree]:
        first = next(iter(params.values()))
        return {**self.inner.sends(params), "delta": first.new_empty(self.count_kept(_size(params)))}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        more, kept = self.inner.finish(delta, sent, keep, held, trace)
        flat = torch.cat([d.reshape(-1) for d in delta.values()])
        return {**more, "delta": flat.gather(0, self._places(sent["mask"], len(flat)))}, kept

    def unpack(self, body: Tree, sent: Tree, params: Params) -> Tree:
        body, size = self.inner.unpack(body, sent, params), _size(params)
        there = body["delta"]
        flat = there.new_zeros(size).scatter(0, self._places(sent["mask"], size).to(there.device), there)
        parts = flat.split([p.numel() for p in params.values()])
        delta = {n: part.reshape(p.shape) for (n, p), part in zip(params.items(), parts, strict=True)}
        return {**body, "delta": delta}

    def _places(self, mask: Tensor, entries: int) -> Tensor:
        """A window of an order that everybody knows, from `mask` on: nothing to sort, and vmappable."""
        places = (mask + torch.arange(self.count_kept(entries), device=mask.device)) % entries
        return _order(entries).to(mask.device)[places]


def _size(params: Params) -> int:
    return sum(p.numel() for p in params.values())


@lru_cache(maxsize=8)
def _order(entries: int) -> Tensor:
    return torch.from_numpy(keys.permute(0, entries).astype("int64"))
