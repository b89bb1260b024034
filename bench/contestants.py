"""Who takes part in the training benchmark, and how one of them is run: a process that answers in JSON."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS, OLD_JAX = ".venv-peers", ".venv-peers-jax"
LIMIT = 600.0  # seconds of one process, before it is ended


@dataclass(frozen=True)
class Contestant:
    """One line of the table."""

    name: str
    command: tuple[str, ...]  # of Python
    home: str | None = None  # whose Python; ours, if none is named
    threads: int | None = 1  # of OpenMP; None: as many as it takes

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.home is None else ROOT / self.home / "bin" / "python"

    def missing(self) -> str | None:
        """Why it can't be run, if that is known beforehand."""
        there = self.home is None or self.python.exists()
        return None if there else f"{self.home} isn't there: make peers"


def _module(name: str, *options: str) -> tuple[str, ...]:
    return ("-m", f"bench.{name}", *options)


BARE = Contestant("bare PyTorch loop, 1 thread", _module("bare"))
LIMITS = (
    Contestant("central, 1 thread", _module("central")),
    Contestant("central, 2 threads", _module("central", "--threads", "2"), threads=2),
)
OURS = (
    Contestant("Potluck, as it chooses", _module("simulate", "--executor", "auto", "--workers", "2")),
    Contestant("Potluck, loop", _module("simulate", "--executor", "loop")),
    Contestant("Potluck, 2 workers", _module("simulate", "--executor", "workers", "--workers", "2")),
    Contestant("Potluck, stacked", _module("simulate", "--executor", "stacked")),
    Contestant("Potluck, stacked and captured", _module("simulate", "--executor", "stacked", "--graphs")),
    Contestant(
        "Potluck, the same in 2 workers",
        _module("simulate", "--executor", "stacked", "--workers", "2", "--graphs"),
    ),
    Contestant(
        "Potluck, captured one by one, 2 workers",
        _module("simulate", "--executor", "stacked", "--workers", "2", "--graphs", "--chunk", "1"),
    ),
)
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OTHERS = (
    Contestant("pfl 0.6, 1 process", _module("peers.pfl"), PEERS),
    Contestant("pfl 0.6, 2 processes", (*_TORCHRUN, *_module("peers.pfl")), PEERS),
    Contestant("Flower 1.41, tuned", _module("peers.flower", "--tuned"), PEERS, None),
    Contestant("Flower 1.41, default", _module("peers.flower"), PEERS, None),
    Contestant("FedJAX 0.0.17, JAX 0.4", _module("peers.fedjax"), OLD_JAX, None),
    Contestant("FedJAX 0.0.17, JAX 0.10", _module("peers.fedjax"), PEERS, None),
    Contestant("fedlab 1.3", _module("peers.fedlab"), PEERS),
)


class FailedError(Exception):
    """A contestant gave no answer."""


def run(who: Contestant, *arguments: str) -> dict[str, Any]:
    """Let one run; its answer, or why there is none."""
    if reason := who.missing():
        raise FailedError(reason)
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    if who.threads is not None:
        environment["OMP_NUM_THREADS"] = str(who.threads)
    process = subprocess.Popen(
        [str(who.python), *who.command, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that what it starts can be ended with it
    )
    try:
        out, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise FailedError(f"no answer within {LIMIT:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    answers = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode or not answers:
        said = [line for line in errors.splitlines() if line.strip()] or ["no answer"]
        raise FailedError(said[-1].strip()[:120])
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer
