"""What `bench.gpu` measures beside Potluck, on the same rows: one copy of a model, a loop, and pfl."""

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.gpu_cases import Case
from bench.workload import Workload
from potluck.core import keys
from potluck.core.job import Local, ModelSpec
from potluck.data import Pool
from potluck.execute.reference import Item
from potluck.jobs import SGD, Train
from potluck.models import Models

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
RATE = 0.01
ALONE = 10  # clients of bare's loop: it takes as long for each of them
WARMUP = 4  # rounds: most sizes of stacks have been captured by then


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def seconds(fn: Callable[[], Any], least: float = 0.5, most: int = 30, warmup: int = 2) -> float:
    """Median seconds of a call, after some that don't count."""
    return statistics.median(took for took, _ in laps(fn, least, most, warmup))


def laps(fn: Callable[[], Any], least: float, most: int, warmup: int) -> list[tuple[float, Any]]:
    """Seconds of each call, and what it gave."""
    for _ in range(warmup):
        fn()
    times: list[tuple[float, Any]] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < least and len(times) < most):
        wait()
        start = time.perf_counter()
        given = fn()
        wait()
        times.append((time.perf_counter() - start, given))
    return times


class Crowd:
    """A workload on the device: all rows, and a cohort that trains a model on some."""

    def __init__(self, case: Case, clients: int) -> None:
        self.workload: Workload = case.make(clients)
        self.x, self.y = (torch.from_numpy(a).to(DEVICE) for a in (self.workload.x, self.workload.y))
        self.models = Models(self.x.shape[1:], case.classes, inputs=self.x.dtype, device=DEVICE)
        self.net, self.cohort = self.models[ModelSpec(case.model)], self.workload.cohort(0)
        self.rows = sum(map(self.workload.size, self.cohort))
        self.job = Train(ModelSpec(case.model), optim=SGD(RATE), batch=case.batch)

    def module(self) -> torch.nn.Module:
        """The model as anybody would train it."""
        return self.net.module(self.net.init(1)).train()

    def items(self) -> list[Item]:
        none = np.zeros(len(self.y), bool)
        inbox, pool = {"params": self.net.init(1)}, Pool(self.x, self.y, self.models.classes, none, None, "w")
        of = self.workload.offsets
        return [
            Item(
                self.job,
                Local(c, np.arange(of[c], of[c + 1]), inbox, None, keys.derive(1, c), self.models, pool),
            )
            for c in self.cohort
        ]


class Watch:
    """When each round ended."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def start(self) -> None:
        self.marks.append(time.perf_counter())

    def lap(self, rows: float) -> None:
        self.marks.append(time.perf_counter())


def central(crowd: Crowd, rows: int) -> tuple[float, str, Callable[[], None]]:
    """Seconds of a row, of the faster way, and that way."""
    module, x, y = crowd.module(), crowd.x, crowd.y
    leaves = list(module.parameters())
    pick = torch.randint(0, len(x), (rows,), device=DEVICE)

    def step() -> None:
        loss = F.cross_entropy(module(x.index_select(0, pick)), y.index_select(0, pick))
        grads = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            torch._foreach_add_(leaves, list(grads), alpha=-RATE)

    ways: dict[str, Callable[[], None]] = {"eager": step}
    found = {"eager": seconds(step) / rows}
    if ON_GPU:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        ways["graph"] = graph.replay
        found["graph"] = seconds(graph.replay) / rows
    best = min(found, key=found.__getitem__)
    return found[best], best, ways[best]


def bare(crowd: Crowd, batch: int) -> float:
    """Seconds of a row in a loop over some clients, as one would write it."""
    module, x, y, w = crowd.module(), crowd.x, crowd.y, crowd.workload
    start = {k: v.clone() for k, v in module.state_dict().items()}
    some = crowd.cohort[:ALONE]

    def loop() -> None:
        for c in some:
            module.load_state_dict(start)
            optim = torch.optim.SGD(module.parameters(), RATE)
            rows = torch.arange(int(w.offsets[c]), int(w.offsets[c + 1]), device=DEVICE)
            for taken in rows[torch.randperm(len(rows), device=DEVICE)].split(batch):
                optim.zero_grad()
                F.cross_entropy(module(x[taken]), y[taken]).backward()
                optim.step()

    return seconds(loop) / sum(map(w.size, some))


def pfl(crowd: Crowd, batch: int, rounds: int) -> float | None:
    """Seconds of a row in pfl's rounds, if it is there with what it needs."""
    if importlib.util.find_spec("pfl") is None:
        return None
    try:
        from bench.peers.pfl import train
    except ImportError as error:
        print(f"  pfl is here, but {error}", flush=True)
        return None
    w, watch = crowd.workload, Watch()
    data = {c: (crowd.x[w.rows(c)], crowd.y[w.rows(c)]) for c in range(w.clients)}
    order = [c for number in range(WARMUP + rounds + 2) for c in w.cohort(number)]
    train(data, order, crowd.module(), WARMUP + rounds, len(w.cohorts[0]), batch, RATE, watch)
    wait()
    rows = sum(w.size(c) for n in range(WARMUP, WARMUP + rounds) for c in w.cohort(n))
    return (time.perf_counter() - watch.marks[WARMUP]) / rows
