"""How a contestant of the training benchmark is asked and how it answers: one process, one line of JSON.

    python -m bench.bare W.npz lr --warmup 2 --rounds 10 --save after.npz

Needs NumPy alone, since the peers use it too.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.workload import MODELS, Floats, Workload


class Contest:
    """What is asked of a contestant, and its stop-watch."""

    def __init__(self, doc: str | None, **flags: object) -> None:
        """`flags`: further options and their defaults; a bool is a switch."""
        parser = argparse.ArgumentParser(description=doc)
        parser.add_argument("workload", type=Path, help="written by bench.workload")
        parser.add_argument("model", choices=MODELS)
        parser.add_argument("--warmup", type=int, default=2, help="rounds before the clock counts")
        parser.add_argument("--rounds", type=int, default=10, help="rounds that are timed")
        parser.add_argument("--save", type=Path, help="where to put the weights after the last round")
        for name, default in flags.items():
            if isinstance(default, bool):
                parser.add_argument(f"--{name}", action="store_true")
            else:
                parser.add_argument(f"--{name}", type=type(default), default=default)
        self.options = parser.parse_args()
        self.path: Path = self.options.workload
        self.model: str = self.options.model
        self.total: int = self.options.warmup + self.options.rounds
        self.workload = Workload.load(self.path)
        self.weights = self.workload.weights[self.model]
        self.marks: list[float] = []
        self.samples: list[int] = []
        self.way = ""  # how it trains, if that was its own choice

    def start(self) -> None:
        """The first round begins."""
        self.marks = [time.perf_counter()]

    def lap(self, samples: int) -> None:
        """A round has ended, in which so many samples were trained on."""
        self.marks.append(time.perf_counter())
        self.samples.append(int(samples))

    def answer(self, weights: Sequence[Floats]) -> None:
        """Say how long each timed round took, and save the model's weights (PyTorch's layout and order)."""
        if self.options.save is not None:
            np.savez(self.options.save, *weights)
        warmup = self.options.warmup
        seconds = np.diff(self.marks)[warmup:]
        line = {"seconds": [round(s, 6) for s in seconds.tolist()], "samples": self.samples[warmup:]}
        print(json.dumps({**line, "way": self.way}), flush=True)
