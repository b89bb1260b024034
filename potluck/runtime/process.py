"""How this process is set while it simulates, and how it starts others."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import torch


@contextmanager
def tuned_process() -> Iterator[None]:
    """One thread and few garbage collections; everything as before afterwards."""
    threads, thresholds = torch.get_num_threads(), gc.get_threshold()
    torch.set_num_threads(1)  # small batches: two threads are slower than one
    gc.freeze()  # messages come by the thousand and hold no cycles: don't look through
    gc.set_threshold(200_000, 20, 100)  # everything for some, again and again
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def start(process: BaseProcess) -> None:
    """Start a child. Ctrl-C is its parent's to handle, also while it hasn't learnt yet to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
