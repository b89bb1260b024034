"""One detector for every class, trained by devices that hold the class: classes are clustered, not devices.

Devices say once which classes they hold; from then on each is given the detector of one of them. What becomes
of the answers, and when devices are asked, is a *pace*: in rounds (`Together`) or one by one (`AsTheyCome`).
Beside this, in a lane of its own, the server distils all detectors into one general model.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch

from potluck.algorithms.classter.assignment import (
    Schedule,
    assign_classes,
    enrol,
    find_ready,
    imbalance,
)
from potluck.algorithms.classter.convergence import Convergence, note_convergence
from potluck.algorithms.classter.device.detect import Detect, Fall
from potluck.algorithms.classter.device.distil import (
    DEVIATION,
    MEAN,
    Calibration,
    Distillation,
    Loudest,
    join_detectors,
)
from potluck.algorithms.classter.device.question import DETECTORS, GENERAL, KINDS, Question
from potluck.algorithms.classter.judge import Asking, hear
from potluck.algorithms.classter.pace import Pace
from potluck.algorithms.classter.state import Detectors, follow_means, start_detectors
from potluck.authoring import (
    Command,
    ConfigError,
    Context,
    FederationFacts,
    Got,
    LabelSet,
    Lane,
    Node,
    Note,
    Task,
    Train,
    Tree,
    Until,
    add,
    nearest,
    require,
    use_model,
    value,
)
from potluck.core import keys
from potluck.rules.serving import map_task

DISTIL, JUDGE = "distil", "judge"
STRIDE = 10  # updates between two notes of the counters


@value
class ClassWise:
    """A detector for every class, and one model distilled from all of them; rounds or not is its pace's."""

    local: Train  # of a detector
    distil: Train
    tuning: Train  # of a device, before it uses the general model
    question: Question | None  # what devices are asked of detectors and general model
    clients: int
    pace: Pace
    schedule: Schedule
    distillation: Distillation
    convergence: Convergence
    until_converged: bool
    deadline: float | None
    average: int  # updates that the mean of a detector reaches back over

    def __post_init__(self) -> None:
        known = ("least", "gather", "random")
        require(self.clients >= 1, "clients", self.clients, "must be at least 1: devices at work at a time")
        require(self.average >= 1, "average", self.average, "must be at least 1: the last update alone")
        require(self.schedule in known, "schedule", self.schedule, nearest(str(self.schedule), known))
        limit = self.deadline
        require(limit is None or limit > 0, "deadline", limit, "must be above 0 seconds, or left out")

    def fits(self, federation: FederationFacts) -> None:
        """Refuse a federation without a server-side set, with a class nobody holds, or with other rows."""
        if not federation.server:
            raise ConfigError(
                "data.server is missing: distillation needs rows at the server, without labels; "
                "set aside a share, such as data.server = 0.1"
            )
        labels = federation.count_labels()
        nobody = [] if labels is None else [c for c, rows in enumerate(labels) if not rows]
        if nobody:
            raise ConfigError(
                f"classes {nobody}: no client holds one, so nobody can train their detectors; "
                "raise data.limit or data.clients, or choose another data.partition"
            )
        objective = self.local.objective
        detect = objective.inner if isinstance(objective, Fall) else objective
        assert isinstance(detect, Detect)
        if detect.contrast and (federation.tokens or not detect.augment.suits(federation.shape)):
            kind = "tokens" if federation.tokens else f"rows of shape {federation.shape}"
            raise ConfigError(
                f"augment = {type(detect.augment).__name__!r}: doesn't fit {kind}; Crop is for images "
                "(channels, height, width), Jitter for vectors and signals; contrast = 0 needs none"
            )

    def start(self, ctx: Context) -> Detectors:
        detector, classes = ctx.models[self.local.model], ctx.models[self.distil.model].classes
        alike = self.distillation.start == "detectors"  # so that the mean of their layers makes sense
        models = [detector.init(keys.derive(ctx.key, 0 if alike else c)) for c in range(classes)]
        return start_detectors(models, self.pace.start(classes))

    def lanes(self, m: Detectors, ctx: Context) -> Iterable[Lane]:
        new = m.total - m.distilled
        done = self.until_converged and len(m.converged) == len(m.models)
        due = new >= self.distillation.every or (new and (ctx.stop or done))
        distil = (DISTIL,) if due else ()
        # First, so that those who are asked in waves aren't sent to train in between.
        judge = (
            (JUDGE,) if self.question is not None and m.general is not None and m.judged < m.distilled else ()
        )
        return (
            (*judge, *self.pace.lanes(self.clients), *distil)
            if ctx.working and not done
            else (*judge, *distil)
        )

    def plan(self, m: Detectors, lane: Lane, ctx: Context) -> tuple[Detectors, list[Command]]:
        if lane == DISTIL:
            net, detector = ctx.models[self.distil.model], ctx.models[self.local.model]
            general = m.general or net.init(ctx.key)
            if self.distillation.start == "detectors":
                general = join_detectors(detector, net, m.heard, general)
            send = {"params": general, "models": m.heard, "trained": m.trained, **_tell(m, DETECTORS)}
            return m, [Task(ctx.here, self.distil, send, m.total)]
        if lane == JUDGE:
            return self._ask(m, ctx)
        nodes = find_ready(m.chosen.get(lane, []), ctx) or ctx.sample(self.pace.count_devices(self.clients))
        if new := [node for node in nodes if node not in m.members]:
            asked = [Task(node, LabelSet(len(m.models)), {}) for node in new]
            return replace(m, chosen={**m.chosen, lane: nodes}), [Until(self.deadline), *asked]
        pairs = assign_classes(nodes, m.members, self.pace.count_updates(m), self.schedule, ctx.rng)
        targets = {c: m.trained.new_tensor(c, dtype=torch.int64) for _, c in pairs}
        sends: dict[int, dict[str, Tree]] = {
            c: {"params": m.models[c], "target": t} for c, t in targets.items()
        }
        tasks = [Task(node, self.local, sends[c], (c, m.updates[c])) for node, c in pairs]
        rows = sum(m.members[node].rows for node, _ in pairs)
        left = {k: who for k, who in m.chosen.items() if k != lane}
        return self.pace.begin(replace(m, chosen=left), lane, rows), [Until(self.deadline), *tasks]

    def merge(self, m: Detectors, lane: Lane, got: Got, ctx: Context) -> tuple[Detectors, list[Command]]:
        if lane == DISTIL:
            return self._take_general(m, got)
        if lane == JUDGE:
            return self._take_wave(m, got)
        if lane in m.chosen:
            members = {**m.members, **enrol(got.replies)}
            who = [node for node in m.chosen[lane] if node in members]
            # A wave that nobody answers counts as a round, so that a run of nothing else ends.
            return replace(m, members=members, chosen={**m.chosen, lane: who}, round=m.round + (not who)), []
        # Who no longer holds what it said is asked again when its turn comes.
        strayed = {r.task.to for r in got.replies if r.weight <= 0}
        members = {n: member for n, member in m.members.items() if n not in strayed} if strayed else m.members
        replies = [r for r in got.replies if r.weight > 0]
        before, updates = m.total, m.updates
        m, notes = self.pace.merge(replace(m, members=members, round=m.round + 1), lane, replies)
        m = follow_means(m, updates, self.average)
        m, more = note_convergence(m, replies, self.convergence)
        if m.total // STRIDE > before // STRIDE:
            more += [Note("updates", m.updates), Note("imbalance", imbalance(m.updates))]
        return m, [*notes, *more]

    def serve(self, m: Detectors, node: Node, ctx: Context) -> dict[str, Task]:
        general = m.general if self.question is None or m.standing.prefers_general else None
        if general is None:
            job = use_model(self.local.model, Loudest(self._device_calibration()))
            send: dict[str, Tree] = {"models": m.heard, "trained": m.trained, **_tell(m, DETECTORS)}
            return {"classter": Task(node, job, send)}
        plain = Task(node, use_model(self.distil.model), {"params": general, **_tell(m, GENERAL)})
        # The server's rows are nobody's own, and have no labels.
        return {"classter": plain if node == ctx.me else map_task(plain, self.tuning)}

    def _device_calibration(self) -> Calibration:
        """How devices measure detectors: they have noise, but not the server's rows."""
        how = self.distillation
        return Calibration("noise" if how.calibrate == "rows" else how.calibrate, how.noise)

    def _ask(self, m: Detectors, ctx: Context) -> tuple[Detectors, list[Command]]:
        """The next wave of those who are asked, or the first one: all that there is to judge."""
        asking, question = m.asking, self.question
        assert question is not None
        if asking is not None and asking.wave:
            send: dict[str, Tree] = {"at": dict(asking.at or {}), "offset": asking.offset}
        else:
            members = sorted(m.members)
            ready = ctx.only(members).sample(self.clients) if members else []
            others = [node for node in members if node not in ready]
            more = ctx.rng.permutation(len(others))[: max(0, self.clients - len(ready))]
            asking = Asking([*ready, *(others[i] for i in more)], m.distilled)
            send = {"params": m.general, "models": m.heard, "trained": m.trained}
        if not asking.nodes:
            return replace(m, judged=m.distilled), []  # nobody to ask
        asked = [Task(node, question, send, slot=JUDGE) for node in asking.nodes]
        return replace(m, asking=asking), [Until(self.deadline), *asked]

    def _take_wave(self, m: Detectors, got: Got) -> tuple[Detectors, list[Command]]:
        assert m.asking is not None
        wave, about = hear(m.asking, got.replies), m.asking.about
        if wave.asking is not None:
            return replace(m, asking=wave.asking), []
        m = replace(m, asking=None, judged=about)
        if wave.fitted is None:
            return m, []
        standing = m.standing.after(wave.rows, wave.right)
        m = replace(m, fitted=wave.fitted, standing=standing)
        shares = {kind: n / max(wave.rows, 1.0) for kind, n in zip(KINDS, wave.right, strict=True)}
        told = {"rows": wave.rows, **shares, "served": float(standing.prefers_general)}
        return m, [Note("judged", told)]

    def _take_general(self, m: Detectors, got: Got) -> tuple[Detectors, list[Command]]:
        notes = list[Command]()
        for lost in got.lost:  # no numbers came of it: wait for other detectors instead of trying for ever
            assert isinstance(lost.what, Task)
            m = replace(m, distilled=lost.what.tag)
        for r in got.replies:
            m = replace(m, general=add(r.task.send["params"], r.body["delta"]), distilled=r.task.tag)
            notes.append(Note("distilled", {"updates": m.distilled, "seconds": r.spent.total}))
            for c in range(len(m.models)) if self.question is None else ():
                scale = {name: r.metrics[f"{name} {c}"] for name in (MEAN, DEVIATION)}
                notes.append(Note("calibration", scale, group=c))
        return m, notes


def _tell(m: Detectors, kind: str) -> dict[str, Tree]:
    """How sure the devices that were asked found it may be, if they were."""
    return {"scaling": m.fitted[kind].told()} if kind in m.fitted else {}
