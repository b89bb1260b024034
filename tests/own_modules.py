"""Modules as others write them, and clients that train them: for tests, and for `gpu_check`."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from potluck.core import keys
from potluck.core.job import Local, ModelSpec
from potluck.execute.reference import Item
from potluck.jobs import SGD, Train
from potluck.models import Models, register

TOKENS, STEPS, WIDTH = 7, 5, 8


class Around(nn.Module):
    """An embedding, something in the middle, a head."""

    def __init__(self, middle, call, **how):
        super().__init__()
        self.tokens, self.middle = nn.Embedding(TOKENS, WIDTH, **how), middle
        self.head, self.call = nn.Linear(WIDTH, TOKENS), call

    def forward(self, x):
        return self.head(self.call(self.middle, self.tokens(x)))


class Block(nn.Module):
    """A block of a small GPT."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.up, self.down, self.drop = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH), nn.Dropout(0.2)

    def forward(self, x):
        rows, steps, width = x.shape
        q, k, v = self.qkv(self.n1(x)).view(rows, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, steps, width))
        return x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))


class GPT(nn.Module):
    """With learnt places, and a head that is the table of tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(STEPS, WIDTH)
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x))[:, -1])


class Adapted(nn.Module):
    """LoRA as published modules write it: around a frozen layer."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, WIDTH, bias=False)

    def forward(self, x):
        return self.base(x) + 0.5 * self.b(self.a(x))


class Masked(nn.Module):
    """Attention that doesn't see padding (token 0), and less of what is far."""

    def __init__(self, weights):
        super().__init__()
        self.tokens, self.weights = nn.Embedding(TOKENS, WIDTH, padding_idx=0), weights
        self.attend, self.head = nn.MultiheadAttention(WIDTH, 2, batch_first=True), nn.Linear(WIDTH, TOKENS)
        far = torch.arange(STEPS)
        self.register_buffer("far", -0.1 * (far[:, None] - far).abs().float())

    def forward(self, x):
        padding = (x == 0) & (torch.arange(STEPS, device=x.device) > 0)  # never all of a row
        h = self.tokens(x)
        seen, _ = self.attend(
            h, h, h, key_padding_mask=padding, need_weights=self.weights, attn_mask=self.far.to(h)
        )
        return self.head(seen.mean(1))


class Biased(nn.Module):
    """Attention with a learnt bias between places, of two heads that share keys."""

    def __init__(self):
        super().__init__()
        self.tokens, self.bias = nn.Embedding(TOKENS, WIDTH), nn.Parameter(torch.randn(STEPS, STEPS))
        self.q, self.kv, self.head = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8), nn.Linear(8, TOKENS)

    def forward(self, x):
        h = self.tokens(x)
        q = self.q(h).view(*x.shape, 2, 4).transpose(1, 2)
        k, v = self.kv(h).view(*x.shape, 1, 8).transpose(1, 2).chunk(2, -1)
        seen = F.scaled_dot_product_attention(q, k, v, self.bias, scale=0.3, enable_gqa=True)
        return self.head(seen.transpose(1, 2).flatten(2)[:, -1])


class Convolved(nn.Module):
    """Convolutions, group norm and a causal one over steps."""

    def __init__(self):
        super().__init__()
        self.tokens, self.one = nn.Embedding(TOKENS, WIDTH), nn.Conv1d(WIDTH, 6, 3, padding=1)
        self.norm, self.two = nn.GroupNorm(2, 6), nn.Conv2d(1, 3, (2, 3), stride=2, padding="valid")
        self.three, self.head = nn.Conv1d(6, 6, 3, padding="same", groups=2), nn.LazyLinear(TOKENS)

    def forward(self, x):
        h = F.relu(self.norm(self.one(self.tokens(x).transpose(1, 2))))
        return self.head(self.two(self.three(h).unsqueeze(1)).flatten(1))


def heads(**how):
    return nn.MultiheadAttention(WIDTH, 2, batch_first=True, **how)


def recurrent(kind, **how):
    return kind(WIDTH, WIDTH, batch_first=True, **how)


def both(kind):
    """In both directions, from a start of its own."""

    def call(middle, h):
        start = h.new_ones(2, len(h), WIDTH // 2)
        out, end = middle(h.transpose(0, 1), (start, start) if kind is nn.LSTM else start)
        end = end[0] if kind is nn.LSTM else end
        return out.mean(0) + end.transpose(0, 1).flatten(1)

    return Around(kind(WIDTH, WIDTH // 2, bidirectional=True), call)


def encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def causal(middle, h):
    mask = nn.Transformer.generate_square_subsequent_mask(h.shape[1]).to(h)
    return middle(h, h, h, attn_mask=mask, is_causal=True, need_weights=False)[0].mean(1)


def frozen(module):
    return module.requires_grad_(False)


def half_frozen(module):
    module.tokens.requires_grad_(False)
    module.head.bias.requires_grad_(False)
    return module


def last(middle, h):
    return middle(h)[0][:, -1]


def mean(middle, h):
    return middle(h).mean(1)


def seen(middle, h):
    return middle(h, h, h)[0].mean(1)


def row_by_row(middle, h):
    return torch.vmap(middle)(h).mean(1)


def unweighted(middle, h):
    return middle(h, h, h, need_weights=False)[0].mean(1)


class Cells(nn.Module):
    """Recurrent cells that are called step by step."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.one, self.two = nn.LSTMCell(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.three = nn.RNNCell(WIDTH, WIDTH)

    def forward(self, x):
        state, h, last = None, None, None
        for step in self.tokens(x).unbind(1):
            state = self.one(step, state)
            h = self.two(state[0], h)
            last = self.three(h, last)
        return self.head(last)


class Others(nn.Module):
    """What is left to vmap."""

    def __init__(self):
        super().__init__()
        self.tokens, self.up = nn.Embedding(TOKENS, WIDTH), nn.ConvTranspose1d(1, 2, 3)
        self.act, self.head = nn.PReLU(), nn.Parameter(torch.randn(2 * WIDTH + 4, TOKENS))

    def forward(self, x):
        return self.act(self.up(self.tokens(x).mean(1).unsqueeze(1))).flatten(1) @ self.head


MODULES = {
    "cells": Cells,
    "others": Others,
    "GPT": GPT,
    "attention with weights": lambda: Around(heads(), seen),
    "attention without": lambda: Around(heads(bias=False), unweighted),
    "attention of other sizes": lambda: Around(
        heads(kdim=4, vdim=6), lambda m, h: m(h, h[..., :4], h[..., :6])[0].mean(1)
    ),
    "attention with rows of its own": lambda: Around(heads(add_bias_kv=True), seen),
    "causal attention": lambda: Around(heads(), causal),
    "masked attention": lambda: Masked(False),
    "masked attention with weights": lambda: Masked(True),
    "biased attention": Biased,
    "encoder": lambda: Around(encoder(), mean),
    "LSTM": lambda: Around(recurrent(nn.LSTM, num_layers=2), last),
    "LSTM without bias": lambda: Around(recurrent(nn.LSTM, bias=False), last),
    "LSTM both ways": lambda: both(nn.LSTM),
    "GRU": lambda: Around(recurrent(nn.GRU, num_layers=2), last),
    "GRU both ways": lambda: both(nn.GRU),
    "RNN": lambda: Around(recurrent(nn.RNN, nonlinearity="relu"), last),
    "RNN both ways": lambda: both(nn.RNN),
    "padding": lambda: Around(nn.Identity(), mean, padding_idx=-2),
    "convolutions": Convolved,
    "a map of its own": lambda: Around(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)), row_by_row
    ),
    "LoRA": lambda: nn.Sequential(
        *(frozen(nn.Embedding(TOKENS, WIDTH)), nn.Flatten()),
        *(Adapted(nn.Linear(WIDTH * STEPS, WIDTH)), nn.Tanh(), nn.Linear(WIDTH, TOKENS)),
    ),
    "LoRA inside": lambda: half_frozen(Around(Adapted(nn.Linear(WIDTH, WIDTH)), mean)),
    "frozen LSTM": lambda: Around(frozen(recurrent(nn.LSTM)), last),
    "probe of a transformer": lambda: nn.Sequential(
        frozen(Around(encoder(), mean)), nn.Linear(TOKENS, TOKENS)
    ),
    "no bias anywhere": lambda: nn.Sequential(
        nn.Flatten(), Floats(), nn.Linear(STEPS, 6, bias=False), nn.Tanh(), nn.Linear(6, TOKENS, bias=False)
    ),
    "padding in a Sequential": lambda: nn.Sequential(
        nn.Embedding(TOKENS, WIDTH, padding_idx=1), nn.Flatten(), nn.Linear(WIDTH * STEPS, TOKENS)
    ),
}  # fmt: skip


class Floats(nn.Module):
    """Tokens as numbers of the model's type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("like", torch.zeros(()))

    def forward(self, x):
        return x.to(self.like.dtype)


class Positive(torch.autograd.Function):
    """A function as others write them: it has no rule for maps."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * (x > 0)


def write(h):
    out = torch.zeros(len(h), WIDTH, dtype=h.dtype, device=h.device)  # no client's own
    out[:, :4] = 2 * h[:, :4]
    return out + h


class Calling(nn.Module):
    """Two layers, and something between them."""

    def __init__(self, call):
        super().__init__()
        self.tokens, self.call = nn.Embedding(TOKENS, WIDTH), call
        self.up, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, x):
        return self.head(self.call(self.up(self.tokens(x).mean(1))))


ALONE = {  # what can't be mapped over clients, but captured
    "a function without a rule": lambda: Calling(Positive.apply),
    "written in place": lambda: Calling(write),
}


def register_all():
    for name, make in (MODULES | ALONE).items():
        register(name.replace(" ", "_"), make)


class Rows:
    """Sixty rows of tokens."""

    def __init__(self, device):
        make = torch.Generator().manual_seed(1)
        self.x = torch.randint(0, TOKENS, (60, STEPS), generator=make).to(device)
        self.y = torch.randint(0, TOKENS, (60,), generator=make).to(device)


def clients(name, dtype=torch.float64, device="cpu"):
    """Four clients of unequal sizes, each with a model of its own."""
    spec, pool = ModelSpec(name.replace(" ", "_")), Rows(device)
    models = Models((STEPS,), TOKENS, dtype, torch.int64, device)
    job, out = Train(spec, optim=SGD(0.1), batch=4, epochs=2), []
    for node, size in enumerate((7, 3, 9, 5)):
        rows, inbox = np.arange(10 * node, 10 * node + size), {"params": models[spec].init(node)}
        out.append(Item(job, Local(node, rows, inbox, None, keys.derive(4, node), models, pool)))
    return out
