"""One step of many clients: their losses by `vmap`, one backward pass for all, one update.

The loss is the job's own, written for one client. Networks step out of the map (see `potluck.core.vmap`); the
sum of all clients' losses has each client's own gradient in its row of the parameters.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from potluck.core.job import Batch, Net, Samples, Training
from potluck.core.trees import Tree
from potluck.core.vmap import Part, over
from potluck.execute.clip import clip_gradients
from potluck.models.stacked_functions import FUSED, find_fusable

Rebuild = Callable[[Sequence[Tensor]], Tree]
Rates = float | Tensor  # for all clients, or one each
_FUSABLE: dict[Hashable, set[int]] = {}  # by kind of recipe: which parameters' updates can be fused


@runtime_checkable
class Descent(Protocol):
    """An optimiser that may be plain gradient descent."""

    @property
    def plain(self) -> bool: ...  # a step is nothing but -lr times the gradient


class Step(NamedTuple):
    """What a step reads, [clients, ...] (with all steps before that in a table)."""

    pick: Tensor  # rows of the pool [clients, batch]
    weight: Tensor
    key: Tensor  # [clients]
    place: Tensor  # where these are among the client's own rows; of no width unless the job looks


class Recipe(NamedTuple):
    """All that clients who train together have in common; it holds none of their tensors."""

    job: Training
    net: Net
    pool: Samples
    names: tuple[str, ...]  # of the parameters
    held: tuple[bool, ...]  # of the tensors held beside them: whether they count clients
    rebuild_held: Rebuild
    rebuild_seen: Rebuild | None
    kind: Hashable  # equal kinds compute alike

    def descend(
        self,
        params: list[Tensor],
        state: Sequence[Sequence[Tensor]],
        step: Step,
        seen: Sequence[Tensor],  # of all own rows [clients, rows, ...]
        held: Sequence[Tensor],
        rates: Rates,
        count: int | Tensor,
        mapped: bool = False,
    ) -> dict[str, Tensor]:
        """Take a step: parameters and state change. Gives what the job reports of it, one number a client.

        `mapped`: also a single client by vmap, which refuses what asks for a tensor's value.
        """
        optim, clients = self.job.optim, len(params[0])
        if clients == 1 and not mapped:
            return self._descend_alone(params, state, step, seen, held, rates, count)
        parts = count_all(params), count_all(self.batch(step, seen)), (held, self.held)
        if self.kind not in _FUSABLE:  # known before any step is taken, so that all are computed alike
            _FUSABLE[self.kind] = set()
            if isinstance(optim, Descent) and optim.plain and self.job.clip is None:
                (losses, _), _ = over(self._loss, clients, *parts)
                _FUSABLE[self.kind] = {i for i, yes in enumerate(find_fusable(losses.sum(), params)) if yes}
        fused = _FUSABLE[self.kind]
        FUSED.update({params[i].data_ptr(): rates for i in fused})
        try:
            (losses, means), _ = over(self._loss, clients, *parts)
            each = torch.ones(losses.shape, dtype=losses.dtype, device=losses.device)
            slopes = torch.autograd.grad(losses, params, each, allow_unused=True)
        finally:
            FUSED.clear()
        with torch.no_grad():
            rest = [i for i in range(len(params)) if i not in fused]
            targets = [params[i] for i in rest]
            grads = [torch.zeros_like(params[i]) if slopes[i] is None else slopes[i] for i in rest]
            if self.job.clip is not None:
                grads = clip_gradients(grads, self.job.clip, stacked=True)
            if targets:  # else all have descended in the backward pass
                optim.step(targets, grads, state, _broadcast(rates, targets), count)
        found: dict[str, Tensor] = means
        return found

    def _descend_alone(
        self,
        params: list[Tensor],
        state: Sequence[Sequence[Tensor]],
        step: Step,
        seen: Sequence[Tensor],
        held: Sequence[Tensor],
        rates: Rates,
        count: int | Tensor,
    ) -> dict[str, Tensor]:
        """The same for a single client, as its own tensors: there is nothing to map over."""
        mine = [p.detach()[0].requires_grad_() for p in params]
        batch = [t[0] for t in self.batch(step, seen)]
        loss, means = self._loss(
            mine, batch, [t[0] if n else t for t, n in zip(held, self.held, strict=True)]
        )
        slopes = torch.autograd.grad(loss, mine, allow_unused=True)
        with torch.no_grad():
            grads = [torch.zeros_like(p) if g is None else g for p, g in zip(mine, slopes, strict=True)]
            if self.job.clip is not None:
                grads = clip_gradients(grads, self.job.clip, stacked=False)
            rate = [rates[0]] * len(mine) if isinstance(rates, Tensor) else rates
            self.job.optim.step(mine, grads, [[t[0] for t in row] for row in state], rate, count)
        return {name: mean.detach().unsqueeze(0) for name, mean in means.items()}

    def batch(self, step: Step, seen: Sequence[Tensor]) -> list[Tensor]:
        """A step's batch as a list: rows, labels, weights, keys, and what was seen of the rows."""
        out = [*take_rows(self.pool, step.pick), step.weight, step.key]
        for t in seen:
            first = torch.arange(len(t), device=t.device).unsqueeze(1) * t.shape[1]
            flat = t.flatten(0, 1).index_select(0, (step.place + first).reshape(-1))
            out.append(flat.unflatten(0, step.place.shape))
        return out

    def rebuild_batch(self, parts: Sequence[Tensor]) -> Batch:
        """The batch of one client out of its list."""
        x, y, weight, key, *seen = parts
        return Batch(x, y, weight, key, None if self.rebuild_seen is None else self.rebuild_seen(seen))

    def _loss(self, p: list[Tensor], b: list[Tensor], h: list[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        params = dict(zip(self.names, p, strict=True))
        return self.job.loss(self.net, params, self.rebuild_batch(b), self.rebuild_held(h))


def count_all(tensors: Sequence[Tensor]) -> Part:
    """Tensors that count clients, all of them."""
    return tensors, [True] * len(tensors)


def take_rows(pool: Samples, pick: Tensor) -> list[Tensor]:
    """Rows and labels [clients, rows, ...]; index_select is three times as fast as indexing."""
    flat = pick.reshape(-1)
    return [t.index_select(0, flat).unflatten(0, pick.shape) for t in (pool.x, pool.y)]


def _broadcast(rates: Rates, params: Sequence[Tensor]) -> float | list[Tensor]:
    return [rates.view(-1, *[1] * (p.dim() - 1)) for p in params] if isinstance(rates, Tensor) else rates
