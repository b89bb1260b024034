"""How this process is set while it simulates, and how it starts others."""

import ctypes
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import torch

_LIBC = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's names for them
_LARGEST = 32 << 20  # bytes; glibc takes no more for the second


@contextmanager
def tuned_process() -> Iterator[None]:
    """One thread, few garbage collections, memory that isn't given back to the system between two rounds.

    Afterwards as before, but that the heap may keep, and lend pieces of, 32 MB: glibc doesn't tell what was.
    """
    threads, thresholds = torch.get_num_threads(), gc.get_threshold()
    if hasattr(_LIBC, "mallopt"):  # else every round asks for its megabytes anew, and the first touch of a
        _LIBC.mallopt(_MMAP_THRESHOLD, _LARGEST)  # page takes as long as computing something with it
        _LIBC.mallopt(_TRIM_THRESHOLD, 8 * _LARGEST)
    torch.set_num_threads(1)  # small batches: two threads are slower than one
    gc.freeze()  # messages come by the thousand and hold no cycles: don't look through
    gc.set_threshold(200_000, 20, 100)  # everything for some, again and again
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        if hasattr(_LIBC, "mallopt"):
            _LIBC.mallopt(_TRIM_THRESHOLD, _LARGEST)
            _LIBC.malloc_trim(0)


def start(process: BaseProcess) -> None:
    """Start a child. Ctrl-C is its parent's to handle, also while it hasn't learnt yet to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
