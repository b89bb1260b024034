"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from collections.abc import Sequence
from dataclasses import replace
from math import cos, pi
from typing import Annotated

import torch

from potluck.algorithms.dmpfl.device import (
    Deferral,
    MaskedTraining,
    Masks,
    Phase,
    Shapes,
    count_open,
    mask_largest,
    pack_model,
)
from potluck.authoring import (
    Command,
    Context,
    Factor,
    Got,
    Node,
    Note,
    Params,
    Reply,
    RunRounds,
    Seconds,
    Task,
    Train,
    Tree,
    Until,
    add,
    fold,
    require,
    use_model,
    value,
)

TURN = 4  # rounds of a turn at least: two dual, one generic, one personal
UNKNOWN = 100  # rounds that phases are cut from where nobody knows the run's


@value(eq=False)
class DualMaskState:
    """The global model, zero where its mask is closed, and the mask."""

    params: Params  # w_g m_g
    mask: Masks  # m_g; of the masked tensors
    round: int = 0


@value
class DualMasks:
    """Rounds of a sparse global model and of sparse models that share weights with it."""

    local: Train = Train()
    clients: int = 10
    rounds: RunRounds = None
    turns: int = 2
    sparsity: float = 0.5
    alpha: float = 0.7
    every: int = 3
    votes: float = 0.5
    threshold: float = 0.5
    overcommit: float = 1.0
    deadline: float | None = None

    def start(self, ctx: Context) -> DualMaskState:
        params = ctx.models[self.local.model].init(ctx.key)
        found = find_shapes(params)
        fix = "has no layer to mask beyond its first; take one of several layers, such as 'mlp'"
        require(bool(found), "model", self.local.model.name, fix)
        mask = {n: mask_largest(params[n].abs(), count_open(shape, self.sparsity)) for n, shape in found}
        return DualMaskState(params | {n: params[n] * m for n, m in mask.items()}, mask)

    def lanes(self, m: DualMaskState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: DualMaskState, lane: None, ctx: Context) -> tuple[DualMaskState, list[Command]]:
        phase, turn = self.phase(m.round)
        adjusts = phase == "dual" and (m.round - 1) % self.every == 0
        send, any_ = pack_model(m.params, m.mask, self.sparsity), next(iter(m.params.values()))
        if adjusts:
            send["share"] = any_.new_tensor(self.share(m.round), dtype=torch.float64)
        if phase == "personal":
            send["turn"] = any_.new_tensor(turn, dtype=torch.int64)
        masked = MaskedTraining(phase, find_shapes(m.params), self.sparsity, adjusts)
        job = replace(self.local, objective=masked)
        tasks = [Task(node, job, send) for node in ctx.sample(round(self.clients * self.overcommit))]
        return m, [Until(self.deadline, self.clients), *tasks]

    def merge(
        self, m: DualMaskState, lane: None, got: Got, ctx: Context
    ) -> tuple[DualMaskState, list[Command]]:
        (phase, _), (then, _) = self.phase(m.round), self.phase(m.round + 1)
        notes: list[Command] = [Note("phase", then)] if then != phase else []
        params, mask = m.params, m.mask
        change = None if phase == "personal" else fold(got.replies)
        if change is not None and phase == "generic":
            params = add(params, change)
        elif change is not None:
            params, mask = self.take_votes(m, change, got.replies)
        return DualMaskState(params, mask, m.round + 1), notes

    def take_votes(self, m: DualMaskState, change: Tree, replies: Sequence[Reply]) -> tuple[Params, Masks]:
        """The model and the mask that devices have agreed upon; `change` counts 0 where a place is closed."""
        params, mask, votes = add(m.params, change), dict(m.mask), fold(replies, "mask")
        assert votes is not None
        for name, share in votes.items():
            enough = share >= self.votes - 1e-6  # but for rounding
            mean = m.params[name] + change[name] / share.clamp_min(1e-6)
            # Weights are at least 0 in size, so places without enough votes come last, by their votes.
            order = torch.where(enough, mean.abs(), share - 2)
            mask[name] = mask_largest(order, count_open(tuple(share.shape), self.sparsity))
            params[name] = torch.where(enough & mask[name], mean, torch.zeros_like(mean))
        return params, mask

    @property
    def length(self) -> int:
        """R, the rounds that phases are cut from."""
        return UNKNOWN if self.rounds is None else self.rounds

    def phase(self, number: int) -> tuple[Phase, int]:
        """The phase of a round and the turn that it is in; both count from 0."""
        turns = min(self.turns, self.length // TURN)
        if turns == 0:
            return "dual", 0
        size = self.length / turns
        turn = max(t for t in range(turns) if int(size * t) <= number)
        begun = int(size * turn)
        if number < int(begun + size / 2):
            return "dual", turn
        return ("generic" if number < int(begun + size * 3 / 4) else "personal"), turn

    def share(self, number: int) -> float:
        """Of a mask's open places, how many are exchanged in a round: ever fewer."""
        return self.alpha / 2 * (1 + cos(pi * min(number, self.length) / self.length))

    def serve(self, m: DualMaskState, node: Node, ctx: Context) -> dict[str, Task]:
        general = Task(node, use_model(self.local.model), {"params": m.params})
        if node == ctx.me:  # the cloud has nothing of its own
            return {"dmpfl": general, "global": general}
        both = use_model(self.local.model, Deferral(self.threshold))
        return {"dmpfl": Task(node, both, {"params": m.params, "mask": m.mask}), "global": general}


def find_shapes(params: Params) -> Shapes:
    """Of the tensors that are masked: all weights of layers but the first."""
    return tuple((n, tuple(p.shape)) for n, p in params.items() if p.dim() > 1)[1:]


def dmpfl(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    rounds: Annotated[RunRounds, "that the phases are cut from; 100 if the run ends by seconds alone"] = None,
    turns: Annotated[int, "how often the three phases are gone through, at four rounds each or more"] = 2,
    sparsity: Annotated[float, "share of a masked layer's places that are closed"] = 0.5,
    alpha: Annotated[float, "share of open places that are exchanged at first"] = 0.7,
    every: Annotated[int, "rounds between those in which masks are adjusted"] = 3,
    votes: Annotated[float, "share of the votes that keeps a place open"] = 0.5,
    threshold: Annotated[float, "a row is the own model's if the cosine of both outputs is no less"] = 0.5,
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> DualMasks:
    """Sparse models of the devices' own, which share weights with a sparse global one."""
    require(clients >= 1, "clients", clients, "must be at least 1: devices a round")
    require(turns >= 1, "turns", turns, "must be at least 1")
    require(rounds is None or rounds >= 1, "rounds", rounds, "must be at least 1; left out, it is the run's")
    require(0 <= sparsity < 1, "sparsity", sparsity, "must be at least 0 and below 1, such as 0.5")
    require(0 <= alpha <= 1, "alpha", alpha, "must be between 0 and 1; 0 leaves masks as they are")
    require(every >= 1, "every", every, "must be at least 1")
    require(0 < votes <= 1, "votes", votes, "must be above 0 and at most 1, such as 0.5")
    require(local.part == "all", "train.part", local.part, "DM-PFL trains all layers; write 'all'")
    Deferral(threshold)  # a bad threshold is told at once
    return DualMasks(
        local, clients, rounds, turns, sparsity, alpha, every, votes, threshold, overcommit, deadline
    )
