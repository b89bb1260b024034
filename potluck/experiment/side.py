"""Runs side by side: each in a process of its own, as many at a time as are asked for.

What comes out is what one after another gives. How runs are computed decides on their last digits, so that is
settled before the first one starts, by one process at a time: measured beside others, it might come out
otherwise. Runs that would start workers of their own train in a loop instead, which gives the same bytes.

Processes are forked: data are built once and shared, and models of the user's own are simply there. One that
is told to stop, or whose parent has gone, ends as if by Ctrl-C, and its folder can be resumed.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from potluck import errors
from potluck.errors import ConfigError, PotluckError, require
from potluck.experiment import build, runs
from potluck.experiment import plan as plans
from potluck.experiment.build import Setting
from potluck.experiment.config import Experiment
from potluck.runtime import World
from potluck.runtime.autotune import Choice
from potluck.runtime.process import start

PATIENCE = 10.0  # seconds in which a process must have ended that was asked to

USED = (
    "jobs: this process has trained already, or used the GPU, and where there is one torch can't train in "
    "its forks from then on; use the command line, a process of its own, or jobs=1"
)

Worlds = Callable[[Experiment], World]


class Missing(NamedTuple):
    """A run that is to be computed."""

    name: str
    experiment: Experiment
    place: Path
    work: float = 1.0  # how long it takes, a whole one being 1
    state: str = "nothing"  # what is there of it: nothing, begun, or other (which is replaced)
    world: World | None = None  # built already


class Done(NamedTuple):
    """What is told of a run that has ended; the rest is in its folder."""

    accuracy: float | None
    seconds: float  # of real time, all its sessions
    said: list[str]


def count(jobs: int, out: Path | None) -> int:
    """How many runs at a time; 0: one a core. Results travel through folders, so there must be one."""
    require(jobs >= 0, "jobs", jobs, "write how many runs are computed at a time, or 0 for one a core")
    jobs = jobs or plans.cores()
    require(jobs == 1 or out is not None, "jobs", jobs, "runs side by side need a folder; name one with out")
    return jobs


def compute(
    missing: Sequence[Missing],
    jobs: int,
    worlds: Worlds,
    begun: Callable[[Missing], None],
    ended: Callable[[Missing, Done], None],
) -> None:
    """Compute runs, `jobs` at a time, in their order; the first one that fails stops the rest."""
    if any(run.experiment.run.device != "cpu" for run in missing) and torch.cuda.is_initialized():
        raise ConfigError(USED)
    with _stopping() as children:
        choices = _decided(missing, worlds, children)
        waiting = list(zip(missing, choices, strict=True))[::-1]
        while waiting or children:
            while waiting and len(children) < jobs:
                run, choice = waiting.pop()
                world = run.world or worlds(run.experiment)
                children.append(_Child(run, partial(_computed, run, choice, world), children))
                begun(run)
            heard = connection.wait([child.pipe for child in children])
            for child in [child for child in children if child.pipe in heard]:
                done = child.answer()
                children.remove(child)
                ended(child.run, done)


def _decided(missing: Sequence[Missing], worlds: Worlds, children: list["_Child"]) -> list[Choice | None]:
    """How runs are to be computed, where that is measured; in a child: who has used a GPU can't fork."""
    choices: list[Choice | None] = []
    for run in missing:
        open_ = run.state != "begun" and run.experiment.run.executor in ("auto", "stacked")
        if not open_:
            choices.append(None)
            continue
        world = run.world or worlds(run.experiment)
        children.append(child := _Child(run, partial(_choice, run, world), children))
        choices.append(child.answer())
        children.remove(child)
    return choices


# ----------------------------------------------------------------------------------------- what children do


def _choice(run: Missing, world: World) -> Choice:
    return plans.decide(build.prepare(run.experiment, world=world))


def _computed(run: Missing, choice: Choice | None, world: World) -> Done:
    def decide(setting: Setting) -> Choice:
        return plans.beside_others(choice or plans.decide(setting))

    try:
        torch.zeros(1, requires_grad=True).sum().backward()
    except RuntimeError:  # better here than from within somebody's job
        raise ConfigError(USED) from None
    if run.state == "begun":
        done = runs.resume(run.place, world=world)
    else:
        done = runs.run(run.experiment, run.place, world=world, force=run.state == "other", decide=decide)
    return Done(done.summary["accuracy_mean"], done.summary["wall_seconds"], done.said)


def _serve(pipe: Connection, others: list[Connection], call: Callable[[], Any]) -> NoReturn:
    """Send what a call returns, or what went wrong; then end at once, since all else here is the parent's."""
    try:
        for other in others:
            other.close()  # else a sibling would seem to have a parent after the parent's death
        signal.signal(signal.SIGTERM, partial(_interrupt, os.getpid()))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it asks to end
        torch.set_num_threads(1)
        threading.Thread(target=_follow, args=(pipe,), daemon=True).start()
        answer: tuple[Any, _Failure | None]
        try:
            answer = call(), None
        except Exception as error:
            answer = None, _Failure.of(error)
        pipe.send(answer)
        os._exit(0)
    except BaseException:
        os._exit(1)


def _interrupt(whose: int, *_: Any) -> NoReturn:
    if os.getpid() != whose:
        os._exit(1)  # a worker that this process has forked: it would tell of its interruption
    raise KeyboardInterrupt


def _follow(pipe: Connection) -> None:
    """Nobody sends anything here, so whatever is heard is the parent's end.

    Asked twice, since an interruption that falls into a finaliser is lost; then made to.
    """
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    for how in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getpid(), how)
        time.sleep(PATIENCE)


class _Failure(NamedTuple):
    """An error in words: not every exception survives being sent."""

    kind: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        kind = type(error).__name__
        if isinstance(error, OSError):
            kind = "OSError"
        elif isinstance(error, PotluckError):
            return cls(kind if hasattr(errors, kind) else "PotluckError", str(error), "")
        return cls(kind, str(error), "".join(traceback.format_exception(error)))

    def told(self, run: str) -> Exception:
        """As it would have been without other processes, but that it names the run."""
        if self.kind == "OSError":
            return OSError(f"{run}: {self.text}")
        known = getattr(errors, self.kind, None)
        if isinstance(known, type) and issubclass(known, PotluckError):
            return known(f"{run}: {self.text}")
        return RuntimeError(f"{run}: {self.kind}: {self.text}\n\n{self.trace}")


# --------------------------------------------------------------------------------- what the parent sees of it


class _Child:
    """A process, as its parent sees it."""

    def __init__(self, run: Missing, call: Callable[[], Any], others: "Sequence[_Child]") -> None:
        context = multiprocessing.get_context("fork")
        self.run = run
        self.pipe, theirs = context.Pipe()
        parents = [*(other.pipe for other in others), self.pipe]
        self.process = context.Process(target=_serve, args=(theirs, parents, call))
        start(self.process)
        theirs.close()

    def answer(self) -> Any:
        """What its call returned; raises what that raised."""
        try:
            content, failure = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            raise PotluckError(
                f"{self.run.name}: its process {how} (out of memory?); go on with fewer --jobs"
            ) from None
        self.process.join()  # before the pipe is closed, which would tell it to end
        self.pipe.close()
        if failure is not None:
            raise failure.told(self.run.name)
        return content


@contextlib.contextmanager
def _stopping() -> Iterator[list[_Child]]:
    """Children that are left when something goes wrong are asked to end, and made to if they don't."""
    children: list[_Child] = []
    try:
        yield children
    finally:
        try:
            for child in children:
                child.process.terminate()
            until = time.monotonic() + PATIENCE
            for child in children:
                child.process.join(max(0.0, until - time.monotonic()))
        finally:  # also if Ctrl-C is pressed again
            for child in children:
                if child.process.is_alive():
                    child.process.kill()
                child.process.join()
                child.pipe.close()
