"""Workload W: what every contestant of the training benchmark trains, as plain arrays in one file.

1,000 clients of 40 to 80 rows of 28x28x1, labels by Dirichlet(0.1), 50 clients a round, batches of 10, one
local epoch of plain SGD. Everything comes from one seed: rows, labels, who is asked when, first weights.
Needs NumPy alone, since the peers read it too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Inputs = NDArray[np.float32] | NDArray[np.int64]  # numbers, or letters
Labels = NDArray[np.int64]

SHAPE, CLASSES = (1, 28, 28), 10
MODELS = ("lr", "lenet", "lstm", "transformer", "resnet8")  # the last three are PyTorch's to draw
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {  # of parameters, in PyTorch's layout and order
    "lr": ((10, 784), (10,)),
    "lenet": (
        *((6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,)),
        *((120, 400), (120,), (84, 120), (84,), (10, 84), (10,)),
    ),
}
ALPHA = 0.1  # of the labels
SPREAD = 0.5  # of a row's noise, and of its class's mean


@dataclass(frozen=True, eq=False)
class Workload:
    """Rows of all clients end to end, and who trains in which round."""

    x: Inputs  # [rows, ...]: of W, 1x28x28
    y: Labels  # [rows]
    offsets: NDArray[np.int64]  # [clients + 1]
    cohorts: NDArray[np.int64]  # [rounds, clients a round]; used again from the start when they run out
    weights: dict[str, list[Floats]]  # of every model, at the start
    batch: int = 10
    rate: float = 0.1

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def rows(self, client: int) -> slice:
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def size(self, client: int) -> int:
        return int(self.offsets[client + 1] - self.offsets[client])

    def cohort(self, number: int) -> list[int]:
        """The clients of a round, counted from 0."""
        asked: list[int] = self.cohorts[number % len(self.cohorts)].tolist()
        return asked

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            f"{name}.{i}": w for name, ws in self.weights.items() for i, w in enumerate(ws)
        }
        np.savez(path, x=self.x, y=self.y, offsets=self.offsets, cohorts=self.cohorts, **arrays)

    @classmethod
    def load(cls, path: Path) -> "Workload":
        with np.load(path) as file:
            weights: dict[str, list[Floats]] = {}
            for key in (key for key in file.files if "." in key):
                weights.setdefault(key.partition(".")[0], []).append(file[key])
            return cls(file["x"], file["y"], file["offsets"], file["cohorts"], weights)


def make(
    clients: int = 1_000,
    cohort: int = 50,
    rounds: int = 40,
    smallest: int = 40,
    largest: int = 80,
    seed: int = 1,
) -> Workload:
    """W, or a smaller one. Rows are noise around their class's mean, in coarse pixels: both models learn."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, clients)
    shares = rng.dirichlet([ALPHA] * CLASSES, clients)
    y = np.concatenate([rng.choice(CLASSES, n, p=p) for n, p in zip(sizes, shares, strict=True)])
    means = np.kron(rng.standard_normal((CLASSES, 1, 7, 7), np.float32), np.ones((4, 4), np.float32))
    x = SPREAD * (means[y] + rng.standard_normal((len(y), *SHAPE), np.float32))
    cohorts = np.stack([rng.choice(clients, cohort, replace=False) for _ in range(rounds)])
    weights = {name: _initial(shapes, rng) for name, shapes in SHAPES.items()}
    return Workload(x, y, np.concatenate([[0], np.cumsum(sizes)]), cohorts, weights)


def _initial(shapes: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> list[Floats]:
    """As PyTorch draws them: uniform within 1 / sqrt(inputs), biases too."""
    weights, bound = [], 0.0
    for shape in shapes:
        bound = bound if len(shape) == 1 else float(np.prod(shape[1:])) ** -0.5
        weights.append(rng.uniform(-bound, bound, shape).astype(np.float32))
    return weights
