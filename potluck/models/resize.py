"""Parameters of a wide model for a narrow variant of it, and back: the first channels of every layer.

A tier of Fed-RAC or a rate of HeteroFL is a `ModelSpec` of smaller width (or depth). The big and the small
model keep their shapes to themselves; here is only how one lies inside the other. Tensors may be stacks, with
clients as leading dimensions. A layer that reads a concatenation of others (DenseNet, a bidirectional LSTM,
attention with several heads) has no such first channels: don't slice it.
"""

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from potluck.core.errors import ModelError
from potluck.core.job import ModelSpec, Net
from potluck.core.trees import Params
from potluck.models.functional import Model, Models


def as_model(net: Net) -> Model:
    """The same net, if it is one of those whose shapes can be seen."""
    if not isinstance(net, Model):
        raise ModelError(f"{type(net).__name__} isn't one of potluck's models, so no part of it can be cut")
    return net


def build_part(big: Model, spec: ModelSpec) -> Model:
    """A smaller model for the same rows: for those who are at work on the big one, and have no `Models`."""
    return _build_part(spec, big.shape, big.vocabulary, big.dtype, big.inputs, big.device)


@lru_cache(maxsize=64)
def _build_part(
    spec: ModelSpec,
    shape: tuple[int, ...],
    classes: int,
    dtype: torch.dtype,
    inputs: torch.dtype,
    device: str,
) -> Model:
    return Models(shape, classes, dtype, inputs, device)[spec]


def cut_params(params: Params, big: Model, small: Model) -> Params:
    """The small model's part of the big model's parameters: their first channels; views where possible."""
    _check_fit(big, small)
    return {name: _slice(params[name], name, big, small) for name in small.shapes}


def pad_params(params: Params, big: Model, small: Model) -> Params:
    """The small model's parameters at their places in the big model; zeros elsewhere."""
    _check_fit(big, small)
    one, like = next((params[name], shape) for name, shape in small.shapes.items())
    lead = one.shape[: one.ndim - len(like)]
    return {
        name: _pad(params[name], name, big, small) if name in small.shapes else one.new_zeros(*lead, *shape)
        for name, shape in big.shapes.items()
    }


def _slice(tensor: Tensor, name: str, big: Model, small: Model) -> Tensor:
    lead = tensor.shape[: tensor.ndim - len(big.shapes[name])]
    first = tuple(slice(n) for n in (*lead, *_split_gates(small, name)))
    return tensor.reshape(*lead, *_split_gates(big, name))[first].reshape(*lead, *small.shapes[name])


def _pad(tensor: Tensor, name: str, big: Model, small: Model) -> Tensor:
    lead = tensor.shape[: tensor.ndim - len(small.shapes[name])]
    inner, outer = _split_gates(small, name), _split_gates(big, name)
    missing = [n for s, b in zip(reversed(inner), reversed(outer), strict=True) for n in (0, b - s)]
    return F.pad(tensor.reshape(*lead, *inner), missing).reshape(*lead, *big.shapes[name])


def _split_gates(model: Model, name: str) -> tuple[int, ...]:
    """A parameter's shape, with gates that are stacked in its first dimension apart."""
    shape, gates = model.shapes[name], model.gates.get(name, 1)
    return shape if gates == 1 else (gates, shape[0] // gates, *shape[1:])


def _check_fit(big: Model, small: Model) -> None:
    def refuse(why: str) -> ModelError:
        return ModelError(f"{small.spec} isn't part of {big.spec}: {why}")

    # Where layers are numbered through (mlp), a shallower model's head has the name of a hidden layer.
    if replace(big.spec, width=small.spec.width) != small.spec and big.head_names != small.head_names:
        raise refuse(f"its head is {small.head_names}, not {big.head_names}; change the width only")
    for name, shape in small.shapes.items():
        whole = big.shapes.get(name)
        if whole is None or len(whole) != len(shape) or any(map(int.__gt__, shape, whole)):
            raise refuse(f"{name!r} has shape {shape} in it and {whole} in the bigger one")
