"""Runs that are killed and go on, in forked processes or in fresh ones, and what is compared of them.

`python tests/interrupted.py NAME PLAN FOLDER LENGTH` is such a fresh process.
"""

import os
import signal
import sys
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
    return [sys.executable, __file__, name, plan, str(folder), str(length)]


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
    """Start, kill and resume until it was killed so often or has finished; then let it finish. How often.

    `moments`: seconds until it is killed.
    """
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


def outcome(name, plan, folder, *length):
    """All that a finished run left: its records, the models that it serves and what devices keep."""
    federation, algorithm, keywords = settings(name, plan, *length)
    sim = Simulation.resume(federation, algorithm, folder=folder, **keywords)
    assert sim.finished
    served = {view: params for view, (_, params) in sim.find_models().items()}
    kept = {node: sim.memories.get(node, None) for node in range(len(SIZES))}
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


if __name__ == "__main__":
    go(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
