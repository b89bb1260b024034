"""From a detector for every class to one model of all classes (ClassTer).

What detectors say isn't on one scale: each was trained by itself. So their logits are told in deviations from
what the same detector says of pure noise. The class whose detector says most by that measure is an answer
already (`Loudest`); a model that is trained to say the same, on rows that need no labels, is a smaller and
smoother one (`Distil`).
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from potluck.algorithms.classter.device.augment import noise_like
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import nearest, require
from potluck.core.job import Batch, Local, ModelSpec, Net, Nets
from potluck.core.ranges import LearningRate, Many, Repeats
from potluck.core.trees import Params, Tree
from potluck.jobs.calibrate import Scaling
from potluck.jobs.losses import divergence
from potluck.jobs.objective import Objective, weighted_mean
from potluck.jobs.optim import Adam
from potluck.jobs.train import Train

# Of noise that no device trains on: its keys are of tasks, and what a detector was taught to call noise it
# would call so with too much certainty.
_KEY = keys.derive(0, int.from_bytes(b"calibrate"))
LEAST = 1e-3  # floor of a deviation
SILENT = -1e4  # what a detector says that nobody trained; finite, so that the others count
Scale = Literal["noise", "rows", "none", "devices"]
Start = Literal["last", "detectors"]
MEAN, DEVIATION = "mean", "deviation"  # metrics of distillation, each with the number of its class


@value
class Calibration:
    """What a detector's logit is measured in: how it speaks of noise, or of rows that nobody labelled."""

    by: Scale = "noise"  # rows: of those that are to be told; none: logits as they are; both Potluck's own
    count: int = 1000  # rows of noise

    def __post_init__(self) -> None:
        known = ("noise", "rows", "none", "devices")
        require(self.by in known, "distil.calibrate", self.by, nearest(str(self.by), known))
        require(self.count >= 2, "distil.noise", self.count, "must be at least 2: a deviation is taken")

    def scale(self, net: Net, models: Sequence[Params], x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation [classes] of every detector's logits; noise is of the form of these rows."""
        if self.by in ("none", "devices"):  # until devices have said how sure each is
            mean = torch.zeros(len(models), dtype=next(iter(models[0].values())).dtype, device=x.device)
            return mean, torch.ones_like(mean)
        answers = logits(net, models, self._noise(x) if self.by == "noise" else x)
        return answers.mean(0), answers.std(0, correction=0).clamp_min(LEAST)

    def _noise(self, x: Tensor) -> Tensor:
        key = keys.as_tensor(_KEY).to(x.device)
        if not x.is_floating_point():  # any tokens that occur in the rows
            return noise_like(x, key)[: self.count]
        return keys.normal(key, (self.count, *x.shape[1:]), x.dtype)

    @property
    def extra(self) -> int:
        """Rows that a detector passes beside those that it tells of."""
        return self.count if self.by == "noise" else 0


def logits(net: Net, models: Sequence[Params], x: Tensor) -> Tensor:
    """[rows, classes] what every detector says of every row."""
    return torch.cat([net(params, x) for params in models], -1)


def join_detectors(detector: Net, general: Net, models: Sequence[Params], last: Params) -> Params:
    """A model of all classes with the mean of the detectors' layers and all of their heads, if they fit.

    The mean is of use where all began alike. Detectors of another form leave the last model as it is.
    """
    heads = dict(zip(general.head_names, detector.head_names, strict=True))
    joined: Params = {}
    for name in last:
        each = [one.get(heads.get(name, name)) for one in models]
        found = [q for q in each if q is not None]
        if len(found) < len(each):
            return last
        joined[name] = torch.cat(found) if name in heads else torch.stack(found).mean(0)
    fits = all(p.shape == last[name].shape for name, p in joined.items())
    return joined if fits else last


def calibrate_logits(answers: Tensor, mean: Tensor, deviation: Tensor, trained: Tensor) -> Tensor:
    """[rows, classes] in deviations from noise; a detector that was never trained says nothing."""
    return ((answers - mean) / deviation).masked_fill(~trained, -torch.inf)


@value
class Distil(Objective):
    """Say what all detectors together say, of rows whose labels aren't looked at."""

    detector: ModelSpec
    heat: float = 2.0  # T_kd: softens both sides
    calibration: Calibration = Calibration()

    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fix = "must be above 0, such as 2.0"
        require(0 < self.heat < float("inf"), "distil.temperature", self.heat, fix)

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        detector = models[self.detector]
        mean, deviation = self.calibration.scale(detector, sent["models"], batch.x)
        answers = logits(detector, sent["models"], batch.x)
        if "scaling" in sent:
            answers = _read(sent["scaling"], answers, sent["trained"])
        else:
            answers = calibrate_logits(answers, mean, deviation, sent["trained"])
        rows = len(batch.x)
        return {
            "teacher": (answers / self.heat).softmax(-1),
            MEAN: mean.expand(rows, -1),  # the same for every row; what is seen comes by row
            DEVIATION: deviation.expand(rows, -1),
        }

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        off = divergence(batch.seen["teacher"], net(params, batch.x, batch.key), self.heat)
        loss = weighted_mean(off, batch.weight)
        return loss, {"loss": loss.detach()}

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        scales = {name: own.seen[name].unbind(-1) for name in (MEAN, DEVIATION)}
        return {f"{name} {k}": column for name, columns in scales.items() for k, column in enumerate(columns)}

    def tells(self, sent: Tree) -> tuple[str, ...]:
        each = range(len(sent["models"]))
        return ("loss", *(f"{name} {k}" for name in (MEAN, DEVIATION) for k in each))

    def ops(self, net: Net, at: Local, passes: int) -> float:
        rows = len(at.rows) + self.calibration.extra
        return float(rows * len(at.inbox["models"]) * at.models[self.detector].ops)


@value
class Loudest(Objective):
    """Use all detectors as they are: the class whose detector says most, as they are calibrated."""

    calibration: Calibration = Calibration()

    def form(self, sent: Tree) -> Params:
        return {f"{k}/{name}": p for k, one in enumerate(sent["models"]) for name, p in one.items()}

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return {name: sent[name] for name in ("trained", "scaling") if name in sent}

    def answer(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor:
        trained = held["trained"]
        models: list[Params] = [{} for _ in range(trained.shape[-1])]
        for path, p in params.items():
            k, name = path.split("/", 1)
            models[int(k)][name] = p
        answers = logits(net, models, batch.x)
        if "scaling" not in held:
            scale = self.calibration.scale(net, models, batch.x)
            return calibrate_logits(answers, *scale, trained).clamp_min(-1e3)
        return _read(held["scaling"], answers, trained)


def _read(scaling: dict[str, Tensor], answers: Tensor, trained: Tensor) -> Tensor:
    """The logs of what detectors' logits come to, as devices found how sure each is."""
    known = {name: t.to(answers.dtype) for name, t in scaling.items()}
    return Scaling(**known).read(answers.masked_fill(~trained, SILENT))


@value
class Distillation:
    """How the server makes a general model of all detectors: when, and how it trains (by Adam)."""

    every: Annotated[int, "updates between two distillations"] = 100
    epochs: Annotated[Repeats, "passes over the server's rows, each time"] = 10
    lr: Annotated[LearningRate, "learning rate"] = 1e-3
    batch: Annotated[Many, "rows of a step"] = 64
    temperature: Annotated[float, "T_kd: softens teacher and student"] = 2.0
    calibrate: Annotated[
        Scale, "what detectors' logits are measured by: devices' rows, the server's rows, noise, or none"
    ] = "noise"
    noise: Annotated[Many, "rows of noise"] = 1000
    start: Annotated[
        Start, "what it begins from: the last general model, or the mean of detectors, which begin alike then"
    ] = "last"

    def __post_init__(self) -> None:
        for key in ("every", "epochs", "batch"):
            require(getattr(self, key) >= 1, f"distil.{key}", getattr(self, key), "must be at least 1")
        for key in ("lr", "temperature"):
            number = getattr(self, key)
            require(0 < number < float("inf"), f"distil.{key}", number, "must be above 0")
        require(
            self.start in (known := ("last", "detectors")),
            "distil.start",
            self.start,
            nearest(str(self.start), known),
        )

    def job(self, general: ModelSpec, detector: ModelSpec) -> Train:
        objective = Distil(detector, self.temperature, Calibration(self.calibrate, self.noise))
        return Train(general, objective, optim=Adam(self.lr), batch=self.batch, epochs=self.epochs)
