"""One process at a time computes a run: two that write the same records would spoil them.

A lock of the system sees to that on one machine, a claim among machines that share a folder.
"""

import contextlib
import importlib.util
import os
import time
from collections.abc import Iterator
from pathlib import Path

from potluck.experiment import claim
from potluck.experiment.claim import Claim

_HELD: set[int] = set()  # files whose locks this process has
_LOCKS = importlib.util.find_spec("fcntl") is not None  # a system without: nothing is checked there


@contextlib.contextmanager
def lock_run(folder: Path, patience: float | None = None) -> Iterator[Claim | None]:
    """Keep a run's folder to this process; the lock goes with the process, however that ends.

    `patience`: seconds without a sign of life (`Claim.renew`) after which other machines may take it over.
    """
    if not _LOCKS:
        yield None
        return
    import fcntl

    file, locked = os.open(folder, os.O_RDONLY), True
    try:
        try:
            _take(file)
        except BlockingIOError:
            raise claim.refuse(folder, claim.find_owner(folder)) from None
        except OSError:
            locked = False  # a file system without locks: the claim is all that there is
        _HELD.add(file)
        own = claim.take(folder, patience, locked)
        try:
            yield own
        finally:
            own.release()
    finally:
        _HELD.discard(file)
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def is_locked(folder: Path) -> bool | None:
    """Whether a process of this machine computes a run; None where that can't be asked."""
    if not _LOCKS:
        return None
    import fcntl

    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go at once: `_take` waits for that
    except BlockingIOError:
        return True
    except OSError:
        return None  # a file system without locks
    finally:
        os.close(file)
    return False


def _take(file: int) -> None:
    """Lock a folder; somebody who looks whether it is locked has it for a moment."""
    import fcntl

    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.005)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def take_turns(folder: Path) -> Iterator[None]:
    """Wait until no other process is within this, for the same folder; it is made if need be."""
    if not _LOCKS:
        yield
        return
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _let_go() -> None:
    """A forked worker keeps no lock: else it would hold one for a while after its parent was killed."""
    while _HELD:
        os.close(_HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
