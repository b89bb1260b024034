"""An objective around another: for parts that add something to whatever a device minimises. Nets likewise."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from potluck.core.job import Batch, Local, Net, Nets, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective


@runtime_checkable
class AroundObjective(Objective, Protocol):
    """Does all that the inner objective does; a subclass says what it does besides."""

    inner: Objective

    @property
    def looks(self) -> bool:
        return self.inner.looks

    @property
    def packs(self) -> bool:
        return self.inner.packs

    @property
    def keeps_model(self) -> bool:
        return self.inner.keeps_model

    @property
    def whole(self) -> bool:
        return self.inner.whole

    @property
    def pulls(self) -> bool:
        return self.inner.pulls

    def blank(self, sent: Tree) -> Tree:
        return self.inner.blank(sent)

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return self.inner.look(models, net, sent, keep, batch)

    def form(self, sent: Tree) -> Params:
        return self.inner.form(sent)

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        return self.inner.start(sent, keep, own)

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return self.inner.hold(sent, keep, own)

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        return self.inner.penalty(net, params, batch, held)

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        return self.inner.loss(net, params, batch, held)

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return self.inner.review(net, params, own, held)

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return self.inner.tells(sent)

    def sends(self, params: Params) -> dict[str, Tree]:
        return self.inner.sends(params)

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        return self.inner.finish(delta, sent, keep, held, trace)

    def tells_change_only(self) -> bool:
        return self.inner.tells_change_only()

    def unpack(self, body: Tree, sent: Tree, params: Params) -> Tree:
        return self.inner.unpack(body, sent, params)

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        return self.inner.answer(net, params, batch, held)

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return self.inner.score(net, params, batch, held)

    def ops(self, net: Net, at: Local, passes: int) -> float:
        return self.inner.ops(net, at, passes)


class AroundNet:
    """Does all that another net does; a subclass says what it does differently."""

    __slots__ = ("net",)

    def __init__(self, net: Net) -> None:
        self.net = net

    @property
    def ops(self) -> int:
        return self.net.ops

    @property
    def nbytes(self) -> int:
        return self.net.nbytes

    @property
    def classes(self) -> int:
        return self.net.classes

    @property
    def head_names(self) -> tuple[str, ...]:
        return self.net.head_names

    def init(self, key: int) -> Params:
        return self.net.init(key)

    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        return self.net(params, x, key)

    def features(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        return self.net.features(params, x, key)

    def head(self, params: Params, z: Tensor) -> Tensor:
        return self.net.head(params, z)
