"""Signals at any moment: what is resumed equals what was never stopped."""

import functools
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pinned
from every import EVERYONE
from interrupted import ended

from campaign._potluck import compare, fork, read_outcome

TITLE = "random SIGKILL, SIGTERM and SIGINT, over all algorithms, modes and executors; then resumed"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PLANS = (
    ('run.executor="loop"',),
    ('run.executor="stacked"', "run.chunk=3", "run.graphs=false"),
    ('run.executor="workers"', "run.workers=2"),
)
COUNT, QUICK = len(EVERYONE) * len(PLANS), 3
SHORTER = (
    "stop.rounds=12",
    "evaluate.rounds=4",
)  # than the pinned runs; as many snapshots as there is time for


def write_command(number, run):
    """A command that runs this try's experiment into a folder."""
    which, name = number // len(EVERYONE), EVERYONE[number % len(EVERYONE)]
    plan, (name, own) = PLANS[which % len(PLANS)], pinned.settings_of(name)
    long = any(setting.startswith("stop.") for setting in own)
    settings = (*(() if long else SHORTER), *own, "run.snapshot_every=0.02", *plan)
    return ["run", run.parent / "it.toml", "--algorithm", name, "--out", run, "--quiet",
            *(part for setting in settings for part in ("--set", setting))]  # fmt: skip


def go(number, folder):
    """The process id of a child that runs, or goes on with, the run of a folder."""
    run, said = folder / "run", folder / "said"
    if (run / "experiment.toml").exists():
        return fork(said, "resume", run, "--quiet")
    (folder / "it.toml").write_text(pinned.EXPERIMENT)
    return fork(said, *write_command(number, run))


@functools.cache
def straight(which):
    """What a run came to that nobody disturbed, and its seconds."""
    folder = Path(tempfile.mkdtemp())
    try:
        begun = time.monotonic()
        code = ended(go(which, folder))
        assert code == 0, (folder / "said").read_text()
        return read_outcome(folder / "run"), time.monotonic() - begun
    finally:
        shutil.rmtree(folder)


def interrupt(number, folder, signal_number, seconds):
    """Start, or go on, and send a signal after so many seconds; whether the run still ran."""
    pid = go(number, folder)
    code = ended(pid, within=seconds)
    if code is None:
        os.kill(pid, signal_number)
        code = ended(pid, within=60)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            ended(pid)
            raise AssertionError(f"still there a minute after {signal_number.name}")
        said = (folder / "said").read_text()
        assert code in (-signal_number, 130, 1, 0), f"ended with {code}: {said}"
        assert "Traceback" not in said, said
        return True
    assert code == 0, (folder / "said").read_text()
    return False


def attempt(number, folder):
    rng = random.Random(number)
    wanted, whole = straight(number % (len(EVERYONE) * len(PLANS)))
    chosen = SIGNALS[number // len(EVERYONE) % len(SIGNALS) - number % len(SIGNALS)]
    seconds = rng.uniform(0.02, 0.95) * whole
    while not interrupt(number, folder, chosen, seconds):  # it was over by then
        shutil.rmtree(folder / "run")
        seconds /= 2
    if rng.random() < 0.5:
        interrupt(number, folder, rng.choice(SIGNALS), rng.uniform(0.02, 0.5) * whole)
    code = ended(go(number, folder))
    assert code == 0, (folder / "said").read_text()
    compare(read_outcome(folder / "run"), wanted)
