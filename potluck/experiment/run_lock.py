"""One process at a time computes a run: two that write the same records would spoil them."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from potluck.core.errors import ConfigError

_HELD: set[int] = set()  # files whose locks this process has
_LOCKS = importlib.util.find_spec("fcntl") is not None  # a system without: nothing is checked there


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keep a run's folder to this process; the lock goes with the process, however that ends."""
    if not _LOCKS:
        yield
        return
    import fcntl

    file = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another process is computing this run; wait until it has ended, or end it first"
            ) from None
        except OSError:
            pass  # a file system without locks: nothing is checked there
        _HELD.add(file)
        yield
    finally:
        _HELD.discard(file)
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


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
