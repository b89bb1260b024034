"""Whole rounds on a GPU, as fractions of one copy of the model at a large batch: `python -m bench.gpu`.

Needs torch, safetensors and annotated-types alone (and Potluck beside it); gpu_cases.py says what is trained.
*central* is the same number of rows through one model, in batches as large as all clients' together (at most
10,000), the faster of eager and a CUDA graph: the limit for a simulator. *bare* is an ordinary loop over the
clients. Rounds are the simulator's own, events, folding and all; with `--depths` the steps of training alone
(what central and bare do) and a cohort (rows drawn, results taken apart) are timed beside them.

All of it takes about half an hour; in pieces, which end by themselves and keep what they have:

    python -m bench.gpu --models lr lenet resnet8 --seconds 500 --out a.json
    python -m bench.gpu --models published resnet18 --seconds 500 --out b.json
    python -m bench.gpu --models transformer lstm lstm_tf32 --seconds 500 --out c.json
    python -m bench.gpu --read a.json b.json c.json

Where pfl can be imported, it trains the published benchmark, too. It can be carried to a machine that has
SciPy but no network: `pip install --no-deps --target carry pfl==0.6.0 multiprocess dill prv-accountant
dp-accounting absl-py attrs annotated-types`, and PYTHONPATH=carry there.

`--profile` lists the kernels of central and of the steps instead; the rest of the time is waiting for them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu_beside import (
    DEVICE,
    ON_GPU,
    WARMUP,
    Crowd,
    bare,
    central,
    laps,
    pfl,
    seconds,
    wait,
)
from bench.gpu_cases import CASES, Case, allow_tf32, shrink
from bench.simulate import Given, federation, samples
from bench.workload import Workload
from potluck.algorithms.fedavg import FedAvg
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.captured.buffers import StepCache
from potluck.execute.plan import ExecutionPlan, make_executor
from potluck.execute.process import tune_process
from potluck.execute.reference import Item, Items
from potluck.execute.vectorised.stack import Stack
from potluck.jobs import Train
from potluck.models.convolve import use_way
from potluck.simulate import Simulation

LARGEST = 10_000  # rows of central's batch
PEERS = 100  # rounds of pfl: its whole is that many times as long


def plan(way: str, clients: int) -> ExecutionPlan:
    """The plan of a way: `loop`, `8 streams`, or how to convolve and whether steps are captured."""
    if way == "loop":
        return ExecutionPlan("loop", device=DEVICE)
    base = ExecutionPlan("stacked", device=DEVICE, chunk=clients)
    if way.endswith("streams"):
        streams = int(way.split()[0]) if ON_GPU else 1
        return replace(base, chunk=1, graphs=True, streams=streams)
    conv = way.removesuffix(" graph")
    return replace(base, conv="grouped" if conv == "stacked" else conv, graphs=way.endswith("graph"))


def rounds(case: Case, w: Workload, job: Train, how: ExecutionPlan) -> dict[str, float]:
    """Seconds of a row in whole simulated rounds, of a round, and of all that the case asks for."""
    clients = len(w.cohorts[0])
    rule = FedAvg(clients, job, select=Given(tuple(map(tuple, w.cohorts.tolist()))))
    often, stop = EvaluateAt(rounds=10**9, panel=1), StopAt(rounds=10**9)
    given = federation(w, classes=case.classes)
    sim = Simulation(given, rule, seed=1, stop=stop, evaluate=often, plan=how)

    def one() -> int:
        number = sim.round
        while sim.round == number and sim.step():
            pass
        return samples(sim)[-1]

    with tune_process():
        sim.start()
        took = laps(one, 1.0, 20, WARMUP)
        found = {"rounds": statistics.median(t / rows for t, rows in took)}
        found["ms"] = 1e3 * statistics.median(t for t, _ in took)
        if case.rounds is not None and how.executor != "loop":
            wait()
            began = time.perf_counter()
            rows = sum(one() for _ in range(case.rounds))
            wait()
            found["whole"] = time.perf_counter() - began
            found["rounds"] = found["whole"] / rows
    sim.close()
    return found


def depths(crowd: Crowd, how: ExecutionPlan) -> dict[str, float]:
    """Seconds of a row in the steps alone, and in a cohort."""
    items = crowd.items()
    executor = make_executor(how)
    found = {"cohort": seconds(partial(executor.run, items), most=10) / crowd.rows}
    executor.close()
    if how.executor == "stacked":
        found["steps"] = steps(items, how, partial(seconds, most=10)) / crowd.rows
    return found


def steps(cohort: list[Item], how: ExecutionPlan, of: Callable[[Callable[[], Any]], Any]) -> Any:
    """Something (seconds, a profile) of all steps of a cohort, its rows drawn and its models begun."""
    items = Items.of(cohort)
    drawn = items.draw()
    order = np.argsort(-drawn.steps, kind="stable")
    with use_way(how.conv):
        stack = Stack(items.take(order), drawn.take(order))
        if not how.graphs:
            return of(stack.train)
        replays = StepCache(how.streams)
        width = min(how.chunk, len(cohort))
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


def profiled(case: Case, clients: int) -> None:
    """Kernels of one central step and of all steps of a cohort."""
    crowd = Crowd(case, clients)
    batch = min(clients * case.batch, LARGEST)
    _, how, step = central(crowd, batch)
    print(f"\n{case.title}, {clients} clients, central ({how}): {kernels(step, batch)}")
    told = steps(crowd.items(), plan(case.ways[0], clients), partial(kernels, rows=crowd.rows))
    print(f"{case.title}, {clients} clients, {case.ways[0]}: {told}", flush=True)


def measured(case: Case, clients: int, ways: Sequence[str], deep: bool) -> Iterator[dict[str, Any]]:
    """Rows a second of every way to train a model for so many clients; asked one by one."""
    crowd = Crowd(case, clients)
    limit, how, _ = central(crowd, min(clients * case.batch, LARGEST))
    slow = bare(crowd, case.batch)
    print(f"\n{case.title}, {clients} clients: central {1 / limit:,.0f} rows/s ({how}), bare {1 / slow:,.0f}")
    line: dict[str, Any] = {"model": case.title, "clients": clients}
    line |= {"central": 1 / limit, "bare": 1 / slow}
    if case.rounds is not None and (peer := pfl(crowd, case.batch, min(PEERS, case.rounds))) is not None:
        whole = peer * case.rounds * crowd.rows
        print(f"  pfl: rounds {1 / peer:,.0f} rows/s, {limit / peer:.2f} of central; "
              f"{case.rounds:,} rounds would take {whole / 60:.2f} minutes")  # fmt: skip
        yield line | {"way": "pfl", "rounds": 1 / peer, "whole": whole}
    for way in ways:
        try:
            found = rounds(case, crowd.workload, crowd.job, plan(way, clients))
            more = depths(crowd, plan(way, clients)) if deep else {}
        except Exception as error:
            print(f"  {way:14} {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        each = found.pop("rounds")
        told = f"rounds {1 / each:12,.0f} rows/s, {found['ms']:8.2f} ms, {limit / each:4.3f} of central"
        told += f", {slow / each:6.1f}x bare"
        if "whole" in found:
            told += f"; {case.rounds:,} rounds in {found['whole'] / 60:.2f} minutes"
        told += "".join(f"; {name} {1 / took:,.0f}, {limit / took:.3f}" for name, took in more.items())
        print(f"  {way:14} {told}", flush=True)
        yield (
            line | {"way": way, "rounds": 1 / each} | found | {name: 1 / took for name, took in more.items()}
        )
        if ON_GPU:
            torch.cuda.empty_cache()


def tabulate(found: list[dict[str, Any]]) -> str:
    """The fastest way of each case; in Markdown, for docs/performance.md."""
    best: dict[tuple[str, int, bool], dict[str, Any]] = {}
    for line in found:
        name = line["model"], line["clients"], line["way"] == "pfl"
        if name not in best or best[name]["rounds"] < line["rounds"]:
            best[name] = line
    out = ["| model | clients | bare | central | rounds | of central | times bare | way | minutes in all |"]
    out.append("|---|---|---|---|---|---|---|---|---|")
    for line in best.values():
        rate, limit, slow = line["rounds"], line["central"], line["bare"]
        whole = f"{line['whole'] / 60:.2f}" if "whole" in line else ""
        out.append(f"| {line['model']} | {line['clients']:,} | {slow:,.0f} | {limit:,.0f} | {rate:,.0f} | "
                   f"{rate / limit:.3f} | {rate / slow:,.1f} | {line['way']} | {whole} |")  # fmt: skip
    return "\n".join(out)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file too, after every line")
    parser.add_argument("--models", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--cohorts", nargs="*", type=int, help="clients at once; a few numbers unless said")
    parser.add_argument("--only", nargs="*", help="ways to measure; those of each model unless said")
    parser.add_argument("--depths", action="store_true", help="also the steps alone, and cohorts")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--profile", action="store_true", help="list kernels instead")
    parser.add_argument("--read", nargs="+", type=Path, help="measure nothing: one table of these files")
    parser.add_argument(
        "--tiny", action="store_true", help="see that all runs, on a few rows, on any machine"
    )
    args = parser.parse_args(given)
    if args.read:
        print(tabulate([line for path in args.read for line in json.loads(path.read_text())]))
        return
    if args.profile and (args.out or args.only or args.depths):
        parser.error("--profile prints kernels of the first way alone: leave out --out, --only and --depths")
    if not ON_GPU and (args.profile or not args.tiny):
        raise SystemExit("bench.gpu: torch sees no GPU here; --tiny shows whether it would run")
    if args.out and not args.out.parent.is_dir():
        parser.error(f"--out {args.out}: there is no folder {args.out.parent}; make it first")
    name = torch.cuda.get_device_name() if ON_GPU else "a CPU, whose numbers mean nothing"
    print(f"{name}, torch {torch.__version__}, float32, seed 1")
    found: list[dict[str, Any]] = []
    left_out = []
    began = time.monotonic()
    for model in args.models:
        case = shrink(model, CASES[model]) if args.tiny else CASES[model]
        ways = [way for way in args.only or case.ways if ON_GPU or not way.startswith("kernels")]
        for clients in args.cohorts or case.cohorts:
            if time.monotonic() - began > args.seconds:
                left_out.append(f"{case.title} with {clients:,} clients")
                continue
            with allow_tf32(case.tf32):
                if args.profile:
                    profiled(case, clients)
                    continue
                for line in measured(case, clients, ways, args.depths):
                    found.append(line)
                    if args.out:
                        args.out.write_text(json.dumps(found, indent=1))
                    if time.monotonic() - began > args.seconds:
                        left_out.append(f"what comes after {line['way']} of {case.title}")
                        break
    if found:
        print(f"\nThe fastest way of each; rows a second:\n\n{tabulate(found)}")
    if left_out:
        print(f"No time was left for {', '.join(left_out)}.")


if __name__ == "__main__":
    main()
