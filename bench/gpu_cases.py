"""What `bench.gpu` trains: models, rows of as many clients as there are, and who is asked in which round.

LR, LeNet-5 and ResNet-8 have workload W with batches of 20. *published* is the benchmark that pfl-research
publishes its speed with: CIFAR-10's shapes, a CNN of 1.6 million parameters with dropout, 50 of 1,000 users a
round, 50 rows each in batches of 10, 1,500 rounds. ResNet-18 sees images of the same shape; the transformer,
a module as anybody writes it, and LEAF's LSTM read 80 characters.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import workload
from bench.workload import Workload
from potluck.models import register

LETTERS, STEPS = 80, 80
IMAGE = (3, 32, 32)
FEW = 10  # rounds whose cohorts are drawn; they are used again


@dataclass(frozen=True)
class Case:
    """One model, and how it is trained."""

    title: str
    model: str  # as Potluck knows it
    cohorts: tuple[int, ...]  # clients a round
    make: Callable[[int], Workload]  # of so many clients a round
    ways: tuple[str, ...]  # of `gpu.plans`, the likely fastest first
    batch: int = 20
    classes: int = 10
    rounds: int | None = None  # that the time of the whole is told for
    tf32: bool = False  # also in matrix products, as a user may allow


class Block(nn.Module):
    """A block of a small GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, steps, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, steps, width))
        down: Tensor = self.down(F.gelu(self.up(self.between(x))))
        return x + down


class Letters(nn.Module):
    """A small GPT that tells the next letter: 427,600 parameters."""

    def __init__(self, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Parameter(0.02 * torch.randn(STEPS, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.letters(x) + self.places))[:, -1])
        return logits


def published_cnn() -> nn.Module:
    """1,626,442 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


register("bench_letters", Letters)
register("bench_published", published_cnn)


def make_images(clients: int, cohort: int, smallest: int, largest: int) -> Workload:
    """Clients of images of CIFAR-10's shape, noise."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(smallest, largest + 1, clients)
    x = rng.standard_normal((int(sizes.sum()), *IMAGE), np.float32)
    return _give(x, rng.integers(0, 10, len(x)), sizes, cohort, rng)


def make_letters(clients: int, cohort: int, rows: int) -> Workload:
    """Clients of rows of 80 letters, and the next one, of chance."""
    rng = np.random.default_rng(1)
    sizes = np.full(clients, rows)
    x, y = rng.integers(0, LETTERS, (clients * rows, STEPS)), rng.integers(0, LETTERS, clients * rows)
    return _give(x, y, sizes, cohort, rng)


def _give(
    x: workload.Inputs, y: workload.Labels, sizes: workload.Labels, cohort: int, rng: np.random.Generator
) -> Workload:
    cohorts = np.stack([rng.choice(len(sizes), cohort, replace=False) for _ in range(FEW)])
    return Workload(x, y, np.concatenate([[0], np.cumsum(sizes)]), cohorts, {})


def _w(cohort: int) -> Workload:
    return workload.make(cohort=cohort, rounds=FEW)


def _letters(cohort: int) -> Workload:
    return make_letters(2 * cohort, cohort, 100)


_CONVOLVED = ("kernels graph", "kernels", "im2col graph", "stacked graph")
_LSTM = Case("LSTM", "char_lstm", (50,), _letters, ("stacked graph",), classes=LETTERS)
CASES = {
    "lr": Case("LR", "linear", (50, 1_000), _w, ("stacked graph", "stacked")),
    "lenet": Case("LeNet-5", "lenet5", (50, 1_000), _w, _CONVOLVED),
    "resnet8": Case("ResNet-8", "resnet8", (50, 200, 1_000), _w, _CONVOLVED),
    "published": Case(
        "the published benchmark",
        "bench_published",
        (50,),
        lambda cohort: make_images(20 * cohort, cohort, 50, 50),
        (*_CONVOLVED, "8 streams", "loop"),
        batch=10,
        rounds=1_500,
    ),
    "resnet18": Case(
        "ResNet-18", "resnet18", (10, 50), lambda cohort: make_images(2 * cohort, cohort, 40, 80), _CONVOLVED
    ),
    "transformer": Case(
        "transformer",
        "bench_letters",
        (50,),
        _letters,
        ("stacked graph", "8 streams", "loop"),
        classes=LETTERS,
    ),
    "lstm": _LSTM,
    "lstm_tf32": replace(_LSTM, title="LSTM, TF32", tf32=True),
}


def shrink(name: str, case: Case) -> Case:
    """The same on a few rows, to see that it runs."""

    def make(cohort: int) -> Workload:
        if case.classes == LETTERS:
            return make_letters(cohort + 1, cohort, 5)
        if name in ("lr", "lenet", "resnet8"):
            return workload.make(cohort + 1, cohort, 2, 4, 6)
        return make_images(cohort + 1, cohort, 4, 6)

    return replace(case, cohorts=(2,), make=make, batch=3, rounds=case.rounds and 3)


@contextmanager
def allow_tf32(allowed: bool) -> Iterator[None]:
    """Whether matrix products may be in TF32."""
    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, allowed
    try:
        yield
    finally:
        products.allow_tf32 = before
