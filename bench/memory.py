"""Peak memory of whole runs of workload W, by executor, beside the bare loop: one process each.

For `workers` it is the largest of its processes; the rows are shared by all of them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.workload import make

WAYS = {
    "bare": ("bench.bare",),
    "loop": ("bench.simulate", "--executor", "loop"),
    "workers": ("bench.simulate", "--executor", "workers", "--workers", "2"),
    "stacked": ("bench.simulate", "--executor", "stacked"),
}


def peak(module: str, *arguments: str) -> float:
    """Megabytes of the largest process of a command."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench.memory: {module} {' '.join(arguments)} failed")
    return usage.ru_maxrss / 1024


def main() -> None:
    print("way        LR MB   LeNet MB")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "W.npz"
        make().save(path)
        for name, (module, *options) in WAYS.items():
            sizes = [
                peak(module, str(path), model, "--warmup", "1", "--rounds", "2", *options)
                for model in ("lr", "lenet")
            ]
            print(f"{name:8} {sizes[0]:7,.0f}   {sizes[1]:8,.0f}", flush=True)
