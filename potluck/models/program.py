"""A whole module as calls: all of it, what comes before its head, and its head."""

import copy
import itertools
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from potluck.models.dropout import Draws, KeyedDropout, key_dropouts
from potluck.models.layers import Name, Step, compile_layer, join, list_layers, wrap_module
from potluck.models.stacked_layers import Call, stack_layer


class Layer(NamedTuple):
    module: nn.Module
    step: Step  # for one client
    many: Step  # for a stack of clients


class Program(NamedTuple):
    layers: list[Layer]  # of a Sequential, in order; a single one for any other module
    call: Step
    features: Step | None  # None: it isn't known where the head begins
    head: Step | None
    head_names: tuple[str, ...]  # its parameters


def prepare(module: nn.Module, replace: Mapping[int, Tensor], training: bool) -> tuple[nn.Module, Draws]:
    """A copy with other parameters (by id, so that tied ones stay tied), keyed dropout, nothing in place."""
    net = copy.deepcopy(module, dict(replace)).train(training)
    for part in net.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]  # it might write into the federation's samples
    return net, key_dropouts(net)


def build_program(module: nn.Module, training: bool, constants: dict[int, Tensor]) -> Program:
    """A module for training, or for evaluation; it keeps names and shapes of parameters, no values.

    Its buffers are these `constants`, by the ids of the module's.
    """
    hollow = {id(p): nn.Parameter(torch.empty_like(p, device="meta")) for p in module.parameters()}
    net, draws = prepare(module, {**hollow, **constants}, training)
    names = {id(parameter): name for name, parameter in net.named_parameters()}

    def name(parameter: Tensor | None) -> str:
        return "" if parameter is None else names[id(parameter)]

    one, many = itertools.count(), itertools.count()
    layers = [
        Layer(leaf, compile_layer(leaf, name, draws, one), stack_layer(leaf, name, draws, many))
        for leaf in list_layers(net)
        if training or not isinstance(leaf, KeyedDropout)
    ]
    call = _join(layers, name)
    if layers[0].module is net and not isinstance(net, nn.Linear):
        return Program(layers, call, *_split_custom(net, name, draws))
    cut = _find_last_linear(layers)
    if cut is None:
        return Program(layers, call, None, None, ())
    head_names = tuple(name(p) for p in layers[cut].module.parameters())
    return Program(layers, call, _join(layers[:cut], name), _join(layers[cut:], name), head_names)


def _join(layers: list[Layer], name: Name) -> Step:
    one, many = join(layer.step for layer in layers), join(layer.many for layer in layers)
    return Call([layer.module for layer in layers], one, many, name)


def _find_last_linear(layers: list[Layer]) -> int | None:
    """Where the head begins: the last Linear, if nothing after it has parameters."""
    for i in range(len(layers) - 1, -1, -1):
        if any(True for _ in layers[i].module.parameters()):
            return i if isinstance(layers[i].module, nn.Linear) else None
    return None


@runtime_checkable
class Headed(Protocol):
    """A module of a user's own that says where its head begins."""

    head: nn.Module

    def features(self, x: Tensor) -> Tensor: ...


class _Features(nn.Module):
    """Makes a method a forward, which is all that functional_call can call."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net.features(x)  # type: ignore[operator]
        return features.flatten(1)


def _split_custom(
    net: nn.Module, name: Name, draws: Draws
) -> tuple[Step | None, Step | None, tuple[str, ...]]:
    if not isinstance(net, Headed) or not callable(net.features) or not isinstance(net.head, nn.Module):
        return None, None, ()
    head_names = tuple(name(p) for p in net.head.parameters())
    # The same stream as the whole: features then drops what a call drops.
    return wrap_module(_Features(net), name, draws, 0), wrap_module(net.head, name, draws, 1), head_names
