"""What members of a tier are asked to do in a round (Fed-RAC): their work, and the lesson that they lack."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from potluck.algorithms.fedrac.device.teach import Teach
from potluck.algorithms.fedrac.schedule import confidence, features, lesson_seconds, streaming, teacher
from potluck.algorithms.fedrac.state import Tiers
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import ModelSpec
from potluck.core.messages import Node, Task
from potluck.jobs import Shuffled, Train
from potluck.models.footprint import inference_bytes

SLOT: Final = "lesson"  # the device's memory of what the teacher said


@value
class Lessons:
    """How followers learn from a richer tier."""

    local: Train
    teach: bool
    a: float
    temperature: float
    hint: float
    confident_rate: bool

    def __post_init__(self) -> None:
        self._objective(self.local.model)  # refuses what it can't do
        fix = "needs losses, which devices don't tell with train.privacy; leave one of them out"
        private = self.local.privacy is not None
        require(not (self.confident_rate and private), "confident_rate", self.confident_rate, fix)

    def tasks(
        self, m: Tiers, tier: int, nodes: Sequence[Node], ctx: Context
    ) -> tuple[Tiers, list[Task], float]:
        """A round's tasks, and seconds that lessons may add to it."""
        plain: dict[str, Any] = {"params": m.params[tier]}
        source = teacher(tier, m.left, m.done, m.chained) if self.teach else None
        if source is None:
            jobs = {n: self._job(m, tier, n) for n in nodes}
            return m, _shared([Task(n, jobs[n], plain) for n in nodes]), 0.0
        m, edition = _opened(m, source)
        if self.hint:
            m = self._adapted(m, tier, source, ctx)
            plain = {**plain, "adapter": m.adapters[tier]}
        lesson = {**plain, "teacher": m.frozen[source][1]}
        spec, net, tasks, extra = m.specs[source], ctx.models[m.specs[source]], [], 0.0
        room = _room(max(device.rows for device in m.known.values()))
        factor = self._factor(m, source)
        for n in nodes:
            device, new = m.known[n], m.taught.get(n) != (source, edition)
            slower = streaming(device, net) if new else 1.0
            objective = replace(self._objective(spec), room=room, slower=slower)
            job = replace(self._job(m, tier, n), objective=objective).scale_rate(factor)
            if new:
                extra = max(extra, lesson_seconds(device, net))
                if slower == 1.0:  # it holds the teacher, if what it says of its memory is true
                    job = replace(job, needs=float(inference_bytes(net)))
            tasks.append(Task(n, job, lesson if new else plain, (source, edition), SLOT))
        return m, _shared(tasks), extra

    def _objective(self, spec: ModelSpec) -> Teach:
        require(self.temperature > 0, "temperature", self.temperature, "must be above 0, such as 3.0")
        return Teach(spec, self.a, self.temperature, self.hint)

    def _job(self, m: Tiers, tier: int, node: Node) -> Train:
        place = m.places[node]
        sampler = Shuffled(place.rows) if place.reduced else self.local.sampler
        return replace(
            self.local, model=m.specs[tier], epochs=place.epochs, batch=place.batch, sampler=sampler
        )

    def _adapted(self, m: Tiers, tier: int, source: int, ctx: Context) -> Tiers:
        """With a map from a follower's features to its teacher's: zeros at first."""
        sizes = [features(ctx.models[m.specs[f]]) for f in (source, tier)]
        if tier in m.adapters and list(m.adapters[tier].shape) == sizes:
            return m
        like = next(iter(m.params[tier].values()))
        return replace(m, adapters=m.adapters | {tier: like.new_zeros(sizes)})

    def _factor(self, m: Tiers, source: int) -> float:
        """Of followers' learning rate."""
        if not self.confident_rate:
            return 1.0
        members = max(1, m.sizes[source])  # who trained it may have moved since
        return confidence(m.means.get(source, 0.0), members, len(m.places) / len(m.specs))


def _opened(m: Tiers, source: int) -> tuple[Tiers, int]:
    """The teacher's edition: the first when it begins to teach, the second when it has finished training."""
    edition = 1 if m.left[source] else 2
    if m.frozen.get(source, (0, None))[0] == edition:
        return m, edition
    return replace(m, frozen=m.frozen | {source: (edition, m.params[source])}), edition


def _room(rows: int) -> int:
    """A power of two, so that it doesn't change with every row that somebody gains."""
    return 1 << max(0, rows - 1).bit_length()


def _shared(tasks: list[Task]) -> list[Task]:
    """The same, with one object for equal jobs: runtimes recognise them faster."""
    jobs: dict[Any, Any] = {}
    return [replace(task, job=jobs.setdefault(task.job, task.job)) for task in tasks]
