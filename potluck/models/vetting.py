"""What a module must be to be trained for many clients at once, tried before anything is trained.

Everything is found by looking at the module or by running it once, so that a wrong model fails here, in one
line, and not in round 37 as a strange number.
"""

import threading
import traceback
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from potluck.core.errors import ModelError
from potluck.models.layers import COUNTED, is_known
from potluck.models.program import Layer, prepare
from potluck.models.zoo.blocks import PlainLSTM

SHAPES = (RuntimeError, ValueError, IndexError)  # what modules raise for rows that don't fit
_OTHERS = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
DRAWING = threading.RLock()  # torch has one random state for all threads


def refuse(module: nn.Module, name: str, frozen: bool) -> None:
    """Refuse what can be seen without running the module."""
    for path, part in module.named_modules():
        at = f"model {name!r}: {type(part).__name__} at {path or 'its root'!r}"
        if isinstance(part, _BatchNorm):
            raise ModelError(
                f"{at} can't be trained here: its statistics leak between clients, break under vmap and are "
                f"corrupted by padding; use nn.GroupNorm(groups, {getattr(part, 'num_features', 'channels')})"
            )
        if getattr(part, "max_norm", None) is not None:
            raise ModelError(f"{at} changes its weights in its forward pass; leave max_norm at None")
    if not any(True for _ in module.parameters()):
        why = "are they all frozen?" if frozen else "did its builder keep them in a list?"
        raise ModelError(f"model {name!r} has no parameters to train; {why}")


def run(module: nn.Module, x: Tensor, name: str) -> Tensor:
    """Call a module; its failure in one line."""
    try:
        out = module(x)
    except Exception as error:  # told in a line; a mistake in its code with its traceback
        why = " ".join(str(error).split())
        raise ModelError(
            f"model {name!r} fails on rows of shape {tuple(x.shape[1:])} ({x.dtype}): "
            f"{type(error).__name__}: {why}{tell_line(error)}"
        ).blame(error, SHAPES) from error
    if not isinstance(out, Tensor):
        raise ModelError(f"model {name!r} returns {type(out).__name__}; it should return a tensor of logits")
    return out


def tell_line(error: Exception) -> str:
    """Where in its file a model's own code failed; nothing of layers of torch's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def try_out(module: nn.Module, x: Tensor, classes: int, name: str) -> None:
    """Refuse what shows when the module runs in training mode, on a batch x that may be written to."""
    net, _ = prepare(module, {}, training=True)
    before = {path: buffer.clone() for path, buffer in net.named_buffers()}
    with DRAWING, torch.no_grad(), torch.random.fork_rng(devices=[]):
        version, state = x._version, torch.random.get_rng_state()
        out = run(net, x, name)
        drew = not torch.equal(state, torch.random.get_rng_state())
    if out.shape != (len(x), classes):
        if out.shape[:-1] == (len(x),):
            wrong = f"gives {out.shape[1]} outputs a row, but the data has {classes} classes"
        else:
            wrong = f"gives {list(out.shape)} for {len(x)} rows, not [{len(x)}, {classes}]"
        raise ModelError(
            f"model {name!r} {wrong}; let its builder take `classes` and end in nn.Linear(..., classes)"
        )
    if drew:
        parts = [
            path for path, part in net.named_modules() if isinstance(getattr(part, "dropout", None), float)
        ]
        hint = f" (set dropout=0 of {', '.join(map(repr, parts))}?)" if parts else ""
        raise ModelError(
            f"model {name!r} draws random numbers of its own, so no run could be repeated; "
            f"use nn.Dropout as a submodule, which is given a key{hint}"
        )
    if x._version != version:
        raise ModelError(f"model {name!r} changes its input in place; copy before writing")
    _refuse_mixing(module, x, name)
    for path, buffer in net.named_buffers():
        if path not in before or not torch.equal(buffer, before[path]):
            raise ModelError(
                f"model {name!r}: buffer {path!r} changes in training (running statistics?), but only "
                f"parameters are trained and sent; turn that off (track_running_stats=False) or use GroupNorm"
            )


def _refuse_mixing(module: nn.Module, x: Tensor, name: str) -> None:
    """Refuse what sees more than a row: batches are padded, put together and taken apart."""
    net, _ = prepare(module, {}, training=False)
    with torch.no_grad():
        together, apart = run(net, x, name), torch.cat([run(net, row, name) for row in x.split(1)])
    if together.isnan().any():
        raise ModelError(
            f"model {name!r} answers NaN before it is trained; look for logarithms, roots and divisions in it"
        )
    if together.shape != apart.shape or not torch.allclose(together, apart, rtol=1e-3, atol=1e-4):
        raise ModelError(
            f"model {name!r} says something else of a row alone than of the same row in a batch; let it see "
            f"every row by itself (no statistics over a batch, and no squeeze() of the batch's dimension)"
        )


def count_ops(module: nn.Module, layers: list[Layer], x: Tensor) -> int:
    """Multiply-accumulates of one forward pass of one row, at least 1; x is a batch."""
    if all(is_known(layer.module) for layer in layers):
        return max(1, _tally(module, x) // len(x))
    net = prepare(module, {}, training=False)[0]
    with torch.no_grad():
        try:
            counted = _flops(net.to("meta"), x[:1].to("meta"))  # cheap, and sees through fused kernels
        except Exception:  # a tensor that is neither parameter nor buffer, or a branch on values
            counted = _flops(prepare(module, {}, training=False)[0], x[:1])
    return max(1, counted // 2)


def _tally(module: nn.Module, x: Tensor) -> int:
    # By hand where that is easy: FlopCounterMode loads torch._dynamo, over a second in every process.
    net = prepare(module, {id(p): p for p in module.parameters()}, training=False)[0]
    total = 0

    def count(layer: nn.Module, _: tuple[Tensor, ...], out: Tensor) -> None:
        nonlocal total
        matrices = [p for p in layer.parameters() if p.ndim > 1]
        units = layer.hidden_size if isinstance(layer, PlainLSTM) else len(matrices[0])
        total += out.numel() // units * sum(p.numel() for p in matrices)

    for layer in net.modules():
        if isinstance(layer, COUNTED):
            layer.register_forward_hook(count)
    with torch.no_grad():
        net(x)
    return total


def _flops(net: nn.Module, x: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        net(x)
    return int(counter.get_total_flops())
