"""How a process is set while it simulates, and that it is as before afterwards."""

import gc
from pathlib import Path

import pytest
import torch

from potluck.execute.process import tune_process

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


def test_threads_and_collections_are_as_before_afterwards():
    def inside():
        with tune_process():
            seen.append((torch.get_num_threads(), gc.get_threshold()))
            raise RuntimeError("broken off")

    before, seen = (torch.get_num_threads(), gc.get_threshold()), []
    with pytest.raises(RuntimeError, match="broken off"):
        inside()
    ((threads, thresholds),) = seen
    assert threads == 1
    assert thresholds != before[1]
    assert (torch.get_num_threads(), gc.get_threshold()) == before


@pytest.mark.skipif(not LARGE_PAGES.exists(), reason="not Linux, or one without large pages")
def test_the_heap_asks_for_large_pages_again_and_again():
    for _ in range(2):
        with tune_process():
            parts = Path("/proc/self/smaps").read_text().split("[heap]")[1:]
            flags = [part.split("VmFlags:")[1].splitlines()[0].split() for part in parts]
        assert any("hg" in each for each in flags)
