"""Asynchronous against synchronous training: samples a second of the wall clock at equal concurrency.

Tasks wait until a reply falls due on the virtual clock and are then trained together with all others that
have begun, or some time ahead if other processes train, so an asynchronous run should train nearly as fast as
a synchronous one. On a uniform fleet, and on one of phones whose speeds and links have long tails.
"""

import statistics
import time
from collections.abc import Callable, Hashable
from typing import Any

from bench.simulate import federation
from bench.workload import Workload, make
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedbuff import fedbuff
from potluck.core.job import ModelSpec
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.execute.process import tune_process
from potluck.jobs import SGD, Prox, Train
from potluck.simulate import Simulation

AT_ONCE = 50
MU = 0.005  # FedAsync's proximal term; its synchronous counterpart has it too
TURNS = 6  # the rules take turns, so that a machine whose speed changes is as fast for all of them
WARMED = 6  # turns before those: sizes of batches are captured by then
ONE, CAPTURED, TWO = "one process", "one process, captured", "two workers"
PLANS = {  # and how many tasks a turn has
    ("linear", ONE): (ExecutionPlan("stacked", chunk=AT_ONCE), 500),
    ("linear", CAPTURED): (ExecutionPlan("stacked", chunk=AT_ONCE, graphs=True), 500),
    ("linear", TWO): (ExecutionPlan("stacked", workers=2, chunk=AT_ONCE, graphs=True), 500),
    ("lenet5", TWO): (ExecutionPlan("stacked", workers=2, chunk=1, graphs=True), 200),
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


class Runner:
    """A simulation of one rule, and how long its tasks have taken."""

    def __init__(self, workload: Workload, fleet: str, rule: Any, plan: ExecutionPlan) -> None:
        often = EvaluateAt(rounds=10**9, panel=1)
        self.sim = Simulation(
            federation(workload, fleet), rule, seed=1, stop=StopAt(rounds=10**9), evaluate=often, plan=plan
        )
        self.seconds, self.tasks = 0.0, 0
        self.batches: list[int] = []
        training = self.sim.devices.training
        begin: Callable[..., None] = training.begin

        def counted(shape: Hashable, *due: Any) -> None:
            self.batches.append(len(training.pending[shape]))
            begin(shape, *due)

        training.begin = counted  # type: ignore[method-assign]
        self.sim.start()

    def turn(self, tasks: int, timed: bool = True) -> None:
        """So many tasks more."""
        before, began = self.sim.accounts.tasks, time.perf_counter()
        while self.sim.accounts.tasks < before + tasks and self.sim.step():
            pass
        self.sim.devices.training.settle()  # nothing is trained in the turns of others
        if timed:
            self.seconds += time.perf_counter() - began
            self.tasks += self.sim.accounts.tasks - before


def compared(workload: Workload, fleet: str, model: str, by: str) -> dict[str, tuple[float, float]]:
    """Of every rule: tasks a second of wall time, and how many clients were trained together on average."""
    plan, tasks = PLANS[model, by]
    made = rules(model, workload.rate, workload.batch)
    runners = {name: Runner(workload, fleet, rule, plan) for name, (rule, _) in made.items()}
    with tune_process():
        for runner in runners.values():
            runner.turn(WARMED * tasks, timed=False)  # workers start, and devices spread over time
            runner.batches.clear()
        for turn in range(TURNS):
            for runner in list(runners.values())[:: 1 if turn % 2 else -1]:
                runner.turn(tasks)
    for runner in runners.values():
        runner.sim.close()
    return {name: (r.tasks / r.seconds, statistics.mean(r.batches)) for name, r in runners.items()}


def main(passes: int = 3) -> None:
    workload = make()
    a_task = len(workload.y) / workload.clients
    print("| fleet | model | by | rule | samples/s | of synchronous | of passes | trained together |")
    print("|---|---|---|---|---|---|---|---|")
    for fleet in ("uniform", "mobile"):
        for model, by in PLANS:
            found = [compared(workload, fleet, model, by) for _ in range(passes)]
            for name, (_, like) in rules(model, workload.rate, workload.batch).items():
                speed = statistics.median(rates[name][0] for rates in found) * a_task
                together = statistics.mean(rates[name][1] for rates in found)
                ratios = sorted(rates[name][0] / rates[like][0] for rates in found)
                share = f"{statistics.median(ratios):.2f} of {like} | {ratios[0]:.2f}-{ratios[-1]:.2f}"
                told = f"{speed:,.0f} | {'|' if like == name else share} | {together:.1f}"
                print(f"| {fleet} | {model} | {by} | {name} | {told} |", flush=True)
