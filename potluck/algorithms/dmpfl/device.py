"""DM-PFL's device side: training under a mask, and two sparse models that share weights.

Masks are of whole tensors; tensors that aren't named in `shapes` have none and are shared by everybody. Every
mask of a tensor has equally many open places, so that what travels, the values at open places and the mask as
bits, has one form for all devices.
"""

from math import ceil, prod
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Net, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective, cross_entropy
from potluck.jobs.switch import Answers, pick, score_answers

Phase = Literal["dual", "generic", "personal"]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # of the masked tensors, by name
Masks = dict[str, Tensor]  # of booleans: True where a place is open


# ----------------------------------------------------------------------------------------------------- masks


def count_open(shape: tuple[int, ...], sparsity: float) -> int:
    """How many places of a tensor are open; at least one."""
    return max(1, prod(shape) - ceil(sparsity * prod(shape) - 1e-9))


def mask_largest(score: Tensor, count: int | Tensor) -> Tensor:
    """The mask of so many largest scores; equal ones in their order."""
    # In single precision what differs by rounding alone is equal, so that all executors choose alike.
    order = score.flatten().float().argsort(descending=True, stable=True)
    rank = torch.zeros_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    return (rank < count).reshape(score.shape)


def blend(shared: Tensor, shared_mask: Tensor, own: Tensor, own_mask: Tensor) -> Tensor:
    """theta_c: shared weights where both masks are open, own ones where only the own mask is."""
    zero = torch.zeros_like(shared)
    return torch.where(own_mask, torch.where(shared_mask, shared, own), zero)


def adjust(mask: Tensor, weights: Tensor, slopes: Tensor, share: Tensor) -> Tensor:
    """The mask without a share of its places, those of least weight, and with as many of largest slope.

    Places that no gradient ever reached stay closed; if there are too few others, less is given up.
    """
    reached, count = ~mask & (slopes != 0), mask.sum()
    change = torch.minimum((share * count - 1e-9).ceil().long(), reached.sum())
    low = torch.full_like(weights, -1.0)
    stay = mask_largest(torch.where(mask, weights.abs(), low), count - change)
    return stay | mask_largest(torch.where(reached, slopes.abs(), low), change)


def pack(values: Tensor, mask: Tensor, count: int) -> Tensor:
    """The values at the `count` open places."""
    first = (~mask).flatten().to(torch.uint8).argsort(stable=True)[:count]
    return values.flatten().gather(0, first)


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """A tensor with these values at its open places, 0 elsewhere."""
    flat = mask.flatten()
    # A mask that came from elsewhere may have more open places than there are values.
    found = values.gather(0, (flat.cumsum(0) - 1).clamp(0, max(0, len(values) - 1)))
    return torch.where(flat, found, torch.zeros_like(found)).reshape(mask.shape)


def to_bits(mask: Tensor) -> Tensor:
    """Eight places a byte."""
    flat = mask.flatten().to(torch.uint8)
    table = F.pad(flat, (0, -len(flat) % 8)).reshape(-1, 8)
    return (table << torch.arange(8, dtype=torch.uint8, device=mask.device)).sum(-1).to(torch.uint8)


def from_bits(bits: Tensor, shape: tuple[int, ...]) -> Tensor:
    shifts = torch.arange(8, dtype=torch.uint8, device=bits.device)
    table = (bits.unsqueeze(-1) >> shifts) & 1
    return table.flatten()[: prod(shape)].reshape(shape).bool()


def pack_model(params: Params, mask: Masks, sparsity: float) -> dict[str, Tree]:
    """A sparse model as it travels."""
    sparse = {n: pack(params[n], m, count_open(tuple(m.shape), sparsity)) for n, m in mask.items()}
    return {"params": params | sparse, "bits": {n: to_bits(m) for n, m in mask.items()}}


# ------------------------------------------------------------------------------------------------ objectives


@value
class MaskedTraining(Objective):
    """Training under masks, by phase: all of the own model, all of the shared one, or what is own alone.

    A device keeps its mask and its weights. At closed places it keeps, instead of a weight, the way that the
    gradients of its last dual training would have gone there: they say where the mask should open. Nothing is
    computed for it: closed places take steps like all others, and their values count as 0 all the same.
    """

    phase: Phase
    shapes: Shapes
    sparsity: float = 0.5
    adjusts: bool = False  # the mask, before training; in the dual phase only

    packs: ClassVar[bool] = True

    def blank(self, sent: Tree) -> Tree:
        mask = self._read_masks(sent)  # nothing of its own: the shared model
        any_ = next(iter(sent["params"].values()))
        none = {n: any_.new_zeros(shape) for n, shape in self.shapes}
        return {"params": none, "mask": mask, "turn": any_.new_full((), -1, dtype=torch.int64)}

    def form(self, sent: Tree) -> Params:
        shapes = dict(self.shapes)
        return {n: p.new_empty(shapes[n]) if n in shapes else p for n, p in sent["params"].items()}

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        return self._begin(sent, keep)[0]

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        theta, trained = self._begin(sent, keep)
        return {"theta": theta, "open": trained}

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        data = cross_entropy(net, self._apply_masks(params, held), batch)
        return data, {"loss": data.detach()}

    def sends(self, params: Params) -> dict[str, Tree]:
        any_ = next(iter(params.values()))
        if self.phase == "personal":
            return {"delta": {}, "loss": any_.new_empty(())}
        sparse = {n: any_.new_empty(count_open(shape, self.sparsity)) for n, shape in self.shapes}
        if self.phase == "generic":
            return {"delta": params | sparse}
        bits = {n: torch.full((-(-prod(shape) // 8),), 255, dtype=torch.uint8) for n, shape in self.shapes}
        return {"delta": params | sparse, "bits": bits}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        theta, trained = held["theta"], held["open"]
        if self.phase == "generic":
            return {"delta": delta | self._pack(delta, trained)}, None
        after = {n: theta[n] + delta[n] for n in trained}
        if self.phase == "personal":
            own = {n: torch.where(trained[n], after[n], kept) for n, kept in keep["params"].items()}
            # Nothing is shared; but a device whose training came to no number must be found out.
            loss = trace.means.get("loss", torch.zeros_like(trace.lr))
            return {"delta": {}, "loss": loss}, keep | {"params": own, "turn": sent["turn"]}
        shared, _ = self._read_shared(sent)
        moved = {n: after[n] - shared[n] for n in trained}  # of what only the own mask has: the weight itself
        body = {
            "delta": delta | self._pack(moved, trained),
            "bits": {n: to_bits(m) for n, m in trained.items()},
        }
        return body, keep | {"params": after, "mask": trained}

    def unpack(self, body: Tree, sent: Tree, params: Params) -> Tree:
        if self.phase == "personal":
            return body
        mask = self._read_masks(body if self.phase == "dual" else sent)
        dense = {n: spread(body["delta"][n], m) for n, m in mask.items()}
        delta: Params = body["delta"] | dense
        return {"delta": delta, "mask": {n: m.to(delta[n].dtype) for n, m in mask.items()}}

    def _begin(self, sent: Tree, keep: Tree) -> tuple[Params, Masks]:
        """The weights that training starts from, and the places that it changes."""
        shared, mask = self._read_shared(sent)
        if self.phase == "generic":
            return shared, mask
        theta, trained = dict(shared), dict[str, Tensor]()
        for name, general in mask.items():
            mine, kept = keep["mask"][name], keep["params"][name]
            own = torch.where(mine, kept, torch.zeros_like(kept))
            if self.adjusts:
                now = blend(shared[name], general, own, mine)
                mine = adjust(mine, now, torch.where(mine, torch.zeros_like(kept), kept), sent["share"])
            if self.phase == "personal":  # in every turn what is own starts anew
                own = torch.where(keep["turn"] == sent["turn"], own, torch.zeros_like(own))
            theta[name] = blend(shared[name], general, own, mine)
            trained[name] = mine if self.phase == "dual" else mine & ~general
        return theta, trained

    def _apply_masks(self, params: Params, held: Tree) -> Params:
        """The weights as the model sees them."""
        theta: Params = held["theta"]
        trained: Masks = held["open"]
        if self.phase == "personal":
            return theta | {n: torch.where(m, params[n], theta[n]) for n, m in trained.items()}
        if self.phase == "generic":
            return params | {n: torch.where(m, params[n], 0.0) for n, m in trained.items()}
        # Closed places are 0, and yet have their gradients.
        return params | {
            n: torch.where(m, params[n], params[n] - params[n].detach()) for n, m in trained.items()
        }

    def _read_masks(self, sent: Tree) -> Masks:
        return {n: from_bits(sent["bits"][n], shape) for n, shape in self.shapes}

    def _read_shared(self, sent: Tree) -> tuple[Params, Masks]:
        mask = self._read_masks(sent)
        return sent["params"] | {n: spread(sent["params"][n], m) for n, m in mask.items()}, mask

    def _pack(self, values: Params, mask: Masks) -> Params:
        return {n: pack(values[n], mask[n], count_open(shape, self.sparsity)) for n, shape in self.shapes}


@value
class Deferral(Objective):
    """The own model of two that share weights; where their outputs are unlike, the shared one answers.

    Sent are the shared model, dense and with zeros, and its mask. No label of a test row is looked at.
    """

    threshold: float = 0.5  # cosine of the two outputs (logits) of a row

    def __post_init__(self) -> None:
        fix = "must be between -1 and 1, such as 0.5: a cosine"
        require(-1 <= self.threshold <= 1, "threshold", self.threshold, fix)

    def blank(self, sent: Tree) -> Tree:
        return {"params": {n: sent["params"][n] for n in sent["mask"]}, "mask": sent["mask"]}

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        shared: Params = sent["params"]
        mask: Masks = sent["mask"]
        mine, kept = keep["mask"], keep["params"]
        return shared | {n: blend(shared[n], m, kept[n], mine[n]) for n, m in mask.items()}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent["params"]

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        return self._defer(net(params, batch.x), net(held, batch.x)).logits

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        own, general = net(params, batch.x), net(held, batch.x)
        return score_answers(own, general, self._defer(own, general), batch)

    def _defer(self, own: Tensor, general: Tensor) -> Answers:
        return pick(F.cosine_similarity(own, general, dim=-1) >= self.threshold, own, general)
