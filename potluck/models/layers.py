"""A module as a list of calls that take their parameters from a dict.

`torch.func.functional_call` swaps every parameter in and out of the module, which costs more than a small
layer itself. A Sequential needs none of that: its layers are called one after another, straight into torch.
Whatever isn't known by its type is lent its parameters for a call, layer by layer.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn import functional as F

from potluck.core.keys import fold_in
from potluck.core.trees import Params
from potluck.models.conv_pool import MOST_CHANNELS, convolve_and_pool, fits
from potluck.models.dropout import Draws, KeyedDropout
from potluck.models.mapped_functions import call
from potluck.models.stacked_functions import embed
from potluck.models.zoo.blocks import PlainLSTM, Residual, lstm

Step = Callable[[Params, Tensor, Tensor | None], Tensor]
Name = Callable[[Tensor | None], str]  # a parameter's name in the whole model; "" for one that isn't there


def list_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a Sequential, in order; a single one for any other module."""
    if (
        isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and is_plain(module)
    ):
        return [leaf for child in module for leaf in list_layers(child)]
    return [module]


def join(steps: Iterable[Step]) -> Step:
    """Calls one after another, as one."""
    steps = tuple(_merge(steps))

    def run(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        for step in steps:
            x = step(params, x, key)
        return x

    return steps[0] if len(steps) == 1 else run


def _merge(steps: Iterable[Step]) -> list[Step]:
    """Convolutions and the maxima right after them as one call, where that is faster."""
    merged: list[Step] = []
    for step in steps:
        before = merged[-1] if merged else None
        if isinstance(step, _MaxPool2d) and step.by_two and isinstance(before, _Conv) and before.small:
            merged[-1] = _ConvPool(before, step)
        else:
            merged.append(step)
    return merged


def compile_layer(leaf: nn.Module, name: Name, draws: Draws, streams: Iterator[int]) -> Step:
    """One layer as a call; `streams` numbers the layers, so that no two dropouts share a mask."""
    stream = next(streams)
    if isinstance(leaf, KeyedDropout):
        return _dropout(leaf, stream)
    if is_plain(leaf):
        if type(leaf) is Residual:
            return _residual(leaf, name, draws, streams)
        if type(leaf) in _COMPILERS:
            return _COMPILERS[type(leaf)](leaf, name)
        if _is_stateless(leaf):
            return _call_forward(leaf)
    return wrap_module(leaf, name, draws, stream)


def is_known(leaf: nn.Module) -> bool:
    """Whether only those of COUNTED can be what costs time in a layer."""
    if type(leaf) is Residual:
        return all(map(is_known, [*list_layers(leaf.body), *list_layers(leaf.shortcut)]))
    ours = type(leaf).__module__.startswith(("torch.nn.", "potluck.models.zoo.blocks"))
    return (type(leaf) in _COMPILERS and not leaf._buffers) or (_is_stateless(leaf) and ours)


def wrap_module(module: nn.Module, name: Name, draws: Draws, stream: int) -> Step:
    """Any module. It is lent its tensors, so threads can't share it; `functional_call` would do that too, but
    looks for their places each time."""
    places: list[tuple[dict[str, Any], str, str]] = [
        (part._parameters, inner, name(parameter))  # tied ones have several
        for part in module.modules()
        for inner, parameter in part._parameters.items()
        if parameter is not None
    ]
    constants = [
        (part._buffers, inner, buffer)
        for part in module.modules()
        for inner, buffer in part._buffers.items()
        if buffer is not None
    ]
    on: dict[torch.device, list[Tensor]] = {}
    draws_any = any(isinstance(part, KeyedDropout) for part in module.modules())

    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        if constants and x.device not in on:
            with temporarily_clear_interpreter_stack():  # what is kept mustn't belong to a passing vmap
                on[x.device] = [buffer.to(x.device) for _, _, buffer in constants]
        if key is not None and draws_any:
            draws.key, draws.count = fold_in(key, stream), 0
        own = [there[inner] for there, inner, _ in places]
        try:
            for there, inner, outer in places:
                there[inner] = params[outer]
            for (there, inner, _), buffer in zip(constants, on.get(x.device, ()), strict=True):
                there[inner] = buffer
            out: Tensor = call(module, x)
            return out
        finally:
            draws.key = None
            for (there, inner, _), parameter in zip(places, own, strict=True):
                there[inner] = parameter

    return step


def is_plain(module: nn.Module) -> bool:
    """Whether calling a module is calling its forward with its parameters."""
    hooks = module._forward_hooks or module._forward_pre_hooks  # weight_norm, for one, works by a hook
    return not (hooks or module._buffers)  # frozen ones


def _is_stateless(leaf: nn.Module) -> bool:
    return not (leaf._parameters or leaf._buffers or leaf._modules)


def _call_forward(leaf: nn.Module) -> Step:
    forward = leaf.forward  # without the hooks that __call__ looks for
    if type(leaf).__module__.startswith("torch.nn."):
        return lambda params, x, key: forward(x)
    return lambda params, x, key: call(forward, x)  # attention, perhaps


def _residual(leaf: Residual, name: Name, draws: Draws, streams: Iterator[int]) -> Step:
    body, shortcut = (
        join(compile_layer(part, name, draws, streams) for part in list_layers(branch))
        for branch in (leaf.body, leaf.shortcut)
    )
    return lambda params, x, key: body(params, x, key) + shortcut(params, x, key)


def _dropout(leaf: KeyedDropout, stream: int) -> Step:
    def step(params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        return x if key is None or leaf.p == 0 else leaf.drop(x, fold_in(key, stream))

    return step


def _linear(leaf: nn.Linear, name: Name) -> Step:
    w, b = name(leaf.weight), name(leaf.bias)
    if not b:
        return lambda params, x, key: F.linear(x, params[w])
    return lambda params, x, key: F.linear(x, params[w], params[b])


def _conv(leaf: nn.Conv1d | nn.Conv2d, name: Name) -> Step:
    if leaf.padding_mode != "zeros":
        w, b, pad = name(leaf.weight), name(leaf.bias), leaf._conv_forward
        return lambda params, x, key: pad(x, params[w], params[b] if b else None)
    return _Conv(leaf, name)


class _Conv:
    def __init__(self, leaf: nn.Conv1d | nn.Conv2d, name: Name) -> None:
        self.weight, self.bias = name(leaf.weight), name(leaf.bias)
        self.conv: Callable[..., Tensor] = torch.conv2d if isinstance(leaf, nn.Conv2d) else torch.conv1d
        self.how = leaf.stride, leaf.padding, leaf.dilation, leaf.groups
        plain = (leaf.stride, leaf.dilation, leaf.groups) == ((1, 1), (1, 1), 1)
        self.small: tuple[int, int] | None = None  # its padding, if maxima are better taken along with it
        if plain and isinstance(leaf.padding, tuple) and leaf.in_channels <= MOST_CHANNELS:
            self.small = leaf.padding[0], leaf.padding[1]

    def __call__(self, params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        return self.conv(x, params[self.weight], params[self.bias] if self.bias else None, *self.how)


def _group_norm(leaf: nn.GroupNorm, name: Name) -> Step:
    w, b, groups, eps = name(leaf.weight), name(leaf.bias), leaf.num_groups, leaf.eps
    return lambda params, x, key: F.group_norm(
        x, groups, params[w] if w else None, params[b] if b else None, eps
    )


def _layer_norm(leaf: nn.LayerNorm, name: Name) -> Step:
    w, b, shape, eps = name(leaf.weight), name(leaf.bias), leaf.normalized_shape, leaf.eps
    return lambda params, x, key: F.layer_norm(
        x, shape, params[w] if w else None, params[b] if b else None, eps
    )


def _embedding(leaf: nn.Embedding, name: Name) -> Step:
    w, pad = name(leaf.weight), leaf.padding_idx
    return lambda params, x, key: embed(x, params[w], pad)


def _lstm(leaf: PlainLSTM, name: Name) -> Step:
    names = [name(parameter) for parameter in leaf.parameters()]
    return lambda params, x, key: lstm(x, [params[n] for n in names])


def _max_pool2d(leaf: nn.MaxPool2d, name: Name) -> Step:
    return _call_forward(leaf) if leaf.return_indices else _MaxPool2d(leaf)


class _MaxPool2d:
    def __init__(self, leaf: nn.MaxPool2d) -> None:
        # F.max_pool2d chooses between two functions in Python first.
        self.how = leaf.kernel_size, leaf.stride, leaf.padding, leaf.dilation, leaf.ceil_mode
        sizes = [side if isinstance(side, tuple) else (side, side) for side in self.how[:4]]
        self.by_two = sizes == [(2, 2), (2, 2), (0, 0), (1, 1)] and not leaf.ceil_mode

    def __call__(self, params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        return torch.max_pool2d(x, *self.how)


class _ConvPool:
    def __init__(self, conv: _Conv, pool: _MaxPool2d) -> None:
        self.conv, self.pool = conv, pool

    def __call__(self, params: Params, x: Tensor, key: Tensor | None) -> Tensor:
        conv = self.conv
        if conv.small is None or not fits(x):
            return self.pool(params, conv(params, x, key), key)
        bias = params[conv.bias] if conv.bias else None
        return convolve_and_pool(x, params[conv.weight], bias, conv.small)


def _flatten(leaf: nn.Flatten, name: Name) -> Step:
    # In one piece: where rows lie apart (see `conv_pool`), the next layer takes many times as long.
    start, end = leaf.start_dim, leaf.end_dim
    return lambda params, x, key: x.flatten(start, end).contiguous()


def _relu(leaf: nn.ReLU, name: Name) -> Step:
    return lambda params, x, key: torch.relu(x)


def _tanh(leaf: nn.Tanh, name: Name) -> Step:
    return lambda params, x, key: torch.tanh(x)


# By exact type: a subclass may compute something else. Those without parameters that aren't here (GELU,
# AvgPool2d, AdaptiveAvgPool2d, ...) need nothing but their forward.
_COMPILERS: dict[type[nn.Module], Callable[[Any, Name], Step]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    PlainLSTM: _lstm,
    nn.MaxPool2d: _max_pool2d,
    nn.Flatten: _flatten,
    nn.ReLU: _relu,
    nn.Tanh: _tanh,
}
COUNTED = (nn.Linear, nn.Conv1d, nn.Conv2d, PlainLSTM)
