"""Fed-RAC's distillation: what members of a tier do in a round, and the lesson that they lack."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from potluck.algorithms.fedrac.assignment import Place
from potluck.algorithms.fedrac.costs import lesson_seconds, streaming_factor
from potluck.algorithms.fedrac.device.teach import Teach
from potluck.algorithms.fedrac.schedule import find_teacher
from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import (
    Context,
    Got,
    Job,
    Lost,
    ModelSpec,
    Move,
    Node,
    Reply,
    Shuffled,
    Task,
    Train,
    Tree,
    value,
)
from potluck.models.footprint import inference_bytes

SLOT: Final = "lesson"  # the device's memory of what the teacher said


@value
class Remark:
    """What a task was for: it comes back with the reply."""

    tier: int
    lesson: tuple[int, int] | None = None  # whose it learns by: the teacher's tier, the edition
    helps: bool = False  # done by a device of a richer tier


def plan_round(
    s: FedRACSettings, m: Tiers, tier: int, nodes: Sequence[Node], ctx: Context
) -> tuple[Tiers, list[Task], float]:
    """A round's tasks, and seconds that lessons may add to it."""
    teacher = find_teacher(tier, m.done, m.chained) if s.distillation.enabled else None
    if teacher is None:
        return m, _plan_plain(s, m, Remark(tier), {n: m.places[n] for n in nodes}), 0.0
    return _plan_lessons(s, m, tier, teacher, nodes, ctx)


def plan_help(s: FedRACSettings, m: Tiers, tiers: Sequence[int], nodes: Sequence[Node]) -> list[Task]:
    """The work that these devices do for poorer tiers: by labels, since they have no lessons for it."""
    tasks = list[Task]()
    for tier in tiers:
        works = {n: work for n in nodes for work in m.helps.get(n, ()) if work.tier == tier}
        tasks += _plan_plain(s, m, Remark(tier, helps=True), works)
    return tasks


def split_tiers(got: Got) -> dict[int, Got]:
    """What came of each tier's tasks."""
    parts: dict[int, tuple[list[Reply], list[Lost]]] = {}
    for reply in got.replies:
        parts.setdefault(_find_remark(reply.task).tier, ([], []))[0].append(reply)
    for lost in got.lost:
        parts.setdefault(_find_remark(lost.what).tier, ([], []))[1].append(lost)
    return {tier: Got(*parts[tier]) for tier in sorted(parts)}


def leave_out_help(got: Got) -> Got:
    """The same without what richer devices did besides."""
    replies = [reply for reply in got.replies if not _find_remark(reply.task).helps]
    return Got(replies, [lost for lost in got.lost if not _find_remark(lost.what).helps])


def _find_remark(what: Task | Move) -> Remark:
    assert isinstance(what, Task)
    assert isinstance(what.tag, Remark)
    return what.tag


def find_teachers(s: FedRACSettings, specs: Sequence[ModelSpec]) -> list[ModelSpec | None]:
    """Whose model teaches each tier, if all of them have members."""
    if not s.distillation.enabled:
        return [None] * len(specs)
    return [None if f == 0 else specs[f - 1 if s.schedule.chained else 0] for f in range(len(specs))]


def _plan_lessons(
    s: FedRACSettings, m: Tiers, tier: int, teacher: int, nodes: Sequence[Node], ctx: Context
) -> tuple[Tiers, list[Task], float]:
    m, edition = _freeze_teacher(m, teacher)
    sent: dict[str, Tree] = {"params": m.params[tier]}
    lesson = {**sent, "teacher": m.frozen[teacher][1]}
    spec = m.specs[teacher]
    net, tasks, extra = ctx.models[spec], list[Task](), 0.0
    room = _round_up(max(device.rows for device in m.known.values()))
    for n in nodes:
        device, new = m.known[n], m.taught.get(n) != (teacher, edition)
        slower = streaming_factor(device, net) if new else 1.0
        objective = Teach(spec, s.distillation.a, s.distillation.temperature, room, slower)
        job = replace(_make_job(s, m, m.places[n]), objective=objective)
        if new:
            extra = max(extra, lesson_seconds(device, net))
            if slower == 1.0:  # it holds the teacher, if what it says of its memory is true
                job = replace(job, needs=float(inference_bytes(net)))
        remark = Remark(tier, (teacher, edition))
        tasks.append(Task(n, job, lesson if new else sent, remark, SLOT))
    return m, _share_jobs(tasks), extra


def _plan_plain(s: FedRACSettings, m: Tiers, remark: Remark, works: Mapping[Node, Place]) -> list[Task]:
    jobs = {n: _make_job(s, m, work) for n, work in works.items()}
    return _share_jobs([Task(n, job, {"params": m.params[remark.tier]}, remark) for n, job in jobs.items()])


def _make_job(s: FedRACSettings, m: Tiers, place: Place) -> Train:
    sampler = Shuffled(place.rows) if place.reduced else s.local.sampler
    model = m.specs[place.tier]
    return replace(s.local, model=model, epochs=place.epochs, batch=place.batch, sampler=sampler)


def _freeze_teacher(m: Tiers, teacher: int) -> tuple[Tiers, int]:
    """The teacher's edition: the first when it begins to teach, the second when it has finished training."""
    edition = 1 if m.left[teacher] else 2
    if m.frozen.get(teacher, (0, None))[0] == edition:
        return m, edition
    return replace(m, frozen=m.frozen | {teacher: (edition, m.params[teacher])}), edition


def _round_up(rows: int) -> int:
    """A power of two, so that it doesn't change with every row that somebody gains."""
    return 1 << max(0, rows - 1).bit_length()


def _share_jobs(tasks: list[Task]) -> list[Task]:
    """The same, with one object for equal jobs: runtimes recognise them faster."""
    jobs: dict[Job, Job] = {}
    return [replace(task, job=jobs.setdefault(task.job, task.job)) for task in tasks]
