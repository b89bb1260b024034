"""What computes here: how many cores this process has, and the processor in words."""

import contextlib
import hashlib
import os
import platform
from pathlib import Path

_share: int | None = None


def count_cores() -> int:
    """Cores that this process may use; where that can't be asked, all."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return there if _share is None else min(_share, there)


def share_cores(cores: int) -> None:
    """From now on this process uses so many at most: the others are for others."""
    global _share
    _share = cores


def describe_kind() -> str:
    """The kind of processor, with what it can do: on another kind the same sums may end in other digits."""
    flags = _read_about_cpu("flags", "Features")
    return f"{_find_model()} ({hashlib.sha256(flags.encode()).hexdigest()[:6]})"


def identify_machine() -> str:
    """The same for all processes of a machine until it is started anew, and tells nobody its name."""
    name = platform.node().encode()
    with contextlib.suppress(OSError):  # not Linux
        name += Path("/proc/sys/kernel/random/boot_id").read_bytes()
    return hashlib.sha256(name).hexdigest()[:12]


def describe_machine() -> str:
    """Cores and processor, such as `2 cores of Intel Xeon 2.10 GHz`; results are told with it."""
    cores = count_cores()
    return f"{cores} core{'s' * (cores > 1)} of {_find_model()}"


def _find_model() -> str:
    return _read_about_cpu("model name") or platform.machine()


def _read_about_cpu(*keys: str) -> str:
    """What Linux tells of the first processor; nothing elsewhere."""
    try:
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    except OSError:
        return ""
    return next((value.strip() for key, _, value in lines if key.strip() in keys), "")
