"""Training speed on a GPU, as fractions of one copy of the model at a large batch: `python -m bench.gpu`.

Needs nothing but torch (and Potluck beside it). Workload W with batches of 20: softmax regression, LeNet-5
and ResNet-8, 50 to 1,000 clients at once. *central* is the same number of rows through one model, in batches
as large as all clients' together, the faster of eager and a CUDA graph: the limit for a simulator. *bare* is
an ordinary loop over the clients. Potluck is timed at three depths: the steps of training (what central and
bare do), a cohort (rows drawn, results taken apart), and whole simulated rounds (events, folding and all).
`--profile` lists the kernels of central and of the steps instead; the rest of the time is waiting for them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bench.workload import SHAPE, Workload, make
from potluck.algorithms.fedavg import FedAvg
from potluck.core import keys
from potluck.core.job import Local, ModelSpec
from potluck.data import Cut, Pool, from_rows
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.captured.buffers import StepCache
from potluck.execute.plan import ExecutionPlan, make_executor
from potluck.execute.reference import Item, Items
from potluck.execute.vectorised.stack import Stack
from potluck.federation import Federation
from potluck.fleet import build
from potluck.jobs import SGD, Train
from potluck.models import Models
from potluck.models.convolve import use_way
from potluck.simulate import Simulation

BATCH = 20
COHORTS = {"linear": (50, 1000), "lenet5": (50, 1000), "resnet8": (50, 200, 1000)}
RATE = 0.01


def seconds(fn: Callable[[], Any], least: float = 0.5, most: int = 30) -> float:
    """Median seconds of a call, after two that don't count."""
    for _ in range(2):
        fn()
    times, began = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < least and len(times) < most):
        torch.cuda.synchronize()
        start = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def central(net: Any, x: torch.Tensor, y: torch.Tensor, rows: int) -> tuple[float, str, Callable[[], None]]:
    """Seconds of a row, of the faster way, and that way."""
    params = net.init(1)
    leaves = [p.requires_grad_() for p in params.values()]
    pick = torch.randint(0, len(x), (rows,), device=x.device)

    def step() -> None:
        loss = F.cross_entropy(net(params, x.index_select(0, pick)), y.index_select(0, pick))
        grads = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            torch._foreach_add_(leaves, list(grads), alpha=-RATE)

    ways: dict[str, Callable[[], None]] = {"eager": step}
    found = {"eager": seconds(step) / rows}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    ways["graph"] = graph.replay
    found["graph"] = seconds(graph.replay) / rows
    best = min(found, key=found.__getitem__)
    return found[best], best, ways[best]


def bare(net: Any, w: Workload, x: torch.Tensor, y: torch.Tensor, clients: int) -> float:
    """Seconds of a row in a loop over some clients, as one would write it."""
    module = net.module(net.init(1)).train()
    start = {k: v.clone() for k, v in module.state_dict().items()}
    some = range(min(clients, 10))

    def loop() -> None:
        for c in some:
            module.load_state_dict(start)
            optim = torch.optim.SGD(module.parameters(), RATE)
            rows = torch.arange(w.offsets[c], w.offsets[c + 1], device=x.device)
            for batch in rows[torch.randperm(len(rows), device=x.device)].split(BATCH):
                optim.zero_grad()
                F.cross_entropy(module(x[batch]), y[batch]).backward()
                optim.step()

    return seconds(loop) / sum(w.size(c) for c in some)


def plans(clients: int, model: str) -> dict[str, ExecutionPlan]:
    base = ExecutionPlan("stacked", device="cuda", chunk=clients)
    out = {"stacked": base, "stacked graph": replace(base, graphs=True)}
    if model != "linear":
        out["kernels"] = replace(base, conv="kernels")
        out["kernels graph"] = replace(base, conv="kernels", graphs=True)
        out["im2col"] = replace(base, conv="im2col")
        out["im2col graph"] = replace(base, conv="im2col", graphs=True)
        if clients <= 200:
            for streams in (8, 32):
                out[f"{streams} streams"] = replace(base, chunk=1, graphs=True, streams=streams)
    return out


def steps(cohort: list[Item], plan: ExecutionPlan, of: Callable[[Callable[[], Any]], Any]) -> Any:
    """Something (seconds, a profile) of all steps of a cohort, its rows drawn and its models begun."""
    items = Items.of(cohort)
    drawn = items.draw()
    order = np.argsort(-drawn.steps, kind="stable")
    with use_way(plan.conv):
        stack = Stack(items.take(order), drawn.take(order))
        if not plan.graphs:
            return of(stack.train)
        replays = StepCache(plan.streams)
        width = plan.chunk if plan.streams > 1 else len(cohort)
        return of(lambda: replays.train(stack, width))


def kernels(fn: Callable[[], Any], rows: int, most: int = 8) -> str:
    """The kernels of a call, those that take longest first, as shares of the time that it takes."""
    wall = seconds(fn, most=10)  # without the profiler, which takes time as well
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        fn()
        torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)
    busy = sum(event.self_device_time_total for event in found) * 1e-6
    out = [f"{1e9 * wall / rows:.1f} ns a row, of which kernels {1e9 * busy / rows:.1f}"]
    for event in found[:most]:
        share = event.self_device_time_total * 1e-6 / wall
        out.append(f"    {share:4.0%} {event.count:5} x {event.self_device_time_total / event.count:8.1f} us "
                   f"{event.key[:90]}")  # fmt: skip
    return "\n".join(out)


def profiled(w: Workload, model: str, clients: int) -> None:
    """Kernels of one central step and of all steps of a cohort."""
    net, cohort, x, y = _crowd(w, model, clients)
    batch = min(clients, 500) * BATCH
    _, how, step = central(net, x, y, batch)
    print(f"\n{model}, {clients} clients, central ({how}): {kernels(step, batch)}")
    way = "stacked graph" if model == "linear" else "kernels graph"
    rows = sum(w.size(c) for c in range(clients))
    told = steps(cohort, plans(clients, model)[way], partial(kernels, rows=rows))
    print(f"{model}, {clients} clients, {way}: {told}", flush=True)


def _crowd(w: Workload, model: str, clients: int) -> tuple[Any, list[Item], torch.Tensor, torch.Tensor]:
    """The model, a cohort that trains it, and all rows."""
    x, y = torch.from_numpy(w.x).cuda(), torch.from_numpy(w.y).cuda()
    models = Models(SHAPE, 10, device="cuda")
    net, job = models[ModelSpec(model)], _job(model)
    inbox, pool = {"params": net.init(1)}, Pool(x, y, 10, np.zeros(len(y), bool), None, "w")
    cohort = []
    for c in range(clients):
        mine = np.arange(w.offsets[c], w.offsets[c + 1])
        cohort.append(Item(job, Local(c, mine, inbox, None, keys.derive(1, c), models, pool)))
    return net, cohort, x, y


def _job(model: str) -> Train:
    return Train(ModelSpec(model), optim=SGD(RATE), batch=BATCH)


def measured(w: Workload, model: str, clients: int, only: list[str] | None) -> Iterator[dict[str, Any]]:
    """Rows a second of every way to train a model for so many clients."""
    net, cohort, x, y = _crowd(w, model, clients)
    limit, how, _ = central(net, x, y, min(clients, 500) * BATCH)
    slow = bare(net, w, x, y, clients)
    print(f"\n{model}, {clients} clients: central {1 / limit:,.0f} rows/s ({how}), bare {1 / slow:,.0f}")
    rows = sum(w.size(c) for c in range(clients))
    for name, plan in plans(clients, model).items():
        if only and name not in only:
            continue
        try:
            alone = steps(cohort, plan, partial(seconds, most=10)) / rows
            executor = make_executor(plan)
            each = seconds(partial(executor.run, cohort), most=10) / rows
            executor.close()
            torch.cuda.empty_cache()
            whole = rounds(w, _job(model), plan, clients)
        except Exception as error:
            print(f"  {name:14} {type(error).__name__}: {str(error)[:300]}")
            continue
        line = f"steps {1 / alone:12,.0f} rows/s, {limit / alone:4.2f} of central, {slow / alone:5.0f}x bare"
        more = (
            f"cohort {1 / each:11,.0f}, {limit / each:4.2f}; rounds {1 / whole:11,.0f}, {limit / whole:4.2f}"
        )
        print(f"  {name:14} {line}; {more}", flush=True)
        rates = {"central": limit, "bare": slow, "steps": alone, "cohort": each, "rounds": whole}
        yield {"model": model, "clients": clients, "way": name} | {k: 1 / v for k, v in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file too")
    parser.add_argument("--models", nargs="*", default=list(COHORTS), choices=list(COHORTS))
    parser.add_argument("--profile", action="store_true", help="list kernels instead")
    parser.add_argument("--only", nargs="*", help="ways to measure; all unless said")
    parser.add_argument("--cohorts", nargs="*", type=int, help="clients at once; a few numbers unless said")
    args = parser.parse_args()
    if args.profile and (args.out or args.only):
        parser.error("--profile prints kernels of the fastest way alone: leave out --out and --only")
    if not torch.cuda.is_available():
        raise SystemExit("bench.gpu: torch sees no GPU here")
    w = make()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, float32, batches of {BATCH}, seed 1")
    found = []
    for model in args.models:
        for clients in args.cohorts or COHORTS[model]:
            if args.profile:
                profiled(w, model, clients)
            else:
                found += measured(w, model, clients, args.only)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))


def rounds(w: Workload, job: Train, plan: ExecutionPlan, clients: int) -> float:
    """Seconds of a row in whole simulated rounds."""
    pool = Pool(torch.from_numpy(w.x), torch.from_numpy(w.y), 10, np.zeros(len(w.y), bool), None, "w")
    rows = [np.arange(w.offsets[c], w.offsets[c + 1]) for c in range(w.clients)]
    partition = from_rows(rows, pool, cut=Cut(0.001, 0.001))
    federation = Federation(pool, partition, build("uniform", w.clients, 1), Models(SHAPE, 10))
    often = EvaluateAt(rounds=1_000_000, panel=1)
    sim = Simulation(
        federation, FedAvg(clients, job), seed=1, stop=StopAt(rounds=1000), evaluate=often, plan=plan
    )
    sim.start()

    def one() -> None:
        number = sim.round
        while sim.round == number and sim.step():
            pass

    each = seconds(one, most=10)
    sim.close()
    return each / (clients * (len(w.y) / w.clients - 2))


if __name__ == "__main__":
    main()
