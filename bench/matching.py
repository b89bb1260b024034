"""Check-ins at a coordinator of cohorts: devices asked, their requests made, sent and matched to leaves.

A part of the devices has a record of four cohorts, as after some rounds; the others know nothing. Nobody
trains: what is timed is the invitation, the device's choice, the messages on the clock, and the matching.
"""

import statistics
import time
from typing import Any

import numpy as np

from potluck.algorithms.auxo.algorithm import DOOR, Auxo
from potluck.algorithms.auxo.device import SLOT
from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.job import ModelSpec
from potluck.core.messages import Command
from potluck.data import divide, load
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.process import tune_process
from potluck.federation import Federation
from potluck.fleet import build
from potluck.jobs import Train
from potluck.models import Models
from potluck.simulate import Simulation

ASKED = 50_000
LEAVES = ("0", "1", "2", "3")
RECORDED = 100_000  # devices that remember something
PASSES = 3


@value
class Door(Auxo):
    """Nobody trains."""

    def plan(self, m: Any, lane: str, ctx: Context) -> tuple[Any, list[Command]]:
        return Auxo.plan(self, m, lane, ctx) if lane == DOOR else (m, [])


def matched(devices: int, seed: int) -> tuple[int, float]:
    """How many check-ins were matched, and the seconds that it took."""
    pool = load("digits")
    partition = divide(pool, "procedural", devices, 1, smallest=20, largest=60)
    federation = Federation(pool, partition, build("mobile", devices, 1), Models(pool.shape, pool.classes))
    rule = Door(FedAvg(local=Train(ModelSpec("linear"))), clients=ASKED, found=LEAVES)
    sim = Simulation(federation, rule, seed=seed, stop=StopAt(rounds=1), evaluate=EvaluateAt(panel=1))
    rng = np.random.default_rng(seed)
    for node in rng.choice(devices, min(RECORDED, devices // 2), replace=False).tolist():
        fits = dict(zip(LEAVES, rng.normal(size=len(LEAVES)).tolist(), strict=True))
        sides = {leaf: {2: 0, 3: 1, 4: 2} for leaf in LEAVES}
        sim.memories.put(node, SLOT, {"reward": fits, "side": sides, "times": {"0": 2}})
    with tune_process():
        began = time.perf_counter()
        sim.start()
        while not any((queue := sim.points[sim.root].own.state.model.queue).values()):
            sim.step()  # the door's barrier closes when all have checked in
        return sum(map(len, queue.values())), time.perf_counter() - began


def main() -> None:
    print(f"{ASKED:,} check-ins at once, four cohorts; median and span of {PASSES} passes")
    for devices in (100_000, 1_000_000):
        rates = [count / seconds for count, seconds in (matched(devices, s) for s in range(1, PASSES + 1))]
        low, middle, high = min(rates), statistics.median(rates), max(rates)
        print(f"{devices:9,d} devices: {middle:8,.0f} a second ({low:,.0f} to {high:,.0f})")
