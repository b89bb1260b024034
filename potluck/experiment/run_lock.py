"""One process at a time computes a run: two that write the same records would spoil them."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from potluck.core.errors import ConfigError

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
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # forked workers may still have the file open
        os.close(file)
