"""Runs on the machines of a Ray cluster, beside the same runs side by side here; all of it on this machine.

Four runs of a minute or so of CPU: on two nodes of one core, and by `--jobs 2`, from the first that begins to
the last that ends. Then eight at once, whose machines send a snapshot every second. Who asks is a process of
its own, so its CPU and its memory are told apart; that of runs is what the same runs take without Ray.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import potluck
from potluck.experiment import Experiment
from potluck.experiment.launch import asked_run
from potluck.experiment.launch.folder_changes import Changes
from potluck.experiment.screen import Screen

STORE = 100 << 20  # bytes
RUNS = Experiment(
    name="ray",
    compare=["fedavg", "scaffold"],
    seeds=[1, 2],
    data={"source": "synthetic", "rows": 6_000, "dimension": 784, "classes": 10, "clients": 100},
    model={"name": "mlp"},
    train={"batch": 10, "epochs": 1},
    stop={"rounds": 3_000},
    evaluate={"rounds": 300},
    run={"executor": "loop"},
)
MANY = RUNS.with_values(
    seeds=[1, 2, 3, 4], stop={"rounds": 600}, run={"executor": "loop", "snapshot_every": 1.0}
)
ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all of it listens on 127.0.0.1
    "OMP_NUM_THREADS": "1",
}


class Times(Screen):
    """Notes when the first run began and the last one ended."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.entered, self.first, self.last, self.cpu = time.monotonic(), 0.0, 0.0, 0.0

    def on_start(self, name: str, where: str = "") -> None:
        super().on_start(name, where)
        if not self.first:
            self.first, self.cpu = time.monotonic(), time.process_time()

    def on_end(
        self, name: str, accuracy: float | None, seconds: float, runs: int, left: float | None
    ) -> None:
        super().on_end(name, accuracy, seconds, runs, left)
        self.last = time.monotonic()


def ask(file: Path, out: Path, on: str, jobs: int) -> None:
    """What a process of its own does: compute the runs, and print what was seen, as JSON."""
    write, told, memory = asked_run.write_changes, {"sent": 0, "snapshots": 0, "largest": 0, "count": 0}, 0

    def count(place: Path, changes: Changes) -> None:
        nonlocal memory
        for name, (_, content) in changes.files.items():
            told["sent"] += len(content)
            if name.startswith("snapshots/"):
                told["snapshots"] += len(content)
                told["largest"] = max(told["largest"], len(content))
                told["count"] += 1
        write(place, changes)
        memory = memory or _find_peak()

    asked_run.write_changes = count
    times = Times()
    potluck.compare(Experiment.from_file(file), out=out, progress=times, on=on or None, jobs=jobs)
    kept = sum(path.stat().st_size for run in out.iterdir() if run.is_dir() for path in run.rglob("*.*"))
    snapshots = sum(path.stat().st_size for path in out.rglob("*.snapshot"))
    print(
        json.dumps({
            **told,
            "kept": kept - snapshots,
            "ready": times.first - times.entered,
            "seconds": times.last - times.first,
            "cpu": time.process_time() - times.cpu,
            "grown": _find_peak() - memory if memory else 0,
        })
    )  # fmt: skip


def _find_peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(runs: Experiment, folder: Path, name: str, on: str, jobs: int) -> tuple[dict[str, float], float]:
    """What one process that asks has seen, and the CPU of all of its own processes."""
    file = folder / f"{name}.toml"
    file.write_text(runs.to_toml())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "bench.ray_runs", str(file), str(folder / name), on, str(jobs)]
    seen: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seen, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def start_cluster(cores: int) -> Iterator[str]:
    """Two nodes of so many cores, and a head without any: the address."""
    from ray.cluster_utils import Cluster

    os.environ.update(ENVIRONMENT)
    node = {"object_store_memory": STORE, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(True, head_node_args={**node, "num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=cores, **node)
        yield f"ray:{cluster.address}"
    finally:
        cluster.shutdown()


def main(passes: int) -> None:
    ratios: list[float] = []
    for i in range(passes):
        with tempfile.TemporaryDirectory() as name:
            folder, began = Path(name), time.monotonic()
            with start_cluster(cores=1) as on:
                started = time.monotonic() - began
                if i % 2:
                    here, _ = measure(RUNS, folder, "here", "", 2)
                there, _ = measure(RUNS, folder, "there", on, 0)
            if not i % 2:
                here, _ = measure(RUNS, folder, "here", "", 2)
        ratios.append(there["seconds"] / here["seconds"])
        print(
            f"pass {i + 1}: four runs on Ray {there['seconds']:.0f} s, by --jobs 2 {here['seconds']:.0f} s; "
            f"cluster up in {started:.1f} s, first run begun {there['ready']:.1f} s after the command "
            f"(by --jobs {here['ready']:.1f} s)",
            flush=True,
        )
    span = f"{min(ratios):.2f}-{max(ratios):.2f}"
    print(
        f"Ray: four runs on two nodes over --jobs 2: {statistics.median(ratios):.2f} ({span}; at most 1.20)"
    )
    with tempfile.TemporaryDirectory() as name, start_cluster(cores=4) as on:
        seen, _ = measure(MANY, Path(name), "there", on, 0)
        _, cpu = measure(MANY, Path(name), "here", "", 8)
    sent = seen["sent"] / (seen["kept"] + seen["snapshots"])
    print(
        f"Ray: bytes that came over what is kept and {seen['count']:.0f} snapshots: {sent:.3f} (at most 1.05)"
    )
    share = seen["cpu"] / (seen["cpu"] + cpu)
    print(
        f"Ray: CPU of who asks over all, eight runs at once: {share:.3f} (at most 0.03); its memory grows by "
        f"{seen['grown'] / 1e6:.1f} MB (largest snapshot: {seen['largest'] / 1e6:.1f} MB)"
    )


if __name__ == "__main__":
    ask(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
