"""Kill runs with SIGKILL again and again, resume them, and compare them with runs that were never killed.

`python tests/kill_many.py --kills 10` does so for every algorithm and executor named, in fresh processes.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from worlds import LOCAL, SIZES, STACKED, WORKERS, small

from potluck import algorithms
from potluck.jobs import SGD
from potluck.runtime import EvaluateAt, ExecutionPlan, Simulation, StopAt

PLANS = {"loop": ExecutionPlan("loop"), "stacked": STACKED, "workers": WORKERS}
FEW = {"fedbuff": {"clients": 5, "buffer": 4}}
DEVICE_SECONDS = 300.0  # virtual: about 100 tasks


def settings(name, plan):
    """What a run is made of, the same in every process."""
    local = replace(LOCAL, epochs=3)
    if name == "scaffold":
        local = replace(local, optim=SGD(0.1))
    algorithm = algorithms.make(name, local, **FEW.get(name, {"clients": 5}))
    keywords = dict(
        seed=4,
        stop=StopAt(device_seconds=DEVICE_SECONDS),
        evaluate=EvaluateAt(rounds=3),
        plan=PLANS[plan],
        snapshot_every=0.01,  # seconds of the wall clock
        identity=name,
    )
    return small(compute=1e5), algorithm, keywords


def go(name, plan, folder):
    """Run, or go on with, the run of a folder; to its end."""
    world, algorithm, keywords = settings(name, plan)
    folder.mkdir(exist_ok=True)
    sim = Simulation.resume(world, algorithm, folder=folder, **keywords)
    sim.run()


def forked(action):
    """The process id of a child that does something and ends: like a fresh process, but at once."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended(pid, within=None):
    """A child's exit code, or None if it still runs after so many seconds; -9 when it was killed."""
    until = None if within is None else time.monotonic() + within
    while True:
        done, status = os.waitpid(pid, 0 if until is None else os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.001)


def endure(start, folder, kills, moments):
    """Start, kill and resume until it was killed so often or has finished; then let it finish. How often."""
    killed = 0
    while killed < kills:
        pid = start(folder)
        code = ended(pid, within=next(moments))
        if code is None:
            os.kill(pid, signal.SIGKILL)
            code = ended(pid)
        if code == 0:
            break
        assert code == -signal.SIGKILL, f"ended with {code}"
        killed += 1
    assert ended(start(folder)) == 0
    return killed


def outcome(name, plan, folder):
    """All that a finished run left: its records, the models that it serves and what devices keep."""
    world, algorithm, keywords = settings(name, plan)
    sim = Simulation.resume(world, algorithm, folder=folder, **keywords)
    assert sim.finished
    served = {view: params for view, (_, params) in sim.served().items()}
    kept = {node: sim.keeps.get(node, None) for node in range(len(SIZES))}
    sim.close()
    return (folder / "records.jsonl").read_bytes(), served, kept


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of each run")
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "fedasync", "fedbuff", "scaffold"])
    parser.add_argument("--executors", nargs="+", default=["workers", "stacked"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--go", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.go:
        go(given.go[0], given.go[1], Path(given.go[2]))
        return
    rng = random.Random(given.seed)
    bad = 0
    for name in given.algorithms:
        for plan in given.executors:
            with tempfile.TemporaryDirectory() as place:

                def start(folder, name=name, plan=plan):
                    return subprocess.Popen([sys.executable, __file__, "--go", name, plan, str(folder)]).pid

                calm, hunted = Path(place, "calm"), Path(place, "hunted")
                begun = time.monotonic()
                assert ended(start(calm)) == 0
                whole = time.monotonic() - begun
                # Up to a little after the import of torch nothing happens; so most moments come later.
                moments = iter(lambda whole=whole: rng.uniform(0.3, 1.0) * whole, None)
                killed = endure(start, hunted, given.kills, moments)
                good = same(outcome(name, plan, calm), outcome(name, plan, hunted))
                bad += not good
                size = (hunted / "records.jsonl").stat().st_size
                print(
                    f"{name:10} {plan:8} {whole:5.1f} s  killed {killed:2}  records {size:,} bytes: "
                    + ("the same" if good else "DIFFERENT"),
                    flush=True,
                )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
