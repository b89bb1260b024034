"""Potluck's own line in the training benchmark: whole rounds of the simulator, engine included.

FedAvg on a uniform fleet, through one executor (`--executor workers --workers 2`) or through the one that
Potluck chooses itself (`--executor auto --workers 2`: with so many at most). The cohorts are the workload's,
and so are the first weights; nothing is chosen or evaluated while the clock runs.
"""

from dataclasses import replace

import numpy as np
import torch

from bench.contest import Contest
from bench.models import build
from bench.workload import CLASSES, Workload
from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.job import ModelSpec
from potluck.core.messages import Node
from potluck.core.replies import list_weights
from potluck.core.rule import Got
from potluck.data import Pool, StoredPartition
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import EXECUTORS, ExecutionPlan, Executor
from potluck.execute.process import tune_process
from potluck.execute.tune.autotune import Wanted, choose, describe
from potluck.federation import Federation
from potluck.fleet import build as build_fleet
from potluck.jobs import SGD, Shuffled, Train
from potluck.jobs.sampling import Sampler
from potluck.models import Models, register
from potluck.simulate import Simulation
from potluck.simulate.trial import Trial


@value
class Seen:
    """How many rounds were planned, and how many samples each finished one trained on."""

    planned: int = 0
    samples: tuple[int, ...] = ()


@value
class Given:
    """The cohorts of the workload, one after the other."""

    cohorts: tuple[tuple[int, ...], ...]

    def start(self) -> Seen:
        return Seen()

    def pick(self, picks: Seen, count: int, ctx: Context) -> tuple[list[Node], Seen]:
        nodes = list(self.cohorts[picks.planned % len(self.cohorts)])
        return nodes, Seen(picks.planned + 1, picks.samples)

    def jobs(self, local: Train, nodes: list[Node], picks: Seen) -> list[Train]:
        return [local] * len(nodes)

    def learn(self, picks: Seen, got: Got, ctx: Context) -> Seen:
        return Seen(picks.planned, (*picks.samples, round(sum(list_weights(got.replies)))))


def simulation(
    workload: Workload,
    model: str,
    plan: ExecutionPlan,
    rounds: int,
    sampler: Sampler = Shuffled(),
    executor: Executor | None = None,
) -> Simulation:
    """A run of FedAvg on the workload that hasn't begun."""
    register(f"bench_{model}", lambda: build(model, workload.weights[model]))
    local = Train(
        ModelSpec(f"bench_{model}"), sampler=sampler, optim=SGD(workload.rate), batch=workload.batch
    )
    cohorts = tuple(tuple(cohort) for cohort in workload.cohorts.tolist())
    rule = FedAvg(len(cohorts[0]), local, select=Given(cohorts))
    often = EvaluateAt(panel=1)  # at both ends, where no clock runs
    stop = StopAt(rounds=rounds)
    return Simulation(
        federation(workload), rule, seed=1, stop=stop, evaluate=often, plan=plan, executor=executor
    )


def federation(workload: Workload, fleet: str = "uniform", classes: int = CLASSES) -> Federation:
    """Who holds what, as the workload says, on devices of one kind or another."""
    devices, pool = build_fleet(fleet, workload.clients, 1), _pool(workload, classes)
    models = Models(pool.shape, classes, inputs=pool.x.dtype)
    return Federation(pool, _partition(workload), devices, models)


def _pool(workload: Workload, classes: int) -> Pool:
    """The workload's rows, and blank ones to validate and test on, which nobody looks at."""
    rows, blank = len(workload.y), 2 * workload.clients + 1
    # NumPy's, as Potluck's own data are: it asks the system for large pages.
    x = np.zeros((rows + blank, *workload.x.shape[1:]), workload.x.dtype)
    x[:rows] = workload.x
    y = np.zeros(rows + blank, np.int64)
    y[:rows] = workload.y
    test = np.zeros(rows + blank, np.bool_)
    test[-1] = True
    return Pool(torch.from_numpy(x), torch.from_numpy(y), classes, test, None, "W")


def _partition(workload: Workload) -> StoredPartition:
    """Every client trains on its rows of the workload, all of them, and has two blank ones besides."""
    sizes, blank = np.diff(workload.offsets), len(workload.y)
    cells = np.stack([sizes, np.ones_like(sizes), np.ones_like(sizes)], axis=1)
    order = [
        np.concatenate([np.arange(blank)[workload.rows(c)], [blank + 2 * c, blank + 2 * c + 1]])
        for c in range(workload.clients)
    ]
    return StoredPartition(np.concatenate(order), np.concatenate([[0], np.cumsum(cells.reshape(-1))]))


def samples(sim: Simulation) -> tuple[int, ...]:
    """How many samples each finished round trained on."""
    seen: Seen = sim.points[sim.root].own.state.model.picks
    return seen.samples


def main() -> None:
    contest = Contest(__doc__, executor="loop", workers=1, graphs=False, chunk=64)
    asked = contest.options
    plan = ExecutionPlan(asked.executor, asked.workers, asked.chunk, graphs=asked.graphs)
    if plan.executor == "auto":
        base = replace(plan, executor="loop")

        def begin(plan: ExecutionPlan, executor: Executor | None) -> Trial:
            return Trial(simulation(contest.workload, contest.model, plan, 2, executor=executor))

        plan = choose(begin, Wanted(base, EXECUTORS)).plan
        contest.way = describe(plan)
    sim = simulation(contest.workload, contest.model, plan, contest.total + 1)
    with tune_process():
        sim.start()
        contest.start()
        for number in range(1, contest.total + 1):
            while sim.round < number and sim.step():
                pass
            contest.lap(samples(sim)[-1])
    _, params = sim.find_models()["global"]
    sim.close()
    contest.answer([p.numpy() for p in params.values()])


if __name__ == "__main__":
    main()
