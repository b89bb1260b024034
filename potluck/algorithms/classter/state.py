"""What ClassTer's server remembers: the detectors of all classes, and how far they have come."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import torch
from torch import Tensor

from potluck.algorithms.classter.judge import Asking, Fitted, Standing
from potluck.algorithms.classter.staleness import Durations, Progress
from potluck.authoring import Lane, Node, Params, tmap, value


@value(eq=False)
class Member:
    """What a device said when it enrolled."""

    classes: tuple[int, ...]
    rows: float


@value(eq=False)
class Arrivals:
    """What has come so far, where answers are taken in one by one, and who is at work."""

    progress: list[Progress]  # of each class
    durations: Durations
    published: list[int]  # updates of each class, as devices are assigned by them
    rows: Mapping[Lane, float] = field(default_factory=dict)  # of the devices at work

    def after(self, c: int, progress: Progress, seconds: float) -> "Arrivals":
        """With one answer more for class c."""
        each = [progress if k == c else p for k, p in enumerate(self.progress)]
        return replace(self, progress=each, durations=self.durations.after(seconds))


@value(eq=False)
class Detectors:
    """The detectors of all classes and how far they have come."""

    models: list[Params]
    updates: list[int]  # e_n: answers that each has taken in
    members: dict[Node, Member]
    losses: list[list[float]]  # of each class's last answers, oldest first
    trained: Tensor  # [classes] whether each was ever trained
    arrivals: Arrivals | None  # None: in rounds
    converged: Mapping[int, int] = field(default_factory=dict)  # class -> its updates by then
    general: Params | None = None  # what was made of all of them last
    distilled: int = 0  # updates before that was begun
    chosen: Mapping[Lane, list[Node]] = field(default_factory=dict)  # being enrolled, to be trained next
    round: int = 0
    means: list[Params] | None = None  # of each class's last models; None: the last alone
    asking: Asking | None = None
    judged: int = 0  # updates in the general model that devices judged last
    fitted: Mapping[str, Fitted] = field(default_factory=dict)
    standing: Standing = Standing()

    @property
    def heard(self) -> list[Params]:
        """The detectors that answer and teach."""
        return self.models if self.means is None else self.means

    @property
    def total(self) -> int:
        return sum(self.updates)


def follow_means(m: Detectors, before: Sequence[int], reach: int) -> Detectors:
    """With what each class's new updates make of the mean of its last ones."""
    if reach == 1:
        return m
    means = list(m.heard)
    for c, (had, has) in enumerate(zip(before, m.updates, strict=True)):
        if has > had:
            share = min(1.0, (has - had) / min(has, reach))
            means[c] = tmap(lambda old, new: torch.lerp(old, new, share), means[c], m.models[c])  # noqa: B023
    return replace(m, means=means)


def start_detectors(models: list[Params], arrivals: Arrivals | None) -> Detectors:
    """Before anybody has trained."""
    like = next(iter(models[0].values()))
    trained = torch.zeros(len(models), dtype=torch.bool, device=like.device)
    return Detectors(models, [0] * len(models), {}, [[] for _ in models], trained, arrivals)
