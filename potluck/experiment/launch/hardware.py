"""What computes here: how many cores this process has, and the processor in words."""

import os
import platform
from pathlib import Path


def count_cores() -> int:
    """Cores that this process may use; where that can't be asked, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine() -> str:
    """Cores and processor, such as `2 cores of Intel Xeon 2.10 GHz`; results are told with it."""
    model = platform.machine()
    try:
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    except OSError:
        pass  # not Linux
    cores = count_cores()
    return f"{cores} core{'s' * (cores > 1)} of {model}"
