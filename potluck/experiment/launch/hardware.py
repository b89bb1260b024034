"""What computes here: how many cores this process has, and the processor in words."""

import contextlib
import hashlib
import os
import platform
from pathlib import Path


def count_cores() -> int:
    """Cores that this process may use; where that can't be asked, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def identify_machine() -> str:
    """The same for all processes of a machine until it is started anew, and tells nobody its name."""
    name = platform.node().encode()
    with contextlib.suppress(OSError):  # not Linux
        name += Path("/proc/sys/kernel/random/boot_id").read_bytes()
    return hashlib.sha256(name).hexdigest()[:12]


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
