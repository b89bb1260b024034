"""The same runs on a GPU and on the CPU; needs torch alone: `PYTHONPATH=. python tests/gpu_check.py`.

In float64 the final models agree to 1e-10 and tasks come at the same times; a run that is stored and restored
before every event on the GPU equals one that isn't, to the byte. So do modules as others write them:
transformers, recurrent ones, adapters around frozen layers, rows of padding, dropout, and what can't be
mapped over clients, which is captured one by one. What goes by numbers is never captured. Where all that the
command line needs is installed, too, runs that share the GPU equal those that have it one after another, to
the byte.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from apart import contents
from own_modules import ALONE, Calling, clients, register_all

from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.scaffold import scaffold
from potluck.core import codec
from potluck.core.job import ModelSpec
from potluck.core.trees import leaves
from potluck.data import divide, load
from potluck.engine.kept_records import KeptRecords
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.execute.reference import train
from potluck.execute.tune.autotune import Wanted, choose
from potluck.execute.vectorised.executor import Stacked
from potluck.federation import Federation
from potluck.fleet import build
from potluck.jobs import SGD, Train
from potluck.models import Models, register
from potluck.simulate import Simulation
from potluck.simulate.trial import Trial


def federation(rows, clients, dtype, shape=None):
    pool = load("synthetic", rows=rows, classes=5, dimension=784 if shape else 12)
    x = pool.x.to(dtype)
    pool = type(pool)(x.reshape(-1, *shape) if shape else x, pool.y, pool.classes, pool.test, None, pool.name)
    partition = divide(pool, "dirichlet", clients, 1, alpha=0.5)
    return Federation(pool, partition, build("mobile", clients, 1), Models(pool.shape, 5, dtype))


def simulation(federation, rule, plan, rounds, executor=None):
    often = EvaluateAt(rounds=max(1, rounds // 2))
    stop = StopAt(rounds=rounds)
    return Simulation(federation, rule, seed=1, stop=stop, evaluate=often, plan=plan, executor=executor)


def finished(sim):
    sim.run()
    return sim


def weights(sim):
    return torch.cat([p.flatten().cpu() for p in sim.find_models()["global"][1].values()])


COMPARISON = """
name = "cards"
compare = ["fedavg", "fedasync", "scaffold"]
seeds = [1, 2]
data = { source = "synthetic", rows = 4000, dimension = 30, classes = 5, clients = 40 }
model = { name = "mlp" }
stop = { rounds = 30 }
run = { device = "cuda" }
"""


def check_side_by_side() -> None:
    """Two runs at a time on the one card, or on as many as there are, and one after another."""
    if importlib.util.find_spec("typer") is None:
        print("side by side: not checked, since the command line's libraries aren't installed")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "it.toml").write_text(COMPARISON)
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "POTLUCK_CACHE": place}
        for jobs in ("1", "2", "auto"):
            command = [sys.executable, "-m", "potluck", "compare", "it.toml", "--out", jobs, "--jobs", jobs]
            told = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
            print(*[line for line in told.stderr.splitlines() if "GPU" in line], sep="\n")
            same = contents(folder / jobs) == contents(folder / "1")
            print(f"--jobs {jobs:4} gives the bytes of --jobs 1: {same}")
            assert same
            assert jobs != "2" or "fedavg-1: on GPU 0" in told.stderr


MODULES = (
    *("GPT", "encoder", "attention with weights", "masked attention", "biased attention"),
    *("LSTM", "LSTM both ways", "GRU", "RNN", "cells"),
    *("padding", "padding in a Sequential", "LoRA", "LoRA inside", "frozen LSTM", "probe of a transformer"),
    *("convolutions", "no bias anywhere"),
    *ALONE,
)
BY_NUMBERS = {
    "an item": lambda h: h / (1 + float(h.detach().abs().max())),
    "a branch": lambda h: 2 * h if h.sum() > 0 else h,
    "a list": lambda h: h / (1 + max(h.detach().flatten().tolist())),
    "places": lambda h: h * len((h[:, 0] > 0).nonzero()),
}
STACKS = {"stacked": (64, False, 1), "captured": (64, True, 1), "streams": (1, True, 4)}


def deltas(results):
    return [t.cpu() for result in results for t in leaves(result.body)]


def check_modules(device):
    """Loop and stacks on a device against the loop on the CPU; GPT draws its dropout's masks there, too."""
    register_all()
    for name in MODULES:
        cpu = deltas([train(item) for item in clients(name)])
        items, brief = clients(name, device=device), clients(name, torch.float32, device)
        found = {"loop": deltas([train(item) for item in items])}
        for way, (chunk, graphs, streams) in STACKS.items():
            stacked = Stacked(chunk, graphs=graphs, streams=streams)
            found[way] = deltas(stacked.run(items))
            once, again = deltas(stacked.run(brief)), deltas(stacked.run(brief))  # other kernels of attention
            assert bool(stacked.fell_back) == (name in ALONE and not graphs), stacked.fell_back
            assert all(map(torch.equal, found[way], deltas(stacked.run(items)))), f"{name}, {way}: no repeat"
            assert all(map(torch.equal, once, again)), f"{name}, {way}: no repeat in float32"
        far = {
            way: max(float((a - b).abs().max()) for a, b in zip(cpu, d, strict=True))
            for way, d in found.items()
        }
        print(f"{name:24} differs by {', '.join(f'{x:.1e} ({way})' for way, x in far.items())}; all repeat")
        assert max(far.values()) < 1e-10


def check_numbers(device):
    """What goes by numbers is trained in a loop, and stacks go on after it."""
    for name, call in BY_NUMBERS.items():
        register(name.replace(" ", "_"), lambda call=call: Calling(call))
        items, stacked = clients(name, device=device), Stacked(64, graphs=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = deltas(stacked.run(items))
        far = max(float((a - b).abs().max()) for a, b in zip(found, deltas(map(train, items)), strict=True))
        print(f"{name:24} goes by numbers: in a loop {bool(stacked.fell_back)}, differs by {far:.1e}")
        assert stacked.fell_back
        assert far < 1e-10


def main() -> None:
    check_side_by_side()  # first: whoever has used a GPU can't start others that do
    print(torch.__version__, torch.cuda.get_device_name())
    check_modules("cuda")
    check_numbers("cuda")
    small = federation(2000, 30, torch.float64)
    plain = Train(ModelSpec("mlp"), optim=SGD(0.05), batch=8)
    brisk = Train(ModelSpec("mlp"), optim=SGD(0.05, momentum=0.9), batch=8)
    rules = {"fedavg": FedAvg(10, brisk), "fedasync": fedasync(brisk, 10), "scaffold": scaffold(plain, 10)}
    for name, rule in rules.items():
        rounds = 40 if name == "fedasync" else 6
        cpu = finished(simulation(small, rule, ExecutionPlan("loop"), rounds))
        plans = {
            "loop": ExecutionPlan("loop", device="cuda"),
            "stacked": ExecutionPlan("stacked", device="cuda"),
            "captured": ExecutionPlan("stacked", device="cuda", graphs=True),
            "streams": ExecutionPlan("stacked", device="cuda", graphs=True, streams=4, chunk=2),
        }
        for executor, plan in plans.items():
            gpu = finished(simulation(small, rule, plan, rounds))
            far = float((weights(cpu) - weights(gpu)).abs().max())
            times = [[r["time"] for r in sim.records] for sim in (cpu, gpu)]
            print(f"{name:9} {executor:9} differs by {far:.1e}, same times: {times[0] == times[1]}")
            assert far < 1e-10
            assert times[0] == times[1]
        plan = plans["captured"]
        straight = finished(simulation(small, rule, plan, rounds))
        sim = simulation(small, rule, plan, rounds)
        sim.start()
        while sim.step():
            fresh = simulation(small, rule, plan, rounds)
            fresh.logs.kept = KeptRecords(sim.records)
            stored = codec.encode(sim.make_state())
            sim.memories.file.seek(0)
            fresh.memories.file.write(sim.memories.file.read())
            fresh.restore(codec.decode(stored, "cuda"))
            sim = fresh
        print(f"{name:9} restored at every event: {torch.equal(weights(sim), weights(straight))}")
        assert torch.equal(weights(sim), weights(straight))
    big = federation(12_000, 100, torch.float32, (1, 28, 28))
    rule = FedAvg(50, Train(ModelSpec("lenet5"), optim=SGD(0.05), batch=20))
    base = ExecutionPlan(device="cuda")
    choice = choose(
        lambda plan, executor: Trial(simulation(big, rule, plan, 8, executor)),
        Wanted(base, ("loop", "stacked")),
    )
    print(choice.reason, choice.plan, sep="\n")
    assert choice.plan.executor == "stacked"


if __name__ == "__main__":
    main()
