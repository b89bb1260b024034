"""Runs spread over machines: what that costs beside the same runs side by side in one process's children.

Parts: six runs of 15 s or so (FedAvg and FedProx, three seeds) are computed by three processes at a time,
`potluck compare --part I/3 --jobs 1`, and by one with `--jobs 3`. CPU is that of all their processes, from
start to end: each part imports Potluck, builds the crowds and checks everything by itself. Passes take turns
which of the two comes first.

Ray: see `ray_runs`; by the Python that has it, `.venv-cluster/bin/python -m bench cluster`.
"""

import importlib.util
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import ray_runs
from potluck.experiment import Experiment

PARTS = 3
RUNS = Experiment(
    name="cluster",
    compare=["fedavg", "fedprox"],
    seeds=[1, 2, 3],
    data={"source": "synthetic", "rows": 6_000, "dimension": 784, "classes": 10, "clients": 100},
    model={"name": "mlp"},
    train={"batch": 10, "epochs": 1},
    stop={"rounds": 1_000},
    evaluate={"rounds": 100},
    run={"executor": "loop"},
)


def measure_cpu(commands: Sequence[Sequence[str]]) -> float:
    """Seconds of CPU of `potluck` commands that are started at once, with all of their processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = [
        subprocess.Popen([sys.executable, "-m", "potluck", *command, "--quiet"], stdout=subprocess.DEVNULL)
        for command in commands
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"potluck ended with {codes}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_parts(folder: Path, turned: bool) -> tuple[float, float, float]:
    """CPU of one process, of all parts, and of the command that collects these, in seconds."""
    file = folder / "runs.toml"
    file.write_text(RUNS.to_toml())
    one, parted = (["compare", str(file), "--out", str(folder / name)] for name in ("one", "parts"))
    alone = [[*one, "--jobs", str(PARTS)]]
    parts = [[*parted, "--jobs", "1", "--part", f"{part}/{PARTS}"] for part in range(1, PARTS + 1)]
    if turned:
        of_parts, of_one = measure_cpu(parts), measure_cpu(alone)
    else:
        of_one, of_parts = measure_cpu(alone), measure_cpu(parts)
    return of_one, of_parts, measure_cpu([parted])


def main(passes: int) -> None:
    ratios: list[float] = []
    for i in range(passes):
        with tempfile.TemporaryDirectory() as folder:
            one, parts, collecting = measure_parts(Path(folder), turned=i % 2 == 1)
        ratios.append(parts / one)
        print(
            f"pass {i + 1}: one process {one:.1f} s of CPU, {PARTS} parts {parts:.1f} s, the table then "
            f"{collecting:.1f} s",
            flush=True,
        )
    middle, span = statistics.median(ratios), f"{min(ratios):.2f}-{max(ratios):.2f}"
    print(
        f"parts: CPU of {PARTS} processes over one with --jobs {PARTS}: {middle:.2f} ({span}; at most 1.10)"
    )
    if importlib.util.find_spec("ray") is None:
        print("Ray: isn't installed here; `make cluster` makes .venv-cluster, which has it")
    else:
        ray_runs.main(passes)
