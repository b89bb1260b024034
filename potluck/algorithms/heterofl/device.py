"""Training of a narrow part of a wider model (HeteroFL)."""

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.job import Batch, Local, ModelSpec, Net, Nets, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.around import AroundNet, AroundObjective
from potluck.jobs.losses import divergence
from potluck.jobs.objective import CrossEntropy, Objective, weighted_mean
from potluck.models import as_model, build_part, cut_params


class _ScaledNet(AroundNet):
    """A net whose narrow layers speak up for the channels that they lack; absent classes are silent."""

    __slots__ = ("job", "present")

    def __init__(self, net: Net, job: "Narrow", present: Tensor | None = None) -> None:
        super().__init__(net)
        self.job, self.present = job, present

    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        return self._silence_absent(self.net(self._amplify(params), x, key))

    def features(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        return self.net.features(self._amplify(params), x, key)

    def head(self, params: Params, z: Tensor) -> Tensor:
        return self._silence_absent(self.net.head(self._amplify(params), z))

    def _amplify(self, params: Params) -> Params:
        # A layer's output divided by the rate is the layer with weight and bias divided by it.
        return params | {name: params[name] / self.job.rate for name in self.job.scaled}

    def _silence_absent(self, logits: Tensor) -> Tensor:
        return logits if self.present is None else torch.where(self.present, logits, 0.0)


@value
class Narrow(AroundObjective):
    """Any objective, on a narrow part of a wider model.

    What the layers of `scaled` give is divided by `rate`, in training and in use: they have only that share
    of the wide model's channels, and the whole, which is used without, is to find sums of the same size. With
    `classes`, logits of classes that the device has no rows of are 0, and it tells which ones it holds.
    """

    inner: Objective = CrossEntropy()
    rate: float = 1.0
    scaled: tuple[str, ...] = ()  # parameters
    classes: int | None = None  # of the data; None: nothing is masked or told

    def __post_init__(self) -> None:
        require(0 < self.rate <= 1, "rate", self.rate, "must be above 0 and at most 1: a share of channels")

    @property
    def looks(self) -> bool:
        return self.classes is not None or self.inner.looks  # the device's labels are seen so

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return self.inner.look(models, self.scale(net), sent, keep, batch) if self.inner.looks else {}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return self.inner.hold(sent, keep, own), self._find_present(own)

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        return self.inner.penalty(self.scale(net, held[1]), params, batch, held[0])

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        return self.inner.loss(self.scale(net, held[1]), params, batch, held[0])

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return self.inner.review(self.scale(net), params, own, held[0])

    def sends(self, params: Params) -> dict[str, Tree]:
        more = self.inner.sends(params)
        return (
            more if self.classes is None else {**more, "holds": torch.zeros(self.classes, dtype=torch.bool)}
        )

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        more, kept = self.inner.finish(delta, sent, keep, held[0], trace)
        return (more if self.classes is None else {**more, "holds": held[1]}), kept

    def tells_change_only(self) -> bool:
        return self.classes is None and self.inner.tells_change_only()

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        return self.inner.answer(self.scale(net), params, batch, held[0])

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return self.inner.score(self.scale(net), params, batch, held[0])

    def scale(self, net: Net, present: Tensor | None = None) -> Net:
        """The net as it is trained, or used."""
        return net if present is None and not self.scaled else _ScaledNet(net, self, present)

    def _find_present(self, own: Batch | None) -> Tensor | None:
        """Which classes the device has rows of [classes]."""
        if self.classes is None:
            return None
        assert own is not None
        every = torch.arange(self.classes, device=own.y.device).unsqueeze(1)
        return ((own.y == every) & (own.weight > 0)).any(1)


@value
class InPlace(AroundObjective):
    """The models inside a device's own are trained, too, in each step, by what its own says of the batch.

    In-place distillation (Yu, Huang 2019, Universally Slimmable Networks): the own model learns from labels,
    the narrower ones from its answers alone, at which they don't pull. They can be computed one after
    another, so memory is the own one's.
    """

    inner: Narrow = Narrow()
    parts: tuple[tuple[ModelSpec, Narrow], ...] = ()  # the narrower models, and how each is trained

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        data, told = self.inner.loss(net, params, batch, held)
        present = held[1]
        said = self.inner.scale(net, present)(params, batch.x).detach().softmax(-1)
        far = data.new_zeros(())
        for spec, narrow in self.parts:
            small = build_part(as_model(net), spec)
            own = cut_params(params, as_model(net), small)
            logits = narrow.scale(small, present)(own, batch.x, batch.key)
            far = far + weighted_mean(divergence(said, logits, 1.0), batch.weight)
        return data + far, {**told, "loss_inside": far.detach()} if self.parts else told

    def tells(self, sent: Tree) -> tuple[str, ...]:
        return (*self.inner.tells(sent), "loss_inside") if self.parts else self.inner.tells(sent)

    def ops(self, net: Net, at: Local, passes: int) -> float:
        inside = sum(3.0 * at.models[spec].ops for spec, _ in self.parts)
        return self.inner.ops(net, at, passes) + passes * (net.ops + inside) * bool(self.parts)
