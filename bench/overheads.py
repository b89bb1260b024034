"""What contrastive terms cost a device beside plain training (Maverick's Figure 14): time, memory, bytes.

One local round of LeNet-5 on one device with 1,200 rows, in batches of 64, one thread. The frozen models of
MOON and Maverick look at every row once a local round; beside it, Maverick with looks at every step.
"""

import statistics
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from potluck.algorithms.maverick.device import Contrast
from potluck.algorithms.moon.device import Moon
from potluck.core.job import Batch, Local, ModelSpec, Net
from potluck.core.trees import Params, Tree, nbytes
from potluck.execute.reference import Item, look_at, recall, train
from potluck.jobs import Train
from potluck.jobs.objective import CrossEntropy, Objective
from potluck.models import Models

ROWS, BATCH, PASSES = 1_200, 64, 7
SPEC = ModelSpec("lenet5")


class AtEveryStep(Contrast):
    """Maverick's terms without the saving: frozen models look at a row whenever it is trained on."""

    looks: ClassVar[bool] = False

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sent

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            seen = self.look({}, net, held, None, batch)
        return Contrast.loss(self, net, params, batch._replace(seen=seen), held["share"])


WAYS: dict[str, tuple[Objective, int]] = {  # with how many anomalous models
    "FedEdge": (CrossEntropy(), 0),
    "MOON in FedEdge": (Moon(), 0),
    "Maverick, nobody odd": (Contrast(), 0),
    "Maverick, 3 odd": (Contrast(), 3),
    "the same, looks at every step": (AtEveryStep(), 3),
}


def device(objective: Objective, odd: int, epochs: int) -> Item:
    """A device about to train on noise."""
    draw = torch.Generator().manual_seed(1)
    pool = SimpleNamespace(
        x=torch.randn(ROWS, 1, 28, 28, generator=draw), y=torch.randint(10, (ROWS,), generator=draw)
    )
    models = Models((1, 28, 28), 10)
    first, *others = (models[SPEC].init(seed) for seed in range(2 + odd))
    sent: dict[str, Tree] = {"params": first}
    if isinstance(objective, Contrast):
        sent |= {"global": others[0], "odd": others[1:], "share": torch.full((odd,), 1 / max(odd, 1))}
    job = Train(SPEC, objective, batch=BATCH, epochs=epochs)
    return Item(job, Local(0, np.arange(ROWS), sent, None, 1, models, pool))


def held(item: Item) -> int:
    """Bytes of frozen models, and of what they saw, beside what plain training needs."""
    models = nbytes(item.at.inbox) + nbytes(recall(item)) - nbytes(item.at.inbox["params"])
    if not item.job.looks:
        return models
    return models + nbytes(look_at(item, item.at.models[SPEC], item.at.rows).seen)


def main() -> None:
    torch.set_num_threads(1)
    print("                                seconds of a local round over FedEdge's")
    print(
        "                                1 epoch   as charged   5 epochs   as charged   sent MB   more memory"
    )
    seconds: dict[tuple[str, int], list[float]] = {}
    items = {(name, e): device(*way, e) for name, way in WAYS.items() for e in (1, 5)}
    for _ in range(PASSES):
        for key, item in items.items():
            began = time.perf_counter()
            train(item)
            seconds.setdefault(key, []).append(time.perf_counter() - began)
    plain = {e: items["FedEdge", e] for e in (1, 5)}
    for name in WAYS:
        cells = []
        for e in (1, 5):
            ratios = [a / b for a, b in zip(seconds[name, e], seconds["FedEdge", e], strict=True)]
            item = items[name, e]
            charged = item.job.cost(item.at).ops / plain[e].job.cost(plain[e].at).ops
            told = "" if isinstance(WAYS[name][0], AtEveryStep) else f"{charged:.2f}"
            cells += [f"{statistics.median(ratios):7.2f}", f"{told:>10}"]
        item = items[name, 1]
        base = plain[1].job.cost(plain[1].at).memory
        sizes = f"{nbytes(item.at.inbox) / 1e6:7.2f}   {held(item) / base:10.0%}"
        print(f"{name:30}  {'   '.join(cells)}   {sizes}", flush=True)
