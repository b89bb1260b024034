"""What grows with the length of a run: nothing should, but its results.

`python -m bench.growth ROUNDS` runs ShuffleFL, which notes 30 things a round, without a folder: its peak of
memory is that of a process of so many rounds.
"""

import sys
import tempfile
from pathlib import Path

import torch

from potluck.engine.memories import Memories
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare

DEVICES, NUMBERS, EACH = 50, 25_000, 10  # memories, numbers of each, and how many change between snapshots
LENGTHS = (200, 800)


def measure_logs(snapshots: int) -> tuple[float, float]:
    """Megabytes of the logs after so many snapshots, as SCAFFOLD's control variates change; and of the last
    versions, which is what a resumed run needs."""
    with tempfile.TemporaryDirectory() as folder:
        memories = Memories(Path(folder) / "keep.log")
        for turn in range(snapshots):
            for node in range(EACH * turn, EACH * (turn + 1)):
                memories.put(node % DEVICES, None, {"control": torch.full((NUMBERS,), float(turn))})
            memories.make_room()
            memories.flush()
        needed = sum(place.size for place in memories.index.values())
        memories.close()
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    return on_disk / 1e6, needed / 1e6


def run_shufflefl(rounds: int) -> None:
    experiment = Experiment(
        algorithm="shufflefl",
        data={"source": "synthetic", "rows": 600, "dimension": 5, "classes": 4, "clients": 10},
        model={"name": "linear"},
        fleet={"users": 5},
        stop={"rounds": rounds},
        evaluate={"rounds": rounds},
        algorithms={"shufflefl": {"users": 5}},
    )
    prepare(experiment).start(ExecutionPlan("loop")).run()


if __name__ == "__main__":
    run_shufflefl(int(sys.argv[1]))
