"""Parts that torch.nn doesn't have, or has in a form that can't be trained for many clients at once.

A network made of these, of torch's layers and of Sequentials runs as straight calls (see layers.py).
"""

import warnings

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.nn import functional as F

# cuDNN would like weights that never change hands; it copies them, and is still 10 times as fast.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


class Residual(nn.Module):
    """The sum of two branches; the second is the input itself unless said."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + self.shortcut(x)
        return out


class Steps(nn.Module):
    """A signal [rows, channels, steps] as a sequence [rows, steps, channels]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Last(nn.Module):
    """The last step of a sequence [rows, steps, features]."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


class PlainLSTM(nn.Module):
    """`nn.LSTM(..., batch_first=True)`: the same weights under the same names, fast under vmap as well.

    It gives the outputs [rows, steps, hidden] alone. Use it in place of `nn.LSTM`, which vmap can only run
    for one client after another.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        bound = hidden_size**-0.5  # drawn as nn.LSTM draws, and in its order
        for k in range(num_layers):
            for name, *rest in (
                ("weight_ih", hidden_size if k else input_size),
                ("weight_hh", hidden_size),
                ("bias_ih",),
                ("bias_hh",),
            ):
                weights = torch.empty(4 * hidden_size, *rest).uniform_(-bound, bound)
                self.register_parameter(f"{name}_l{k}", nn.Parameter(weights))

    def forward(self, x: Tensor) -> Tensor:
        return lstm(x, list(self.parameters()))


def lstm(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Outputs of stacked layers; four weights a layer, in the order of `nn.LSTM`."""
    if peek_interpreter_stack() is not None:
        return plain_lstm(x, weights)
    # Outside of vmap and grad torch's own kernel does: 2 to 10 times as fast, and 10 to 40 times on a GPU.
    layers = len(weights) // 4
    zeros = x.new_zeros(layers, len(x), weights[1].shape[1])
    return torch.lstm(x, (zeros, zeros), weights, True, layers, 0.0, torch.is_grad_enabled(), False, True)[0]


def plain_lstm(x: Tensor, weights: list[Tensor]) -> Tensor:
    """The same by ordinary operations, all of which vmap can batch."""
    for w_ih, w_hh, b_ih, b_hh in zip(*(weights[i::4] for i in range(4)), strict=True):
        entering = F.linear(x, w_ih, b_ih + b_hh).unbind(1)  # for all steps at once
        h = c = x.new_zeros(len(x), w_hh.shape[1])
        outputs = []
        for gates in entering:
            i, f, g, o = torch.addmm(gates, h, w_hh.t()).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        x = torch.stack(outputs, 1)
    return x
