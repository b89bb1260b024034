"""What devices learn by contrast, and a rule that tells them what its judge found odd."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from torch import Tensor

from potluck.algorithms.maverick.device import Contrast
from potluck.authoring import (
    Choice,
    Command,
    Context,
    Got,
    Lane,
    Lost,
    Node,
    Note,
    Params,
    Repeats,
    Report,
    RuleState,
    Task,
    Train,
    require,
    value,
)
from potluck.core.rule import Inner
from potluck.jobs import CrossEntropy
from potluck.jobs.kept import apply_update
from potluck.rules.edges import rewrite_tasks
from potluck.rules.robust import Robust, Verdict, keep_all


@value
class Learning:
    """Devices of edges learn models of their own, by contrast with the global and anomalous ones."""

    mu_p: Annotated[float, "how much the contrast of edge and global model counts; 0: not at all"] = 0.0
    mu_a: Annotated[float, "how much the contrast with anomalous models counts; 0: not at all"] = 1.0
    tau: Annotated[float, "temperature: the lower, the more the nearest representations count"] = 0.5
    contrast: Annotated[
        Literal["hinge", "log"], "hinge: it pushes only where the edge isn't nearest already; log: always"
    ] = "hinge"
    top: Annotated[Repeats, "anomalous models that devices are sent, at most"] = 3
    alike: Annotated[bool, "these count the same; else by how far off they are"] = False

    def __post_init__(self) -> None:
        require(self.top >= 0, "top", self.top, "must be 0 or more: anomalous models that devices are sent")
        require(self.contrast in ("hinge", "log"), "contrast", self.contrast, "must be 'hinge' or 'log'")
        self.take(Train())  # refuses weights that are none

    def take(self, job: Train) -> Train:
        asked = job.objective
        fix = "devices learn by contrast, and by nothing else beside labels; take such as 'fedavg' above"
        require(asked == CrossEntropy(), "objective", type(asked).__name__, fix)
        return replace(job, objective=Contrast(self.mu_p, self.mu_a, self.tau, self.contrast == "hinge"))

    def shows(self, job: Train) -> bool:
        return self.mu_p > 0

    def put_around(self, rule: Inner, robust: Robust | None) -> "Negatives":
        return Negatives(rule, robust, self.top if self.mu_a else 0, self.alike)


@value(eq=False)
class VerdictState:
    """The inner rule's state, and what the last round's verdict was."""

    inner: RuleState
    odd: Sequence[Params]  # the farthest anomalous models
    share: Tensor  # [odd] how much each of them counts; 1 together

    @property
    def round(self) -> int:
        return self.inner.round


@value
class Negatives:
    """A rule for genuine models; the anomalous ones are shown to devices, as what not to become."""

    inner: Inner[Any]  # such as FedAvg
    robust: Robust | None
    top: int  # k
    alike: bool = False  # whether they count the same, however far off

    def start(self, ctx: Context) -> VerdictState:
        inner = self.inner.start(ctx)
        begun = self.inner.serve(inner, ctx.me, ctx)["global"]
        assert isinstance(begun, Task)
        return VerdictState(inner, [], next(iter(begun.send["params"].values())).new_zeros(0))

    def with_judge(self, robust: Robust) -> Self:
        return replace(self, robust=robust)

    def lanes(self, m: VerdictState, ctx: Context) -> Iterable[Lane]:
        return self.inner.lanes(m.inner, ctx)

    def plan(self, m: VerdictState, lane: None, ctx: Context) -> tuple[VerdictState, list[Command]]:
        inner, commands = self.inner.plan(m.inner, lane, ctx)
        more = {"odd": m.odd, "share": m.share}
        return replace(m, inner=inner), rewrite_tasks(commands, send=lambda sent: {**sent, **more})

    def merge(
        self, m: VerdictState, lane: None, got: Got, ctx: Context
    ) -> tuple[VerdictState, list[Command]]:
        heard = [r for r in got.replies if r.weight > 0]  # an update without rows behind it tells nothing
        found = keep_all(heard) if self.robust is None else self.robust.judge(heard)
        lost = [*got.lost, *(Lost(r.task, "bad") for r in found.odd)]
        inner, commands = self.inner.merge(m.inner, lane, Got(found.kept, lost), ctx)
        counts = {"replies": len(got.replies), "odd": len(found.odd), "changed": found.changed}
        judged = sorted(r.task.to for r in heard) if found.judged else []
        notes: list[Command] = [Note("guarded", {**counts, "judged": judged}, ctx.me)]
        if found.odd:
            notes.append(Note("anomalous", [r.task.to for r in found.odd], ctx.me))
        odd = find_farthest(found, self.top)
        share = m.share.new_tensor([1 / len(odd) if self.alike else share for _, share in odd])
        return VerdictState(inner, [model for model, _ in odd], share), [*commands, *notes]

    def adopt(self, m: VerdictState, task: Task, ctx: Context) -> VerdictState:
        return replace(m, inner=self.inner.adopt(m.inner, task, ctx))

    def report(self, m: VerdictState, task: Task, ctx: Context) -> Report | None:
        return self.inner.report(m.inner, task, ctx)

    def serve(self, m: VerdictState, node: Node, ctx: Context) -> Mapping[str, Task | Choice]:
        return self.inner.serve(m.inner, node, ctx)


def find_farthest(found: Verdict, top: int) -> list[tuple[Params, float]]:
    """The anomalous models that are farthest off, at most so many, and their shares of these distances."""
    off = [(far, r) for far, r in zip(found.far, found.odd, strict=True) if far > 0]
    first = sorted(off, key=lambda pair: -pair[0])[:top]
    total = sum(far for far, _ in first)
    return [(apply_update(r.task.send, r.body["delta"]), far / total) for far, r in first]
