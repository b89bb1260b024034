"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Self

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedpvr.device.own_part import OwnPart
from potluck.algorithms.fedpvr.device.spared import SparedSGD
from potluck.algorithms.scaffold import ControlState, ControlVariates
from potluck.authoring import (
    SGD,
    Average,
    Command,
    Context,
    Correct,
    Factor,
    GlobalState,
    Got,
    Kept,
    LearningRate,
    Net,
    Node,
    Params,
    Seconds,
    Select,
    Task,
    Train,
    Tree,
    Uniform,
    require,
    use_model,
    value,
)
from potluck.rules.wrap import AroundRule


@value
class LastLayerControl:
    """Control variates for the last layers of a model."""

    inner: ControlVariates
    layers: int = 1

    def start(self, ctx: Context) -> ControlState:
        m = self.inner.start(ctx)
        names = find_last_layers(ctx.models[self.inner.inner.local.model], m.control, self.layers)
        return replace(m, control={name: m.control[name] for name in names})

    def lanes(self, m: ControlState, ctx: Context) -> tuple[None, ...]:
        return self.inner.lanes(m, ctx)

    def plan(self, m: ControlState, lane: None, ctx: Context) -> tuple[ControlState, list[Command]]:
        inner, local = self.inner.inner, self.inner.inner.local
        objective, optim = Correct(tuple(m.control)), local.optim
        if isinstance(optim, SGD) and optim.momentum and m.control:
            places = tuple(i for i, name in enumerate(m.inner.params) if name in m.control)
            optim = SparedSGD(optim.lr, optim.momentum, optim.weight_decay, places)
        partly = replace(inner, local=replace(local, objective=objective, optim=optim))
        return replace(self.inner, inner=partly).plan(m, lane, ctx)

    def merge(
        self, m: ControlState, lane: None, got: Got, ctx: Context
    ) -> tuple[ControlState, list[Command]]:
        return self.inner.merge(m, lane, got, ctx)

    def adopt(self, m: ControlState, task: Task, ctx: Context) -> ControlState:
        return replace(m, inner=self.inner.inner.adopt(m.inner, task, ctx))

    def report(self, m: ControlState, task: Task, ctx: Context) -> tuple[Tree, float] | None:
        return self.inner.inner.report(m.inner, task, ctx)

    def resize(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resize(clients, rate))

    def serve(self, m: ControlState, node: Node, ctx: Context) -> dict[str, Task]:
        return self.inner.serve(m, node, ctx)


@value
class OwnHeads(AroundRule[GlobalState]):
    """FedAvg of all but the last layers, of which every device has its own."""

    inner: FedAvg
    layers: int = 1

    def plan(self, m: GlobalState, lane: None, ctx: Context) -> tuple[GlobalState, list[Command]]:
        local = self.inner.local
        own = OwnPart(find_last_layers(ctx.models[local.model], m.params, self.layers))
        return replace(self.inner, local=replace(local, objective=own)).plan(m, lane, ctx)

    def serve(self, m: GlobalState, node: Node, ctx: Context) -> dict[str, Task]:
        plain = self.inner.serve(m, node, ctx)
        if node == ctx.me:  # an aggregator has no head of its own
            return plain
        return {"personal": replace(plain["global"], job=use_model(self.inner.local.model, Kept())), **plain}


def find_last_layers(net: Net, params: Params, layers: int) -> tuple[str, ...]:
    """The parameters of the last layers, in the model's order; the very last one is its head."""
    if not layers:
        return ()
    head = set(net.head_names)
    below = list(dict.fromkeys(_find_layer(name) for name in params if name not in head))
    most = len(below) + 1
    require(layers <= most, "layers", layers, f"must be at most {most}: the model has no more")
    last = set(below[most - layers :])
    return tuple(name for name in params if name in head or _find_layer(name) in last)


def fedpvr(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    layers: Annotated[int, "last ones that are corrected, or stay on the device; norms count too"] = 1,
    local_head: Annotated[bool, "the last layers stay on the device instead of being corrected"] = False,
    server_lr: Annotated[LearningRate, "the server's step"] = 1.0,
    select: Annotated[Select, "who takes part"] = Uniform(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> LastLayerControl | OwnHeads:
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
    return LastLayerControl(ControlVariates(average), layers)


def _find_layer(name: str) -> str:
    """The module that a parameter belongs to; a parameter of the model itself is a layer of its own."""
    return name.rpartition(".")[0] or name
