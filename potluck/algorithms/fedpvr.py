"""FedPVR (Li, Schmidt, Alstrom, Stich 2023, On the Effectiveness of Partial Variance Reduction in FL).

What devices with different data disagree about are a model's last layers; the layers before them are learnt
well by plain averaging. So only the last ones are corrected by SCAFFOLD's control variates, which are then
small, and the rest trains as in FedAvg, with momentum.

As in the authors' code: c_i by option II; momentum moves the layers that aren't corrected, and spares those
that are; updates are averaged equally; c moves by 1/N of the sum of changes, N being all devices.
Deviations: the layers are counted from the end, the head first (the code names an index for each of its two
models: the classifier, which in VGG-11 is several layers and in ResNet-8 the head alone); control variates
travel for these layers only. Below a parent, an aggregator keeps c for its own devices, and what it reports
weighs as many votes as devices were heard. A device without rows is left out of the mean; weight decay,
deadlines and over-commitment can be had.

`local_head` is another rule under the same name, that of comparisons which describe FedPVR as sharing a body
alone (like FedPer): the last layers stay on the device, are trained with the rest, and nothing is corrected;
bodies are averaged by samples. Devices use the global body with their own head, the view `personal`. They are
sent the initial head, too, for those that have none yet; it is all that the view `global` has for a head.
"""

from dataclasses import replace
from typing import Any, Final, Self

from potluck.aggregate import Average, Global, Select, Uniform
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.scaffold import Controlled, ControlVariates
from potluck.codec import value
from potluck.contracts import Context, Got, Net
from potluck.errors import require
from potluck.jobs import SGD, Correct, Kept, OwnPart, Spared, Train, used
from potluck.messages import Command, Node, Task
from potluck.trees import Params, Tree

FIDELITY: Final = "authors' code"


@value
class LastControlled:
    """Control variates for the last layers of a model."""

    inner: ControlVariates
    layers: int = 1

    def start(self, ctx: Context) -> Controlled:
        m = self.inner.start(ctx)
        names = last_layers(ctx.models[self.inner.inner.local.model], m.control, self.layers)
        return replace(m, control={name: m.control[name] for name in names})

    def lanes(self, m: Controlled, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m, ctx)

    def plan(self, m: Controlled, lane: None, ctx: Context) -> tuple[Controlled, list[Command]]:
        inner, local = self.inner.inner, self.inner.inner.local
        objective, optim = Correct(tuple(m.control)), local.optim
        if isinstance(optim, SGD) and optim.momentum and m.control:
            places = tuple(i for i, name in enumerate(m.inner.params) if name in m.control)
            optim = Spared(optim.lr, optim.momentum, optim.weight_decay, places)
        partly = replace(inner, local=replace(local, objective=objective, optim=optim))
        return replace(self.inner, inner=partly).plan(m, lane, ctx)

    def merge(self, m: Controlled, lane: None, got: Got, ctx: Context) -> tuple[Controlled, list[Command]]:
        return self.inner.merge(m, lane, got, ctx)

    def adopt(self, m: Controlled, task: Task, ctx: Context) -> Controlled:
        return replace(m, inner=self.inner.inner.adopt(m.inner, task, ctx))

    def report(self, m: Controlled, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        return self.inner.inner.report(m.inner, task, ctx)

    def resized(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resized(clients, rate))

    def serve(self, m: Controlled, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m, node, ctx)


@value
class OwnHeads:
    """FedAvg of all but the last layers, of which every device has its own."""

    inner: FedAvg
    layers: int = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def plan(self, m: Global, lane: None, ctx: Context) -> tuple[Global, list[Command]]:
        local = self.inner.local
        own = OwnPart(last_layers(ctx.models[local.model], m.params, self.layers))
        return replace(self.inner, local=replace(local, objective=own)).plan(m, lane, ctx)

    def resized(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resized(clients, rate))

    def serve(self, m: Global, node: Node, ctx: Context) -> dict[str, Task]:
        plain = self.inner.serve(m, node, ctx)
        if node == ctx.me:  # an aggregator has no head of its own
            return plain
        return {"personal": replace(plain["global"], job=used(self.inner.local.model, Kept())), **plain}


def last_layers(net: Net, params: Params, layers: int) -> tuple[str, ...]:
    """The parameters of the last layers, in the model's order; the very last one is its head."""
    if not layers:
        return ()
    head = set(net.head_names)
    below = list(dict.fromkeys(_layer(name) for name in params if name not in head))
    most = len(below) + 1
    require(layers <= most, "layers", layers, f"must be at most {most}: the model has no more")
    last = set(below[most - layers :])
    return tuple(name for name in params if name in head or _layer(name) in last)


def fedpvr(
    local: Train = Train(),
    clients: int = 10,  # devices a round
    layers: int = 1,  # last ones that are corrected, or stay on the device; norms count too
    local_head: bool = False,  # the last layers stay on the device instead of being corrected
    server_lr: float = 1.0,  # the server's step
    select: Select = Uniform(),  # who takes part
    overcommit: float = 1.0,  # ask so many times the clients, go on with the first
    deadline: float | None = None,  # seconds
) -> LastControlled | OwnHeads:
    """FedAvg whose last layers are corrected towards everybody's; or, with `local_head`, aren't shared."""
    least = int(local_head)
    require(layers >= least, "layers", layers, f"must be at least {least}; 0 corrects nothing")
    require(local.part == "all", "train.part", local.part, "must be 'all': FedPVR trains whole models")
    average = FedAvg(clients, local, select, Average(server_lr), overcommit, deadline)
    if local_head:
        return OwnHeads(average, layers)
    optim, why = local.optim, "FedPVR divides by steps x rate, which suits SGD only"
    require(isinstance(optim, SGD), "train.optimizer", type(optim).__name__.lower(), f"{why}; write 'sgd'")
    require(optim.lr > 0, "train.lr", optim.lr, f"{why}; write a rate above 0")
    return LastControlled(ControlVariates(average), layers)


def _layer(name: str) -> str:
    """The module that a parameter belongs to; a parameter of the model itself is a layer of its own."""
    return name.rpartition(".")[0] or name
