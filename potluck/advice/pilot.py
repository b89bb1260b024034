"""Short pilots: FedAvg and what was advised, for the same virtual time, on validation rows.

FedAvg holds some rounds, and everybody else gets the time that these took. All train at the file's learning
rate and with the file's tables; so a pilot that disagrees is a reason to look closer, not a proof. Two things
are laid out for it, for all alike. Validation rows look like a device's train rows; where its test rows do
not, as many of its validation rows are replaced by other devices' validation rows of classes that it doesn't
train on, so that no test row is needed. And where devices lack the memory for the full model, FedAvg trains
the widest one that all can, as papers on small devices let it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from potluck import algorithms as registry
from potluck import metrics
from potluck.advice.recommendation import Verdict
from potluck.advice.together import Stack
from potluck.core.advice import Advice, Arm, Measured
from potluck.core.codec import Json
from potluck.core.errors import PotluckError
from potluck.core.job import ModelSpec
from potluck.data import Pool, Split
from potluck.data.holding import Overlay
from potluck.experiment import Experiment, run
from potluck.experiment.build import build_federation, build_training
from potluck.experiment.launch.follower import Show
from potluck.experiment.schema.settings import dump_given
from potluck.federation import Federation
from potluck.fleet import Fleet
from potluck.models.footprint import training_bytes
from potluck.models.functional import Model

ROUNDS = 30  # of FedAvg: accuracies have parted by then, and it takes seconds
POINTS = 6  # evaluations
PANEL = 100  # devices that are evaluated
REHEARSED = 0.02  # share of unseen test rows from which on validation rows are made alike
SERVER = 0.1  # share of the rows that the server gets where a piloted system needs some
NARROWEST = 1 / 64
BASE = "fedavg"


@dataclass(frozen=True)
class Trial:
    """What one algorithm came to; `failed` says why it couldn't run."""

    algorithm: str
    accuracy: float | None = None  # at the end
    late: float | None = None  # mean over the last third of the time: less noisy than its end
    rounds: int = 0
    seconds: float = 0.0  # virtual
    failed: str = ""


@dataclass(frozen=True)
class Pilot:
    """All trials, FedAvg first."""

    trials: tuple[Trial, ...]
    margin: float  # accuracies nearer than this can't be told apart
    wanted: str | None  # what was recommended; None: plain FedAvg
    remarks: list[str] = field(default_factory=list)  # what was laid out otherwise than in the file
    stack: Trial | None = None  # of the layers that were named, beside the algorithms

    def ahead(self, trial: Trial) -> float | None:
        """Accuracy above FedAvg's, over the last third."""
        base = self.trials[0].late
        return None if trial.late is None or base is None else trial.late - base

    @property
    def best(self) -> str:
        """Whoever is ahead; FedAvg unless somebody is so by more than the margin."""
        leads = [(ahead, t.algorithm) for t in self.trials[1:] if (ahead := self.ahead(t)) is not None]
        ahead, name = max(leads, default=(0.0, BASE))
        return name if ahead > self.margin else BASE

    @property
    def agrees(self) -> bool | None:
        """Whether what was recommended is best, or as good as the best; None: it couldn't be tried."""
        late = {t.algorithm: t.late for t in self.trials if t.late is not None}
        name = self.wanted or BASE
        if name not in late:
            return None
        near = late[name] >= max(late.values()) - self.margin
        return near and (self.wanted is None or late[name] > late[BASE] + self.margin)


@dataclass(frozen=True, eq=False)
class Rehearsal(Overlay):
    """A partition whose validation rows meet classes as test rows do; see above."""

    labels: NDArray[np.int64]  # [rows] of the pool
    donors: dict[int, NDArray[np.int64]]  # class -> validation rows of those who were looked at

    def rows(self, client: int, split: Split) -> NDArray[np.int64]:
        own = self.base.rows(client, split)
        if split != "validation":
            return own
        known = np.unique(self.labels[self.base.rows(client, "train")])
        tested = self.labels[self.base.rows(client, "test")]
        strange = tested[~np.isin(tested, known)]
        count = round(len(own) * len(strange) / len(tested))
        rng = np.random.default_rng(client)  # by client: the same rows whenever it is asked
        asked = rng.choice(strange, count) if count else strange[:0]
        given_ = [rng.choice(self.donors[c]) for c in asked.tolist() if c in self.donors]
        rows = np.unique([*rng.permutation(own)[: len(own) - len(given_)], *given_]).astype(np.int64)
        rows.setflags(write=False)
        return rows


def rehearse(federation: Federation, nodes: Sequence[int]) -> Federation:
    """The federation with validation rows like test rows; donors are some of the devices."""
    labels = federation.pool.y.cpu().numpy()
    rows = np.unique(np.concatenate([federation.partition.rows(int(n), "validation") for n in nodes]))
    donors = {int(c): rows[labels[rows] == c] for c in np.unique(labels[rows])}
    return replace(federation, partition=Rehearsal(federation.partition, labels, donors))


def run_pilot(
    experiment: Experiment,
    verdict: Verdict,
    measured: Measured,
    show: Show | None = None,
    rounds: int = ROUNDS,
    fleet: Fleet | None = None,
    pool: Pool | None = None,
) -> Pilot:
    """Trials of FedAvg, of the recommendation and of the best runner-up.

    `fleet` and `pool` take the place of the file's.
    """
    first, tried = verdict.first, _choose(verdict)
    remarks: list[str] = []
    needy = [a.algorithm for a in tried if a.server]
    if needy and not measured.server:
        remarks.append(f"the server was given {SERVER:.0%} of the rows, which {' and '.join(needy)} needs")
        experiment = experiment.with_values(data={**dump_given(experiment.data), "server": SERVER})
    experiment = experiment.resolve()
    federation = build_federation(experiment, pool)
    if fleet is not None:
        federation = replace(federation, fleet=fleet)
    if measured.labels.unseen >= REHEARSED:
        remarks.append("validation rows were made to meet unseen classes as often as test rows do")
        federation = rehearse(federation, measured.looked_at.tolist())
    narrow = _find_width(federation, experiment) if measured.memory.short else 1.0
    if narrow < 1:
        remarks.append(f"fedavg trains a model of {narrow:g} of the width: the widest that every device can")
    short = Experiment(
        **{
            **dump_given(experiment),
            "compare": [],
            "layers": [],  # systems are tried, each alone; and FedAvg as it comes
            "layer": {},
            "seeds": [],
            "tune": None,
            "log": {},
            "stop": {"rounds": rounds},
            "evaluate": {"on": "validation", "rounds": max(1, rounds // POINTS), "panel": PANEL},
        },
        _source=experiment.source,
    )
    width = {**dump_given(short.model), "width": experiment.model.width * narrow}
    # As many devices a round for all who choose some.
    clients = min(measured.devices, max([10, *(a.clients for a in tried)]))
    base = _run_trial(short.with_values(model=width), BASE, {"clients": clients}, federation, show)
    looks = {"on": "validation", "seconds": base.seconds / POINTS, "panel": PANEL}
    ends = {"stop": {"seconds": base.seconds}, "evaluate": looks}
    timed = short.with_values(**ends)
    arms = _plan(verdict, tried, measured, rounds, clients)
    trials = [base, *(_run_trial(timed, arm.algorithm, arm.settings, federation, show) for arm in arms)]
    rows = sum(len(federation.partition.rows(int(n), "validation")) for n in measured.looked_at[:PANEL])
    margin = math.sqrt(0.09 / max(1, rows))  # a standard error of nine tenths right
    stack = None if verdict.stack is None else _try_stack(verdict.stack, timed, federation, clients, show)
    return Pilot(tuple(trials), margin, first.algorithm if first else None, remarks, stack)


def _choose(verdict: Verdict) -> list[Advice]:
    """What is tried beside FedAvg: the recommendation and the best runner-up."""
    first = verdict.first
    if first is None:  # the best of the others is to show that nothing was missed
        return [a for a in verdict.advice[:1] if a.score > 0]
    return [first, *verdict.runners_up[:1]]


def _plan(
    verdict: Verdict, tried: Sequence[Advice], measured: Measured, rounds: int, clients: int
) -> list[Arm]:
    """What was advised, as its system would try it; then what systems would try beside it."""
    plans = [verdict.advisers[a.system].plan_pilot(a, measured, rounds, clients) for a in tried]
    beside = [arm for plan in plans for arm in plan[1:]] if verdict.first is not None else []
    return [*(plan[0] for plan in plans), *beside]


def _run_trial(
    experiment: Experiment, name: str, own: Mapping[str, Json], federation: Federation, show: Show | None
) -> Trial:
    if name not in registry.names():
        return Trial(name, failed="not there yet")
    tables = {
        key: table for key, table in dump_given(experiment).get("algorithms", {}).items() if key == name
    }
    tables = {name: {**own, **tables.get(name, {})}}
    try:
        wanted = experiment.with_values(algorithm=name, algorithms=tables)
        if show is None:
            done = run(wanted, federation=federation)
        else:
            with show(f"pilot {name}") as watch:
                done = run(wanted, progress=watch, federation=federation)
    except PotluckError as error:  # not every federation carries every system
        return Trial(name, failed=str(error).removeprefix(f"{experiment.source}: "))
    s = done.summary
    points = metrics.series(done.lines, "accuracy_mean", s["view"])
    return Trial(
        name,
        s["accuracy_mean"],
        _average_last_third(points, s["virtual_seconds"]),
        s["rounds"],
        s["virtual_seconds"],
    )


def _try_stack(
    stack: Stack, experiment: Experiment, federation: Federation, clients: int, show: Show | None
) -> Trial:
    """The layers around FedAvg, with as many devices a round as the others have."""
    members = max(1, round(clients * stack.members / federation.devices))
    layered = experiment.with_values(layers=[*stack.layers], layer=dict(stack.tables))
    return replace(_run_trial(layered, BASE, {"clients": members}, federation, show), algorithm=stack.name)


def _average_last_third(points: Sequence[metrics.Measurement], end: float) -> float | None:
    """The mean over the last third, on straight lines between looks: these fall on rounds or on seconds."""
    if not points:
        return None
    at = np.array([4, 5, 6]) * end / 6
    return float(np.interp(at, [p.time for p in points], [p.value for p in points]).mean())


def _find_width(federation: Federation, experiment: Experiment) -> float:
    """The largest share of the model's width, halved as often as need be, that every device can train."""
    m, local = experiment.model, build_training(experiment, experiment.training(BASE))
    share, least = 1.0, float(federation.fleet.true.memory.min())
    while share > NARROWEST:
        try:
            net = federation.models[ModelSpec(m.name, m.width * share, m.depth)]
        except PotluckError:  # a model of one width: all train it, as if they could
            return 1.0
        assert isinstance(net, Model)
        if training_bytes(net, local.optim, local.batch) <= least:
            break
        share /= 2
    return share
