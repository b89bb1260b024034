"""A follower's device side (Fed-RAC): learn from own rows, and from what a richer tier's model says of them.

The teacher is frozen, so it looks at every row once: when it is sent. The device keeps what it said, a few
numbers a row, and the teacher is neither sent nor run again until there is another one. A row is known by a
mark, a weighted sum of its numbers: what is kept of rows that have gone since isn't taken for that of others.
Rows without a lesson (new ones, or all, if the device lost its memory) are learnt by their labels alone.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import ModelError, require
from potluck.core.job import Batch, Local, ModelSpec, Net, Nets, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.losses import divergence, row_losses
from potluck.jobs.objective import Objective, weighted_mean

CLOSE = 1e-5  # marks that differ by less, for the sizes of their terms, are of one row: sums depend on order


@value
class Teach(Objective):
    """a CE + (1 - a) T^2 KL(teacher || student), of logits softened by T.

    T^2 makes up for the softening, which scales the gradient of the second term by about 1 / T^2.
    """

    teacher: ModelSpec
    a: float = 0.1  # how much labels count
    temperature: float = 3.0  # T
    room: int = 0  # rows whose lessons are kept, the same for all devices, so that they train in one stack
    slower: float = 1.0  # times that the teacher's pass takes where its weights are streamed from flash

    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 <= self.a <= 1, "teach.a", self.a, "must be between 0 (the teacher alone) and 1 (labels)")
        require(
            0 < self.temperature < float("inf"),
            "teach.temperature",
            self.temperature,
            "must be above 0, such as 3.0",
        )

    def blank(self, sent: Tree) -> Tree:
        return {}

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        mark = mark_rows(batch.x)
        if "teacher" in sent:
            said = models[self.teacher](sent["teacher"], batch.x)  # without a key: no dropout, as it is used
            return {"logits": said, "mark": mark, "known": torch.ones_like(mark)}
        rows = len(mark)
        if not keep:
            none = mark.new_zeros(rows, net.classes)
            return {"logits": none, "mark": mark, "known": torch.zeros_like(mark)}
        kept = {name: _resize(t, rows) for name, t in keep.items()}
        known = (kept["mark"] - mark).abs() <= CLOSE * mark_rows(batch.x.abs())  # False of NaN
        return {**kept, "mark": mark, "known": known.to(mark.dtype)}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        assert own is not None
        if "teacher" not in sent:
            return {}
        real = own.weight > 0
        logits, mark = own.seen["logits"], own.seen["mark"]
        kept = {
            "logits": torch.where(real[:, None], logits, torch.zeros_like(logits)),
            "mark": torch.where(real, mark, torch.nan),
        }
        return {name: _resize(t, self.room) for name, t in kept.items()}

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        seen, logits = batch.seen, net(params, batch.x, batch.key)
        data = row_losses(logits, batch.y)
        off = divergence((seen["logits"] / self.temperature).softmax(-1), logits, self.temperature)
        taught = self.a * data + (1 - self.a) * self.temperature**2 * off
        loss = weighted_mean(data + seen["known"] * (taught - data), batch.weight)
        losses = {"loss": data, "loss_teacher": off * seen["known"]}
        return loss, {name: weighted_mean(rows, batch.weight).detach() for name, rows in losses.items()}

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return {"taught": own.seen["known"]}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return "loss", "loss_teacher", "taught"

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        return {}, held or None

    def tells_change_only(self) -> bool:
        return (
            True  # lessons stay on the device; the share of rows that have one is told without privacy only
        )

    def ops(self, net: Net, at: Local, passes: int) -> float:
        teacher = at.models[self.teacher]
        if teacher.classes != net.classes:
            raise ModelError(
                f"a follower of {net.classes} outputs can't be taught by {self.teacher}, which has "
                f"{teacher.classes}: give both the same outputs"
            )
        return self.slower * len(at.rows) * teacher.ops if "teacher" in at.inbox else 0.0


def mark_rows(x: Tensor) -> Tensor:
    """A number for every row, by which it is known again."""
    flat = x.flatten(1) if x.is_floating_point() else x.flatten(1).to(torch.float32)
    place = torch.linspace(1, 2, flat.shape[1], dtype=flat.dtype, device=flat.device)
    return flat @ place


def _resize(t: Tensor, rows: int) -> Tensor:
    """The first rows; where there are fewer, NaN marks of no row, or zeros."""
    if t.shape[0] >= rows:
        return t[:rows]
    fill = torch.nan if t.ndim == 1 else 0.0
    return F.pad(t, [*[0, 0] * (t.ndim - 1), 0, rows - t.shape[0]], value=fill)
