"""Class models without rounds: every answer is mixed into its model as it comes (asynchronous ClassTer).

Counters are published late, so that devices gather on one model for a while instead of being scattered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import torch

from potluck.algorithms.classter.rule import Classes
from potluck.algorithms.classter.staleness import CriticalHinge, Durations, Progress
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.messages import Command, Lane, Note, Reply
from potluck.core.trees import add, tmap


@value(eq=False)
class Arrivals:
    """What has come so far, and who is at work."""

    progress: list[Progress]  # of each class
    durations: Durations
    published: list[int]  # updates of each class, as devices are assigned by them
    rows: Mapping[Lane, float] = field(default_factory=dict)  # of the devices at work

    def after(self, c: int, progress: Progress, seconds: float) -> "Arrivals":
        """With one answer more for class c."""
        each = [progress if k == c else p for k, p in enumerate(self.progress)]
        return replace(self, progress=each, durations=self.durations.after(seconds))


@value
class AsTheyCome:
    """Every answer is mixed into its class's model at once, by the hinge's share."""

    hinge: CriticalHinge = CriticalHinge()
    publish: int = 10  # K: updates that are cached before assignments take notice of them

    def __post_init__(self) -> None:
        require(
            self.publish >= 1, "publish", self.publish, "must be at least 1: updates between publications"
        )

    def start(self, classes: int) -> Arrivals:
        return Arrivals([Progress()] * classes, Durations(), [0] * classes)

    def lanes(self, clients: int) -> range:
        return range(clients)

    def asked(self, clients: int) -> int:
        return 1

    def seen(self, m: Classes) -> Sequence[int]:
        published: list[int] = m.paced.published
        return published

    def begun(self, paced: Arrivals, lane: Lane, rows: float) -> Arrivals:
        return replace(paced, rows={**paced.rows, lane: rows})

    def merge(self, m: Classes, lane: Lane, replies: Sequence[Reply]) -> tuple[Classes, list[Command]]:
        seen: Arrivals = m.paced
        notes = list[Command]()
        for r in replies:
            m, more = self._mixed(m, r)
            notes += more
        updates, published = m.updates, seen.published
        if sum(updates) - sum(published) >= self.publish:
            published = list(updates)
        left = {k: n for k, n in seen.rows.items() if k != lane}
        return replace(m, paced=replace(m.paced, published=published, rows=left)), notes

    def _mixed(self, m: Classes, r: Reply) -> tuple[Classes, list[Command]]:
        c, version = r.task.tag
        paced: Arrivals = m.paced
        before, hinge = paced.progress[c], self.hinge
        share_of_rows = r.weight / max(sum(paced.rows.values()), r.weight)  # N_k / N_t
        progress = before.after(share_of_rows * r.metrics["fall"], hinge.window)
        after = paced.after(c, progress, r.spent.total)
        openness = hinge.openness(progress, max(p.total for p in after.progress))
        # The first answers are the fleet's profile: none of them is late.
        known = paced.durations.count >= max(2, len(paced.rows))
        late = known and r.spent.total >= hinge.limit(paced.durations, openness)
        staleness = m.updates[c] - version
        share = hinge.share(late or hinge.period == "off", staleness)
        models, updates = list(m.models), list(m.updates)
        theirs = add(r.task.send["params"], r.body["delta"])
        models[c] = tmap(lambda ours, new: torch.lerp(ours, new, share), models[c], theirs)
        updates[c] += 1
        notes: list[Command] = [Note("staleness", staleness, group=c), Note("share", share, group=c)]
        critical = hinge.critical(progress)
        if not before.answers or critical != hinge.critical(before):
            notes.append(Note("critical", critical, group=c))
        return replace(m, models=models, updates=updates, paced=after), notes
