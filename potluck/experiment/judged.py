"""What a run's accuracies are held against: the rows that devices are tested on, and who uses which model."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potluck.simulate import Simulation


@dataclass(frozen=True, eq=False)
class JudgedDevice:
    """A device that a run is judged by, as it was at the end."""

    labels: NDArray[np.int64]  # its test rows by class, at least one
    common: int  # the class of which it trains on the most rows
    model: str | None  # the shared one that it uses; None: one of its own
    nbytes: int = 0  # of that model


@dataclass(frozen=True, eq=False)
class Judged:
    """The devices that a run is judged by; those that attack aren't among them."""

    devices: Mapping[int, JudgedDevice]

    @property
    def groups(self) -> dict[str, list[int]]:
        """Who uses which shared model."""
        found: dict[str, list[int]] = {}
        for node, tested in self.devices.items():
            if tested.model is not None:
                found.setdefault(tested.model, []).append(node)
        return found

    def find_chance(self, nodes: Iterable[int] | None = None) -> float:
        """The mean accuracy, with these devices or all, if every model gave the same answer to every row.

        It is the best such answer for those who share a model; whoever has one of its own answers the class
        that it trains on most.
        """
        mine = [self.devices[n] for n in (self.devices if nodes is None else nodes)]
        shares = np.stack([tested.labels / tested.labels.sum() for tested in mine])
        models = np.array([tested.model or "" for tested in mine])
        alone = [share[tested.common] for share, tested in zip(shares, mine, strict=True) if not tested.model]
        shared = [shares[models == name].sum(0).max() for name in set(models) - {""}]
        return max(float(sum(alone) + sum(shared)) / len(mine), 1 / len(mine[0].labels))

    def find_error(self, accuracy: float, nodes: Iterable[int] | None = None) -> float:
        """The standard error of so large a mean accuracy on these devices' rows."""
        rows = [int(self.devices[n].labels.sum()) for n in (self.devices if nodes is None else nodes)]
        return float(sum(accuracy * (1 - accuracy) / n for n in rows) ** 0.5) / len(rows)

    def count_classes(self) -> tuple[float, int]:
        """How many classes a device is tested on, on average, and how many there are."""
        held = np.stack([tested.labels > 0 for tested in self.devices.values()])
        return float(held.sum(1).mean()), held.shape[1]


def find_judged(sim: Simulation) -> Judged:
    """Of a run that is over."""
    labels, classes = sim.federation.pool.y.cpu().numpy(), sim.federation.classes
    names: dict[Hashable, str] = {}
    devices: dict[int, JudgedDevice] = {}
    for node, (model, name, nbytes, rows) in sim.evaluator.find_uses(sim.evaluations - 1).items():
        if model is not None:
            names.setdefault(model, name or f"the model of device {node}")
        if len(rows):
            common = np.bincount(labels[sim.devices.rows(node)], minlength=classes).argmax()
            tested = np.bincount(labels[rows], minlength=classes)
            devices[node] = JudgedDevice(tested, int(common), None if model is None else names[model], nbytes)
    return Judged(devices)
