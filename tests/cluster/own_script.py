"""A program of a user's own: what it registers has no file that others could read. FOLDER [--on]."""

import sys

from own_layer import Slow
from torch import nn

import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Select, Train, part, value
from potluck.experiment import Experiment


@value
class Count:
    """What the selector remembers, and snapshots hold."""

    rounds: int = 0


@part("select")
@value
class Counting:
    """Anyone, and a count of rounds."""

    start_at: int = 1

    def start(self):
        return Count(self.start_at)

    def pick(self, picks, count, ctx):
        return ctx.sample(count), picks

    def jobs(self, local, nodes, picks):
        return [local] * len(nodes)

    def learn(self, picks, got, ctx):
        return Count(picks.rounds + 1)


def counted(local: Train = Train(), clients: int = 2, select: Select = Counting()) -> FedAvg:
    """FedAvg that counts."""
    return FedAvg(clients, local, select)


potluck.register_model("own", lambda shape, classes: nn.Sequential(Slow(), nn.Linear(*shape, classes)))
potluck.register_algorithm("counted", counted)

out, *on = sys.argv[1:]
one = Experiment(
    data={"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    model={"name": "own"},
    algorithms={"counted": {"select": {"kind": "Counting", "start_at": 3}}},
    stop={"rounds": 40},
    run={"executor": "loop", "snapshot_every": 0.3},
)
potluck.compare(one, ["counted"], out=out, on=on[0] if on else None, progress=True)
