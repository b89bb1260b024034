"""The simulator: algorithms above, devices below, one virtual clock, one event at a time."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from potluck.core.errors import SnapshotError, StalledError
from potluck.core.job import ModelSpec
from potluck.core.messages import (
    Answer,
    Cancel,
    Command,
    Event,
    Lane,
    Move,
    Node,
    Note,
    Stop,
    Task,
    Tell,
    Until,
    Wake,
)
from potluck.core.records import Record
from potluck.core.trees import Params
from potluck.engine import snapshot
from potluck.engine.accounts import Accounts
from potluck.engine.checks import check_run
from potluck.engine.context import Lots, SimContext
from potluck.engine.memories import Keeps
from potluck.engine.records import Records
from potluck.engine.schedule import EvaluateAt, Progress, StopAt
from potluck.execute.plan import ExecutionPlan, Executor, make_executor
from potluck.execute.process import tune_process
from potluck.federation import Federation
from potluck.fleet import Topology, machines
from potluck.rules import as_algorithm
from potluck.simulate.clock import Clock
from potluck.simulate.devices import DONE, Devices
from potluck.simulate.evaluate import evaluate, evaluate_shifts, panel, served
from potluck.simulate.links import HEAR, Links

EVALUATE, STOP = "evaluate", "stop"
LOOK = "look again"  # tag of the alarm of an aggregator that waits for devices
PATIENCE = 100_000  # looks for somebody online, with nothing else under way, before a run is called stalled


class Simulation:
    """One run of one algorithm in one federation."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Any,
        *,
        seed: int,
        stop: StopAt,
        evaluate: EvaluateAt = EvaluateAt(),
        plan: ExecutionPlan = ExecutionPlan(),
        folder: Path | None = None,
        snapshot_every: float = 30.0,  # seconds of the wall clock
        identity: str = "",
        on_shrink: Callable[[int], None] | None = None,  # is told how many clients a stack takes from now on
        executor: Executor | None = None,  # in place of the plan's
    ) -> None:
        check_run(federation, algorithm, evaluate)
        self.executor, self.on_shrink = executor or make_executor(plan, self._shrink), on_shrink
        federation = federation if plan.device == "cpu" else federation.on(plan.device)
        self.federation, self.seed, self.stop, self.often = federation, seed, stop, evaluate
        self.plan, self.folder, self.identity, self.snapshot_every = plan, folder, identity, snapshot_every
        self.topology = Topology.build(
            len(federation.fleet), getattr(algorithm, "tiers", ()), federation.fleet.groups
        )
        self.children = {n: self.topology.children(n) for n in self.topology.aggregators}
        self.algorithms = {n: as_algorithm(self._at(algorithm, n)) for n in self.topology.aggregators}
        self.root, true = self.topology.root, machines(federation.fleet, self.topology)
        honest = federation.fleet.claimed is federation.fleet.true
        self.claimed = true if honest else machines(federation.fleet, self.topology, claimed=True)
        self.panel = panel(len(federation.fleet), evaluate.panel, seed)
        self.clock, self.accounts, self.lots = Clock(), Accounts.of(len(federation.fleet)), Lots(seed)
        self.logs = Records(None if folder is None else folder / "records.jsonl")
        self.keeps = Keeps(None if folder is None else folder / "keep.log", device=plan.device)
        shared = (self.clock, self.executor, self.keeps, self.accounts)
        self.devices = Devices(federation, self.topology, true, *shared, self.record, seed)
        self.always = self.devices.always
        self.links = Links(self.topology, true, self.clock, self.accounts)
        self.states: dict[Node, Any] = {}
        self.ticks = dict.fromkeys(self.topology.aggregators, 0)  # events heard, for their randomness
        self.idle_looks = self.round = self.evaluations = self.snapshots = 0
        self.evaluated: tuple[int, float] | None = None  # round and time of the last evaluation
        self.accuracy: float | None = None
        self.stopping = self.finished = False
        self.said: list[str] = []

    @property
    def now(self) -> float:
        return self.clock.now

    @property
    def records(self) -> list[Record]:
        return self.logs.kept

    def _at(self, algorithm: Any, node: Node) -> Any:
        return algorithm.at(self.topology.tier(node)) if self.topology.tiers else algorithm

    # ---------------------------------------------------------------------------------------------- running

    def run(self, progress: Callable[[Progress], None] | None = None) -> None:
        """To the end; a run that was resumed goes on where it was."""
        try:
            with tune_process():
                if not self.states:
                    self.start()
                shown = self.saved = time.monotonic()
                while self.step():
                    wall = time.monotonic()
                    if self.folder is not None and wall - self.saved >= self.snapshot_every:
                        self.save()
                    if progress is not None and wall - shown >= 0.1:
                        progress(self.progress())
                        shown = wall
                if progress is not None:
                    progress(self.progress())
        finally:
            self.close()

    def start(self, evaluate: bool = True) -> None:
        """Let every aggregator begin, those below first, and look at the models before training."""
        self.keeps.recall(self.federation.memories)
        for node in reversed(self.topology.aggregators):
            self.states[node], commands = self.algorithms[node].init(SimContext(self, node, (0,)))
            self._obey(node, commands)
            self._look_again(node)
        if self.stop.seconds is not None:
            self.clock.push(self.stop.seconds, STOP, None)
        if self.often.seconds is not None:
            self.clock.push(self.often.seconds, EVALUATE, None)
        if evaluate:
            self._evaluate()
        if self.folder is not None:
            self.save()

    def step(self) -> bool:
        """One event; False when the run is over."""
        if self.finished:
            return False
        quiet = not self.devices.flights and self.links.messages == 0
        if quiet and (self.stopping or (not self.links.alarms and self._nothing_left())):
            self._finish()
            return False
        kind, what = self.clock.pop()
        if kind == DONE:
            heard = self.devices.done(what)
            if heard is not None:
                self._hear(*heard)
        elif kind == HEAR:
            if self.links.arrived(*what):
                self._hear(*what[:2])
        elif kind == EVALUATE:
            if not self.stopping and self.often.seconds is not None:
                self._evaluate()
                self.clock.push(self.now + self.often.seconds, EVALUATE, None)
        elif not self.stopping:
            self._stop()
        if self.stop.device_seconds is not None and self.accounts.seconds >= self.stop.device_seconds:
            self._stop()
        self.devices.look_ahead()
        return True

    def progress(self) -> Progress:
        done = self.stop.share(self.round, self.now, self.accounts.seconds)
        return Progress(self.round, self.now, self.accuracy, done)

    def served(self) -> dict[str, tuple[ModelSpec, Params]]:
        """The models that the cloud serves, by view."""
        tasks = served(self, self.root)
        return {v: (t.job.model, t.send["params"]) for v, t in tasks.items() if "params" in t.send}  # type: ignore[attr-defined]

    def record(self, metric: str, number: Any, **whose: Any) -> None:
        self.logs.write(self.round, self.now, metric, number, **whose)

    def close(self) -> None:
        """Give back processes and files; the state stays readable."""
        self.executor.close()
        self.logs.close()
        self.keeps.close()

    # ------------------------------------------------------------------------------------------- algorithms

    def _hear(self, node: Node, event: Event) -> None:
        tick = self.ticks[node] = self.ticks[node] + 1
        algorithm, ctx = self.algorithms[node], SimContext(self, node, (tick,))
        self.states[node], commands = algorithm.receive(self.states[node], event, ctx)
        if commands:
            self._obey(node, commands)
        if not self.always:
            self._look_again(node)
        if node == self.root and not self.stopping:
            self._count_rounds()

    def _count_rounds(self) -> None:
        before, self.round = self.round, self.algorithms[self.root].round(self.states[self.root])
        if self.round == before:
            return
        if self.stop.rounds is not None and self.round >= self.stop.rounds:
            self._stop()
        elif self.often.rounds is not None and self.round // self.often.rounds > before // self.often.rounds:
            self._evaluate()

    def _obey(self, me: Node, commands: list[Command]) -> None:
        accept, devices = self.devices.accept, self.devices.size
        for c in commands:
            kind = type(c)
            if kind is Task:
                if c.to < devices or c.to == me:  # type: ignore[union-attr]
                    accept(me, c)  # type: ignore[arg-type]
                else:
                    self.links.below(me, c)  # type: ignore[arg-type]
            elif isinstance(c, Note):
                self.record(c.name, c.value, group=c.group)
            elif isinstance(c, Tell | Move):
                accept(me, c)
            elif isinstance(c, Cancel):
                if not self.devices.cancel(me, c.id, self.stopping):
                    self.links.cancel(me, c.id)
                elif not self.stopping:
                    self.accounts.lose("late")
            elif isinstance(c, Wake):
                self.links.alarm(me, c)
            elif isinstance(c, Answer):
                self.links.above(me, c)
            else:
                assert isinstance(c, Until), f"not a command: {c!r}"  # outside Rounds it means nothing

    # --------------------------------------------------------------------------------------- ends and looks

    def _evaluate(self) -> None:
        if self.evaluated == (self.round, self.now):
            return
        self.accuracy = evaluate(self)
        self.evaluations += 1
        self.evaluated = (self.round, self.now)
        target = self.stop.target
        if target is not None and self.accuracy is not None and self.accuracy >= target and not self.stopping:
            self._stop()

    def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        for node in self.topology.aggregators:
            self._hear(node, Stop())

    def _look_again(self, node: Node) -> None:
        """An aggregator with parked lanes and nothing under way is woken when devices may have come."""
        if self.always or self.devices.ids[node] or self.links.owing[node] or self.stopping:
            self.idle_looks = 0
        elif (node, LOOK) not in self.links.alarms and self._waiting(node):
            look = self.federation.fleet.availability.change(self.now)
            self.idle_looks += 1
            if look < float("inf") and self.idle_looks <= PATIENCE:
                self.links.alarm(node, Wake(look, LOOK))

    def _waiting(self, node: Node) -> list[Lane]:
        return list(self.algorithms[node].waiting(self.states[node], SimContext(self, node, (0,))))

    def _nothing_left(self) -> bool:
        """With nothing under way and no alarm set, the algorithm is done, unless lanes are stuck."""
        stuck = {node: lanes for node in self.topology.aggregators if (lanes := self._waiting(node))}
        if stuck:
            who = "; ".join(f"{self.topology.name(n)}: lanes {lanes}" for n, lanes in stuck.items())
            raise StalledError(
                f"at {self.now:.0f} virtual seconds nothing is under way and nobody can be asked ({who}): "
                "is anyone online and idle, and does every plan that waits wait for something?"
            )
        return True

    def _finish(self) -> None:
        self.round = self.algorithms[self.root].round(self.states[self.root])
        self._evaluate()
        evaluate_shifts(self)
        self.accounts.record_private(self.logs, self.round, self.now)  # what the stop called off counts too
        self.finished = True
        if self.folder is not None:
            self.save()

    def _shrink(self, chunk: int) -> None:
        """A stack didn't fit into memory: those to come are smaller, after a resume too."""
        self.plan = replace(self.plan, chunk=chunk)
        self.saved = float("-inf")  # a snapshot is due: resuming from before would shrink at another time
        self.said.append(f"out of memory: stacks of {chunk} clients from now on")
        if self.on_shrink is not None:
            self.on_shrink(chunk)

    # --------------------------------------------------------------------------------------------- snapshots

    def save(self) -> None:
        """Write a snapshot into the run's folder."""
        assert self.folder is not None
        self.snapshots += 1
        snapshot.write(self.folder / "snapshots", self.snapshots, self.state())
        self.saved = time.monotonic()

    # What changes during a run and is stored as it is.
    _PLAIN = (
        *("states", "ticks", "round", "accounts", "evaluations", "evaluated", "accuracy"),
        *("idle_looks", "stopping", "finished"),
    )

    def state(self) -> dict[str, Any]:
        """All that changes during a run; reads, never touches, but waits for training that is under way."""
        self.devices.settle()  # first: it may make stacks smaller
        kept = self.keeps.flush()
        return {
            "identity": self.identity,
            "plan": self.plan,
            "records": self.logs.flush(),
            "keeps": (self.keeps.state(), kept),
            "clock": self.clock.state(),
            "devices": self.devices.state(),
            "links": self.links.state(),
            "trail": list(self.devices.trail),
            **{name: getattr(self, name) for name in self._PLAIN},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a state; the logs are cut to its length."""
        if state["identity"] != self.identity:
            raise SnapshotError(
                f"{self.folder}: the snapshot is of another experiment (experiment.toml has changed since?): "
                "put the old file back, or run the new one into another folder"
            )
        for name in self._PLAIN:
            setattr(self, name, state[name])
        self.devices.charge_to(self.accounts)
        self.links.accounts = self.accounts
        self.clock.restore(state["clock"])
        self.devices.restore(state["devices"])
        self.links.restore(state["links"])
        self.devices.trail.extend(state["trail"])
        self.keeps.restore(*state["keeps"])
        self.logs.truncate(state["records"])

    @classmethod
    def resume(cls, federation: Federation, algorithm: Any, *, folder: Path, **settings: Any) -> Self:
        """The run of a folder, where its newest good snapshot left it."""
        if not any((folder / "snapshots").glob("*.snapshot")):  # killed before the first one: begin again
            for log in ("records.jsonl", "keep.log"):
                (folder / log).unlink(missing_ok=True)
            return cls(federation, algorithm, folder=folder, **settings)
        device = settings.get("plan", ExecutionPlan()).device
        serial, state, said = snapshot.newest(folder / "snapshots", device)
        plan = state["plan"]
        plan = replace(plan, chunk=min(plan.chunk, settings.get("plan", plan).chunk))  # shrunk since, perhaps
        sim = cls(federation, algorithm, folder=folder, **(settings | {"plan": plan}))
        sim.restore(state)
        sim.snapshots, sim.said = serial, said
        return sim
