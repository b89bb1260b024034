"""How long tasks take on every device, and what memory they need."""

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import PotluckError
from potluck.core.job import ModelSpec
from potluck.experiment import Experiment
from potluck.experiment.build import build_training
from potluck.federation import Federation
from potluck.fleet import (
    TRAINING_FACTOR,
    Fleet,
    Profiles,
    Topology,
    compute_seconds,
    list_machines,
    transfer_seconds,
)
from potluck.models.footprint import training_bytes
from potluck.models.functional import Model

SMALLER = (0.5, 0.25)  # widths of smaller models: papers that hand out some halve them

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Times:
    """How long the parts of a task take on every device, for the model and its smaller variants."""

    def __init__(self, federation: Federation, experiment: Experiment, rows: Ints) -> None:
        m, train = experiment.model, experiment.training("")
        self.fleet, self.local = federation.fleet, build_training(experiment, train)
        steps = train.steps  # of a batch each, instead of epochs
        self.seen = rows * (train.epochs or 1) if steps is None else np.full(len(rows), steps * train.batch)
        self.net = self._model(federation, m.name, m.width, m.depth)
        self.smaller: list[Model] = []
        for width in SMALLER:
            try:
                self.smaller.append(self._model(federation, m.name, width * m.width, m.depth))
            except PotluckError:  # a model of one width
                break

    @staticmethod
    def _model(federation: Federation, name: str, width: float, depth: float) -> Model:
        net = federation.models[ModelSpec(name, width, depth)]
        assert isinstance(net, Model)
        return net

    def training(self, net: Model) -> Floats:
        """Seconds of computing."""
        found: Floats = self.seen * compute_seconds(TRAINING_FACTOR * net.ops, self.fleet.true.compute)
        return found

    def task(self, net: Model, at: Profiles) -> Floats:
        """Seconds down, computing and up, over these links."""
        links = (transfer_seconds(net.nbytes, rate, at.latency) for rate in (at.down, at.up))
        found: Floats = sum(links, self.training(net))
        return found

    def count_bytes(self, net: Model) -> float:
        """Bytes that training takes."""
        return float(training_bytes(net, self.local.optim, self.local.batch))


def find_links(fleet: Fleet, *tiers: str) -> Profiles:
    """Devices as the lowest of these tiers meets them; without any, as the cloud does."""
    topology = Topology.build(len(fleet), tiers, fleet.groups)
    return list_machines(fleet, topology).take(range(len(fleet)))
