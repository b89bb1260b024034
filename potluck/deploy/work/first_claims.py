"""What a device can say of itself before it has worked: how fast it computes, and how much memory is free."""

import time
from pathlib import Path
from statistics import median

import torch

from potluck.core.job import ModelSpec
from potluck.models import Models

SHAPE = (1, 28, 28)  # of the reference model's rows
ROWS, PASSES = 32, 5


def measure() -> dict[str, float]:
    """Claims that need no work: ms for a row through the reference model (LeNet-5), and free bytes."""
    found = {"compute": measure_compute()}
    memory = read_free_memory()
    return found if memory is None else {**found, "memory": memory}


def measure_compute() -> float:
    """Milliseconds that one row takes through the reference model, one way."""
    net = Models(SHAPE, 10)[ModelSpec("lenet5")]
    params, rows, times = net.init(0), torch.zeros(ROWS, *SHAPE), []
    with torch.no_grad():
        for _ in range(PASSES):
            began = time.perf_counter()
            net(params, rows)
            times.append(time.perf_counter() - began)
    return max(1e-6, 1000 * median(times) / ROWS)


def read_free_memory() -> float | None:
    """Bytes that a new process may have; None where the system doesn't say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024.0 * int(found[0]) if found else None
