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
from federations import LOCAL, SIZES, STACKED, WORKERS, small

from potluck import algorithms
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.jobs import SGD
from potluck.simulate import Simulation

PLANS = {"loop": ExecutionPlan("loop"), "stacked": STACKED, "workers": WORKERS}
FEW = {"fedbuff": {"clients": 5, "buffer": 4}}
DEVICE_SECONDS = 1000.0  # virtual: about 700 tasks


def settings(name, plan, device_seconds=DEVICE_SECONDS):
    """What a run is made of, the same in every process."""
    local = replace(LOCAL, epochs=3)
    if name == "scaffold":
        local = replace(local, optim=SGD(0.1))
    algorithm = algorithms.make(name, local, **FEW.get(name, {"clients": 5}))
    keywords = dict(
        seed=4,
        stop=StopAt(device_seconds=device_seconds),
        evaluate=EvaluateAt(rounds=3),
        plan=PLANS[plan],
        snapshot_every=0.01,  # seconds of the wall clock
        identity=name,
    )
    return small(compute=1e5), algorithm, keywords


def go(name, plan, folder, *length, **changes):
    """Run, or go on with, the run of a folder; to its end."""
    federation, algorithm, keywords = settings(name, plan, *length)
    folder.mkdir(exist_ok=True)
    sim = Simulation.resume(federation, algorithm, folder=folder, **keywords | changes)
    sim.run()


def command(name, plan, folder, length):
    """The command line of a process that does so."""
    return [sys.executable, __file__, "--length", str(length), "--go", name, plan, str(folder)]


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


def endure(start, folder, kills, moments, ready=lambda folder: None):
    """Start, kill and resume until it was killed so often or has finished; then let it finish. How often.

    `moments`: seconds until it is killed, from when it is ready on.
    """
    killed = 0
    while killed < kills:
        pid = start(folder)
        ready(folder)
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


def outcome(name, plan, folder, *length):
    """All that a finished run left: its records, the models that it serves and what devices keep."""
    federation, algorithm, keywords = settings(name, plan, *length)
    sim = Simulation.resume(federation, algorithm, folder=folder, **keywords)
    assert sim.finished
    served = {view: params for view, (_, params) in sim.find_models().items()}
    kept = {node: sim.memories.get(node, None) for node in range(len(SIZES))}
    sim.close()
    return (folder / "records.jsonl").read_bytes(), served, kept


def at_work(rng):
    """Waits until a fresh process has loaded torch and goes on with a run; one time in five it doesn't."""

    def ready(folder):
        def newest():
            return max((f.stat().st_mtime_ns for f in folder.glob("snapshots/*.snapshot")), default=0)

        before, until = newest(), time.monotonic() + (20 if rng.random() < 0.8 else 0)
        while newest() == before and time.monotonic() < until:
            time.sleep(0.005)

    return ready


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
    parser.add_argument("--length", type=float, default=DEVICE_SECONDS, help="device-seconds of each run")
    parser.add_argument("--go", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.go:
        go(given.go[0], given.go[1], Path(given.go[2]), given.length)
        return
    rng = random.Random(given.seed)
    bad = 0
    for name in given.algorithms:
        for plan in given.executors:
            with tempfile.TemporaryDirectory() as place:

                def start(folder, name=name, plan=plan):
                    return subprocess.Popen(command(name, plan, folder, given.length)).pid

                calm, hunted = Path(place, "calm"), Path(place, "hunted")
                pid = start(calm)
                at_work(random.Random(1))(calm)
                begun = time.monotonic()
                assert ended(pid) == 0
                whole = time.monotonic() - begun  # without loading torch
                moments = iter(lambda whole=whole: rng.uniform(0, 1.2 / given.kills) * whole, None)
                killed = endure(start, hunted, given.kills, moments, at_work(rng))
                good = same(*(outcome(name, plan, folder, given.length) for folder in (calm, hunted)))
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
