"""How this process is set while it simulates, and how it starts others."""

import ctypes
import gc
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import NamedTuple, NoReturn

import torch

from potluck.core import errors
from potluck.core.errors import PotluckError

_LIBC = ctypes.CDLL(None)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's names for them
_LARGEST = 32 << 20  # bytes; glibc takes no more for the last
_HEAP = 128 << 20  # bytes that the heap is to have room for
_PAGE, _LARGE_PAGES = 2 << 20, 14  # bytes of a large one; Linux's name for wanting them


@contextmanager
def tune_process() -> Iterator[None]:
    """One thread, few garbage collections, memory that isn't given back to the system between two rounds.

    Afterwards as before, but that the heap may keep, and lend pieces of, 32 MB: glibc doesn't tell what was.
    """
    threads, thresholds = torch.get_num_threads(), gc.get_threshold()
    if hasattr(_LIBC, "mallopt"):  # else every round asks for its megabytes anew, and the first touch of a
        _LIBC.mallopt(_MMAP_THRESHOLD, _LARGEST)  # page takes as long as computing something with it
        _LIBC.mallopt(_TRIM_THRESHOLD, 8 * _LARGEST)
        _prefer_large_pages()
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


def _prefer_large_pages() -> None:
    """Let the heap grow at once, and ask for large pages there: clients' tensors are many and lie apart, and
    finding their small pages takes longer than some of the sums. Only what is used takes memory."""
    if not hasattr(_LIBC, "madvise"):
        return
    for function in (_LIBC.sbrk, _LIBC.malloc):
        function.restype = ctypes.c_void_p
    before = _LIBC.sbrk(0)
    _LIBC.mallopt(_TOP_PAD, _HEAP)
    _LIBC.free(ctypes.c_void_p(_LIBC.malloc(ctypes.c_size_t(_LARGEST // 2))))  # more than is free, mostly
    _LIBC.mallopt(_TOP_PAD, 128 << 10)  # glibc's own
    start = -(-before // _PAGE) * _PAGE
    size = _LIBC.sbrk(0) - start
    if size > 0:  # else there was room
        _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _LARGE_PAGES)


class Failure(NamedTuple):
    """An error of another process in words: not every exception survives being sent."""

    kind: str
    text: str
    trace: str  # of code that failed

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        kind = type(error).__name__
        if isinstance(error, OSError):
            return cls("OSError", str(error), "")
        if isinstance(error, PotluckError):
            return cls(kind if hasattr(errors, kind) else "PotluckError", str(error), error.trace)
        return cls(kind, str(error), "".join(traceback.format_exception(error)))

    def as_error(self, who: str) -> Exception:
        """As it would have been without other processes, but that it says whose it is."""
        if self.kind == "OSError":
            return OSError(f"{who}: {self.text}")
        known = getattr(errors, self.kind, None)
        if isinstance(known, type) and issubclass(known, PotluckError):
            told = known(f"{who}: {self.text}")
            told.trace = self.trace
            return told
        return RuntimeError(f"{who}: {self.kind}: {self.text}\n\n{self.trace}")


def end_early(error: BaseException) -> NoReturn:
    """End this process, which others wait for; a mistake in its code is told, an interruption isn't."""
    if not isinstance(error, OSError | KeyboardInterrupt | SystemExit):
        traceback.print_exception(error)
    os._exit(1)


def start_process(process: BaseProcess) -> None:
    """Start a child. Ctrl-C is its parent's to handle, also while it hasn't learnt yet to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
