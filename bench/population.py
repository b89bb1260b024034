"""A round must cost what its participants cost: the same round of 100 in populations of 10^3 to 10^6."""

import resource
import statistics
import time

from potluck.algorithms.fedavg import FedAvg
from potluck.core.job import ModelSpec
from potluck.data import divide, load
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.federation import Federation
from potluck.fleet import build
from potluck.jobs import Train
from potluck.models import Models
from potluck.simulate import Simulation

ROUNDS = 10


def rounds(devices: int) -> tuple[float, float]:
    """Seconds of set-up, and the median seconds of a round."""
    began = time.perf_counter()
    pool = load("digits")
    partition = divide(pool, "procedural", devices, 1, smallest=20, largest=60)
    federation = Federation(pool, partition, build("mobile", devices, 1), Models(pool.shape, pool.classes))
    rule = FedAvg(clients=100, local=Train(ModelSpec("mlp")))
    sim = Simulation(federation, rule, seed=1, stop=StopAt(rounds=ROUNDS), evaluate=EvaluateAt(panel=100))
    sim.start()
    ready, times = time.perf_counter(), []
    for number in range(1, ROUNDS):
        start = time.perf_counter()
        while sim.round < number and sim.step():
            pass
        times.append(time.perf_counter() - start)
    return ready - began, statistics.median(times)


def main() -> None:
    print("devices      set-up s   round s   of 10^3   peak MB so far")
    base = 0.0
    for devices in (1_000, 10_000, 100_000, 1_000_000):
        ready, each = rounds(devices)
        base = base or each
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{devices:9,d}    {ready:8.2f}  {each:8.3f}  {each / base:8.2f}   {peak:8,.0f}")
