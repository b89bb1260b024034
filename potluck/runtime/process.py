"""How this process is set while it simulates."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

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
