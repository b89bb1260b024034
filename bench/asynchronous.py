"""Asynchronous against synchronous training: samples a second of the wall clock at equal concurrency.

Tasks wait until a reply falls due on the virtual clock and are then trained together with all others that
have begun, so an asynchronous run should train nearly as fast as a synchronous one. On a uniform fleet, and
on one of phones whose speeds and links have long tails.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.simulate import federation
from bench.workload import Workload, make
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedbuff import fedbuff
from potluck.contracts import ModelSpec
from potluck.jobs import SGD, Prox, Train
from potluck.runtime import EvaluateAt, ExecutionPlan, Simulation, StopAt
from potluck.runtime.process import tuned_process

AT_ONCE = 50
MU = 0.005  # FedAsync's proximal term; its synchronous counterpart has it too
PLANS = {
    "linear": (ExecutionPlan("stacked", chunk=AT_ONCE), 4000),  # and how many tasks are timed
    "lenet5": (ExecutionPlan("workers", workers=2), 400),
}


def rules(model: str, rate: float, batch: int) -> dict[str, tuple[Any, str]]:
    """Every rule, and the synchronous one that trains the same jobs."""
    local = Train(ModelSpec(model), optim=SGD(rate), batch=batch)
    near = Train(ModelSpec(model), Prox(MU), optim=SGD(rate), batch=batch)
    return {
        "FedAvg": (FedAvg(AT_ONCE, local), "FedAvg"),
        "FedBuff": (fedbuff(local, AT_ONCE), "FedAvg"),
        "FedProx": (FedAvg(AT_ONCE, near), "FedProx"),
        "FedAsync": (fedasync(local, AT_ONCE, mu=MU), "FedProx"),
    }


def rate(workload: Workload, fleet: str, rule: Any, plan: ExecutionPlan, tasks: int) -> tuple[float, float]:
    """Samples a second of wall time, and how many clients were trained together on average."""
    world = federation(workload, fleet)
    often = EvaluateAt(rounds=10**9, panel=1)
    sim = Simulation(world, rule, seed=1, stop=StopAt(rounds=10**9), evaluate=often, plan=plan)
    batches: list[int] = []
    run: Callable[[Any], Any] = sim.executor.run
    sim.executor.run = lambda items: (batches.append(len(items)), run(items))[1]  # type: ignore[method-assign]
    with tuned_process():
        sim.start()
        _until(sim, tasks // 4)  # workers start, and asynchronous devices spread over time
        batches.clear()
        before, began = sim.accounts.tasks, time.perf_counter()
        _until(sim, before + tasks)
        seconds = time.perf_counter() - began
    done = sim.accounts.tasks - before
    sim.close()
    return done * len(workload.y) / workload.clients / seconds, statistics.mean(batches)


def _until(sim: Simulation, tasks: int) -> None:
    while sim.accounts.tasks < tasks and sim.step():
        pass


def main(passes: int = 3) -> None:
    workload = make()
    print("fleet     model    rule       samples/s   of synchronous   clients trained together")
    for fleet in ("uniform", "mobile"):
        for model, (plan, tasks) in PLANS.items():
            found: dict[str, list[tuple[float, float]]] = {}
            for _ in range(passes):
                for name, (rule, _like) in rules(model, workload.rate, workload.batch).items():
                    found.setdefault(name, []).append(rate(workload, fleet, rule, plan, tasks))
            speed = {name: statistics.median(r for r, _ in runs) for name, runs in found.items()}
            for name, (_rule, like) in rules(model, workload.rate, workload.batch).items():
                together = statistics.mean(t for _, t in found[name])
                share = "" if like == name else f"{speed[name] / speed[like]:.2f} of {like}"
                print(f"{fleet:9} {model:8} {name:9} {speed[name]:10,.0f}   {share:14}   {together:6.1f}")
