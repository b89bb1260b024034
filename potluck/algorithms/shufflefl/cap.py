"""The work cap: who is slower than the median user of a round trains fewer batches, and counts for those.

What a user needs at least is known once its devices are gauged: as long as they train had rows been dealt by
speed, for nothing. The median of a round's users is everybody's limit, from when devices begin to move rows.
A device trains the batches for which its moves and its model's ways leave time, one at least. Where gauging
and planning took a user longer than that, its devices may train as long: a round isn't for planning.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from potluck.algorithms.shufflefl.device import DeviceGauge
from potluck.authoring import Context, Job, Move, Node, Reply, Train, Uniform, value
from potluck.fleet.cost import TRAINING_FACTOR, transfer_seconds
from potluck.jobs import InPart
from potluck.jobs.sampling import count_batches
from potluck.rules.in_time import InTime

EVEN = 1e-9  # rounding must not cost a batch that ends with the limit


@value
class Course:
    """What a device is to do after its rows have moved."""

    rows: int
    moving: float  # seconds of its moves
    moved: float  # and until the last of them has ended: they wait for each other
    link: float  # seconds of the model's ways, down and up
    row: float  # seconds of training on a row, once

    def count_batches(self, limit: float, size: int) -> int:
        """Batches that end by the limit; one at least, for a device that does nothing isn't heard."""
        fit = int((limit - self.moved - self.link) / self.row + EVEN)
        return max(1, count_batches(max(0, fit), self.rows, size))


def expect_seconds(courses: Iterable[Course], epochs: int, shuffle: bool) -> float:
    """What a user needs at least; 0 if it has no rows. Whose model takes longer than that gets none."""
    there = sorted(courses, key=lambda course: course.link)
    if not shuffle:
        return max((c.link + c.rows * epochs * c.row for c in there if c.rows), default=0.0)
    rows, least, speed, spent = sum(c.rows for c in there) * epochs, 0.0, 0.0, 0.0
    if not rows:
        return 0.0
    for course in there:
        if speed and course.link >= least:
            break
        speed, spent = speed + 1 / course.row, spent + course.link / course.row
        least = (rows + spent) / speed
    return least


def find_limit(seconds: Sequence[float]) -> float | None:
    """The median of what users need; None where there is nobody to compare with."""
    known = [each for each in seconds if each > 0]
    return float(np.median(known)) if len(known) > 1 else None


def find_least(limit: float | None, left: float | None) -> float | None:
    """The sooner of a limit and what is left until a deadline, so that nothing that ends with it is late."""
    known = [each for each in (limit, None if left is None else left * (1 - EVEN)) if each is not None]
    return min(known, default=None)


def read_claims(nodes: Sequence[Node], local: Train, ctx: Context) -> dict[Node, Course]:
    """What devices below no hub are to do, by what they say of themselves."""
    rows, claims = ctx.rows(nodes).tolist(), InTime(Uniform(), local, 0.0).read_claims(nodes, ctx)
    return {
        n: Course(count, 0.0, 0.0, pace.link, pace.row)
        for n, count, pace in zip(nodes, rows, claims, strict=True)
    }


def follow_moves(
    found: Mapping[Node, DeviceGauge], moves: Sequence[Move], model_bytes: float
) -> dict[Node, Course]:
    """Every device after these moves, which wait for each other as in its queue."""
    rows = {n: sum(device.counts) for n, device in found.items()}
    busy, free = dict.fromkeys(found, 0.0), dict.fromkeys(found, 0.0)
    for move in moves:
        source, target, count = found[move.src], found[move.dst], sum(n for _, n in move.take)
        size = source.row_bytes * count
        took = transfer_seconds(size, source.up, source.latency)
        took += transfer_seconds(size, target.down, target.latency)
        free[move.src] = free[move.dst] = max(free[move.src], free[move.dst]) + took
        for node, more in ((move.src, -count), (move.dst, count)):
            rows[node], busy[node] = rows[node] + more, busy[node] + took
    return {
        n: Course(rows[n], busy[n], free[n], d.transfer(model_bytes), TRAINING_FACTOR * d.compute)
        for n, d in found.items()
    }


def cap_job(job: Job, course: Course, limit: float | None) -> Job:
    """The training that a device has time for; what isn't training is left as it is."""
    if limit is None or not isinstance(job, Train):
        return job
    return replace(job, sampler=InPart(job.sampler, course.count_batches(limit, job.batch)))


def count_spared(courses: Mapping[Node, Course], replies: Sequence[Reply]) -> float:
    """Seconds by which a user would have taken longer, had its devices trained on all of their rows."""
    ends, whole = [0.0], [0.0]
    for reply in replies:
        course, spent = courses[reply.task.to], reply.spent
        ends.append(course.moved + spent.total)
        more = course.rows / reply.weight if reply.weight > 0 else 1.0
        whole.append(ends[-1] + spent.compute * max(0.0, more - 1.0))
    return max(whole) - max(ends)
