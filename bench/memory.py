"""Peak memory of whole runs of workload W, by executor, beside the bare loop: one process each.

For `workers` it is the largest of its processes; the rows are shared by all of them. And what should not grow
with the number of rounds: the logs of what devices remember, and a process that notes much.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from bench import growth
from bench.workload import make

WAYS = {
    "bare": ("bench.bare",),
    "loop": ("bench.simulate", "--executor", "loop"),
    "workers": ("bench.simulate", "--executor", "workers", "--workers", "2"),
    "stacked": ("bench.simulate", "--executor", "stacked"),
}


# A process begins with the peak of the one that forked it, so a small one starts what is to be measured.
START = """
import os, sys
status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]]), 0)[1:]
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak(module: str, *arguments: str) -> float:
    """Megabytes of the largest process of a command."""
    start = [sys.executable, "-S", "-c", START, "-m", module, *arguments]
    done = subprocess.run(start, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bench.memory: {module} {' '.join(arguments)} failed:\n{done.stderr}")
    return int(done.stderr.split()[-1]) / 1024


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
    print(f"\n{'rounds':34}" + "".join(f"{length:8,}" for length in growth.LENGTHS))
    logs = [growth.measure_logs(length) for length in growth.LENGTHS]
    for name, row in {
        "memories, MB on disk": [on_disk for on_disk, _ in logs],
        "of these needed": [needed for _, needed in logs],
        "ShuffleFL, MB without a folder": [peak("bench.growth", str(n)) for n in growth.LENGTHS],
    }.items():
        print(f"{name:34}" + "".join(f"{size:8,.1f}" for size in row), flush=True)
