"""A process that makes one call, tells how far it is, and can be stopped: runs side by side have one each.

One that is told to stop, or whose parent has gone, ends as if by Ctrl-C, and its folder can be resumed. It
does so where it tells how far it is, between two events: an exception that comes anywhere can fall into a
finaliser, which loses it, or leave a lock held, which hangs the rest. Only one that tells nothing for a while
is interrupted anywhere.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Generic, NoReturn, TypeVar

import torch

from potluck.core.errors import PotluckError
from potluck.engine.schedule import Progress
from potluck.execute.process import Failure, end_early, start_process
from potluck.experiment.run_events import Ended, Evaluated, Event, Noted, RoundDone, Started

PATIENCE = 10.0  # seconds in which a process must have ended that was asked to
GRACE = 3.0  # seconds in which it may choose where

T = TypeVar("T")
News = Progress | Event
NEWS = (Progress, Started, RoundDone, Evaluated, Noted, Ended)
Tell = Callable[[News], None]  # the parent


class DiedError(PotluckError):
    """A process that has ended without a word."""

    def __init__(self, text: str, how: str = "") -> None:
        super().__init__(text)
        self.how = how


class Child(Generic[T]):
    """A process, as its parent sees it.

    It is forked, so it has what its parent has; one that is `spawned` begins anew and is sent its call: for
    parents with threads of others', whose locks a fork would inherit.
    """

    def __init__(
        self, name: str, call: Callable[[Tell], T], others: "Sequence[Child[T]]" = (), spawned: bool = False
    ) -> None:
        self.name = name
        self.pipe, theirs = multiprocessing.Pipe()
        parents = [] if spawned else [*(other.pipe for other in others), self.pipe]
        terms = (theirs, parents, call)
        self.process: BaseProcess = (
            multiprocessing.get_context("spawn").Process(target=_serve, args=terms)
            if spawned
            else multiprocessing.get_context("fork").Process(target=_serve, args=terms)
        )
        start_process(self.process)
        theirs.close()

    def next(self) -> News | T:
        """How far it is, what has happened, or what its call returned; raises what that raised."""
        try:
            heard = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            text = f"{self.name}: its process {how} (out of memory?); go on with fewer --jobs"
            raise DiedError(text, signal.Signals(-code).name if code < 0 else f"exit code {code}") from None
        if isinstance(heard, NEWS):
            return heard
        content: T
        content, failure = heard
        self.process.join()  # before the pipe is closed, which would tell it to end
        self.pipe.close()
        if failure is not None:
            raise failure.as_error(self.name)
        return content

    def wait(self) -> T:
        """What its call returned, however far it heard it was."""
        while isinstance(heard := self.next(), NEWS):
            pass
        return heard


@contextlib.contextmanager
def stop_on_exit(children: list[Child[T]]) -> Iterator[None]:
    """Children that are left when something goes wrong are asked to end, and made to if they don't."""
    try:
        yield
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


# ---------------------------------------------------------------------------------------- what a child does


def _serve(pipe: Connection, others: list[Connection], call: Callable[[Tell], object]) -> NoReturn:
    """Send how far a call is, and what it returns or what went wrong; then end: all else is the parent's."""
    try:
        for other in others:
            other.close()  # else a sibling would seem to have a parent after the parent's death
        order = _Order()
        signal.signal(signal.SIGTERM, order.hear)
        signal.signal(signal.SIGALRM, order.interrupt)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it asks to end
        torch.set_num_threads(1)
        threading.Thread(target=_follow, args=(pipe,), daemon=True).start()

        def tell(news: News) -> None:
            order.obey()
            with contextlib.suppress(OSError):  # the parent has gone, which `_follow` sees to
                pipe.send(news)

        answer: tuple[object, Failure | None]
        try:
            answer = call(tell), None
        except Exception as error:  # whatever it is, the parent raises it
            answer = None, Failure.of(error)
        pipe.send(answer)
        os._exit(0)
    except BaseException as error:
        end_early(error)


class _Order:
    """The order to end, which comes at any time and is obeyed at a good one."""

    def __init__(self) -> None:
        self.whose = os.getpid()
        self.received = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.whose:
            os._exit(1)  # a worker that this process has forked: it would tell of its interruption
        self.received = True
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    def obey(self) -> None:
        if self.received:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    def interrupt(self, number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt


def _follow(pipe: Connection) -> None:
    """Nobody sends anything here, so whatever is heard is the parent's end; then end, too, or be made to."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    for how in (signal.SIGTERM, signal.SIGKILL):
        os.kill(os.getpid(), how)
        time.sleep(PATIENCE)
