"""What computes here, in words: results are told with it."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Cores and processor, such as `2 cores of Intel Xeon 2.10 GHz`."""
    model = platform.machine()
    try:
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    except OSError:
        pass  # not Linux
    cores = len(os.sched_getaffinity(0))
    return f"{cores} core{'s' * (cores > 1)} of {model}"
