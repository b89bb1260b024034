"""The event engine alone: task completions a second when jobs do nothing."""

import statistics
import time

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.messages import Command, Task
from potluck.core.rule import Got
from potluck.data import divide, load
from potluck.engine.schedule import StopAt
from potluck.federation import Federation
from potluck.fleet import build
from potluck.models import Models
from potluck.simulate import Simulation

COST, RESULT = Cost(1e6, {}), Result({})


@value
class Nothing:
    """A job of a fixed cost that does nothing."""

    model: ModelSpec = ModelSpec("linear")

    def cost(self, at: Local) -> Cost:
        return COST

    def run(self, at: Local) -> Result:
        return RESULT


@value
class Count:
    """How many rounds there were."""

    round: int = 0


@value
class Idle:
    """Synchronous rounds of jobs that do nothing."""

    clients: int

    def start(self, ctx: Context) -> Count:
        return Count()

    def lanes(self, m: Count, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: Count, lane: None, ctx: Context) -> tuple[Count, list[Command]]:
        job, send = Nothing(), {}
        return m, [Task(n, job, send) for n in ctx.sample(self.clients)]

    def merge(self, m: Count, lane: None, got: Got, ctx: Context) -> tuple[Count, list[Command]]:
        return Count(m.round + 1), []

    def serve(self, m: Count, node: int, ctx: Context) -> dict[str, Task]:
        return {}


def completions(devices: int, clients: int, tasks: int = 200_000) -> float:
    """Task completions a second of wall time."""
    pool = load("digits")
    federation = Federation(
        pool, divide(pool, "procedural", devices, 1), build("mobile", devices, 1), Models(pool.shape, 10)
    )
    sim = Simulation(federation, Idle(clients), seed=1, stop=StopAt(rounds=tasks // clients))
    began = time.perf_counter()
    sim.run()
    return sim.accounts.tasks / (time.perf_counter() - began)


def main() -> None:
    print("per round    tasks/s (median of 3)")
    for devices, clients in ((1_000, 100), (20_000, 10_000)):
        rate = statistics.median(completions(devices, clients) for _ in range(3))
        print(f"{clients:9,d}    {rate:12,.0f}")
