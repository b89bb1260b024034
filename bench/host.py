"""What a round costs beside its steps: the engine's part and the executor's, on the linear model.

Captured steps compute nothing here (rows of 4x4, clients of 40 to 80), so all that is left is what is done
for each client: asking, charging, drawing, laying out, checking, hearing, folding. Seconds of this process's
CPU; sizes take turns, so that a machine whose speed changes is as fast for all of them.
"""

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from potluck.algorithms.fedavg import FedAvg
from potluck.core.job import ModelSpec
from potluck.data import Pool
from potluck.data.holding import Cut, build_partition
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.captured.buffers import StepBuffers
from potluck.execute.plan import ExecutionPlan
from potluck.execute.process import tune_process
from potluck.federation import Federation
from potluck.fleet import build
from potluck.jobs import SGD, Train
from potluck.models import Models
from potluck.simulate import Simulation, flocks

SIZES = (50, 200, 1_000, 10_000)  # clients a round; there are twice as many
TURNS, LEAST = 9, 0.05  # seconds of a turn, and a round at least
SIDE, BATCH = 4, 20


def federation(clients: int, fleet: str = "uniform", seed: int = 1) -> Federation:
    """Clients of 40 to 80 rows, nearly all to train on."""
    rng, pixels = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    owner = np.repeat(np.arange(clients), rng.integers(40, 81, clients))
    x = torch.randn(len(owner), 1, SIDE, SIDE, generator=pixels)
    y = torch.randint(0, 10, (len(owner),), generator=pixels)
    pool = Pool(x, y, 10, np.zeros(len(owner), bool), None, "host")
    partition = build_partition(owner, clients, seed, Cut(0.001, 0.001))
    return Federation(pool, partition, build(fleet, clients, seed), Models((1, SIDE, SIDE), 10))


class Rounds:
    """A simulation of FedAvg, and what its rounds take."""

    def __init__(self, clients: int) -> None:
        rule = FedAvg(clients, Train(ModelSpec("linear"), optim=SGD(0.01), batch=BATCH))
        often, stop = EvaluateAt(rounds=10**9, panel=1), StopAt(rounds=10**9)
        plan = ExecutionPlan("stacked", chunk=clients, graphs=True)
        given = federation(2 * clients)
        self.sim = Simulation(given, rule, seed=1, stop=stop, evaluate=often, plan=plan)
        self.clients, self.taken = clients, list[float]()
        self.sim.start()
        for _ in range(3):
            self._take_one()

    def turn(self) -> None:
        """Some rounds, of which the mean is kept."""
        began, rounds = time.process_time(), 0
        while not rounds or time.process_time() - began < LEAST:
            self._take_one()
            rounds += 1
        self.taken.append((time.process_time() - began) / rounds)

    @property
    def seconds(self) -> float:
        return statistics.median(self.taken)

    def _take_one(self) -> None:
        number = self.sim.round
        while self.sim.round == number and self.sim.step():
            pass


@contextmanager
def _few(tasks: float) -> Iterator[None]:
    """Fewer tasks than this aren't a flock."""
    before, flocks.FEW = flocks.FEW, tasks
    try:
        yield
    finally:
        flocks.FEW = before


def measure(sizes: tuple[int, ...] = SIZES, turns: int = TURNS) -> dict[int, tuple[float, float]]:
    """CPU seconds of a round by its number of clients: as it is, and by tasks that start one by one."""
    whole = StepBuffers.step
    StepBuffers.step = lambda self, *_: None  # type: ignore[method-assign]
    try:
        with tune_process():
            made = [(Rounds(clients), Rounds(clients)) for clients in sizes]
            for _ in range(turns):
                for together, alone in made:
                    together.turn()
                    with _few(math.inf):
                        alone.turn()
        for rounds in (rounds for pair in made for rounds in pair):
            rounds.sim.close()
    finally:
        StepBuffers.step = whole  # type: ignore[method-assign]
    return {together.clients: (together.seconds, alone.seconds) for together, alone in made}


def main() -> None:
    print("  clients   ms a round   us a client   of tasks that start one by one")
    for clients, (together, alone) in measure().items():
        each = f"{1e3 * together:10.2f}   {1e6 * together / clients:11.1f}   {together / alone:30.2f}"
        print(f"{clients:9,d}   {each}")
