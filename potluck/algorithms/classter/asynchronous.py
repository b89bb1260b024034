"""Class models without rounds: every answer is mixed into its model as it comes (asynchronous ClassTer).

Counters are published late, so that devices gather on one model for a while instead of being scattered.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from potluck.algorithms.classter.staleness import CriticalHinge, Durations, Progress
from potluck.algorithms.classter.state import Arrivals, Detectors
from potluck.authoring import Command, Lane, Note, Reply, add, require, tmap, value


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

    def count_devices(self, clients: int) -> int:
        return 1

    def count_updates(self, m: Detectors) -> Sequence[int]:
        return _find_arrivals(m).published

    def begin(self, m: Detectors, lane: Lane, rows: float) -> Detectors:
        arrivals = _find_arrivals(m)
        return replace(m, arrivals=replace(arrivals, rows={**arrivals.rows, lane: rows}))

    def merge(self, m: Detectors, lane: Lane, replies: Sequence[Reply]) -> tuple[Detectors, list[Command]]:
        notes = list[Command]()
        for r in replies:
            m, more = self._mix(m, r)
            notes += more
        arrivals = _find_arrivals(m)
        if m.total - sum(arrivals.published) >= self.publish:
            arrivals = replace(arrivals, published=list(m.updates))
        left = {k: n for k, n in arrivals.rows.items() if k != lane}
        return replace(m, arrivals=replace(arrivals, rows=left)), notes

    def _mix(self, m: Detectors, r: Reply) -> tuple[Detectors, list[Command]]:
        c, version = r.task.tag
        arrivals, hinge = _find_arrivals(m), self.hinge
        before = arrivals.progress[c]
        share_of_rows = r.weight / max(sum(arrivals.rows.values()), r.weight)  # N_k / N_t
        progress = before.after(share_of_rows * r.metrics["fall"], hinge.window)
        after = arrivals.after(c, progress, r.spent.total)
        openness = hinge.openness(progress, max(p.total for p in after.progress))
        # The first answers are the fleet's profile: none of them is late.
        known = arrivals.durations.count >= max(2, len(arrivals.rows))
        late = known and r.spent.total >= hinge.limit(arrivals.durations, openness)
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
        return replace(m, models=models, updates=updates, arrivals=after), notes


def _find_arrivals(m: Detectors) -> Arrivals:
    assert m.arrivals is not None, "a state in rounds"
    return m.arrivals
