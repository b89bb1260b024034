"""The simulator: algorithms above, devices below, one virtual clock, one event at a time."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import SnapshotError, StalledError
from potluck.core.job import ModelSpec, trains
from potluck.core.messages import Event, Node, Task, Wake
from potluck.core.records import Record, Whose
from potluck.core.replies import Replies
from potluck.core.rule import Runnable
from potluck.core.trees import Params
from potluck.engine import snapshot
from potluck.engine.acceptance import check
from potluck.engine.memories import Memories
from potluck.engine.point import LOOK, Point, find_moving, find_topology, place_algorithms
from potluck.engine.records import Records
from potluck.engine.schedule import EvaluateAt, Progress, StopAt
from potluck.execute.plan import ExecutionPlan, Executor, make_executor
from potluck.execute.process import tune_process
from potluck.federation import Federation
from potluck.fleet import list_claims, list_machines
from potluck.simulate.carrier import Carrier
from potluck.simulate.devices import Devices
from potluck.simulate.evaluate import Evaluator
from potluck.simulate.links import Links
from potluck.simulate.run_state import MEMORIES, RECORDS, RunState, read_newest, remove_logs

PATIENCE = 100_000  # looks for somebody online, with nothing else under way, before a run is called stalled


class Simulation:
    """One run of one algorithm in one federation. It is the Host of its aggregation points."""

    def __init__(
        self,
        federation: Federation,
        algorithm: Runnable,
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
        check(federation, algorithm, evaluate)
        self.executor, self.on_shrink = executor or make_executor(plan, self._shrink), on_shrink
        federation = federation if plan.device == "cpu" else federation.on(plan.device)
        self.federation, self.seed, self.stop, self.often = federation, seed, stop, evaluate
        self.plan, self.folder, self.identity, self.snapshot_every = plan, folder, identity, snapshot_every
        fleet, self.models = federation.fleet, federation.models
        self.topology = find_topology(algorithm, fleet)
        self.root, self.user = self.topology.root, fleet.user
        self.children = {n: self.topology.children(n) for n in self.topology.aggregators}
        self.algorithms = place_algorithms(algorithm, self.topology)
        self.machines = list_machines(fleet, self.topology)
        self.claimed = list_claims(fleet, self.topology, self.machines, find_moving(algorithm))
        self.logs = Records(None if folder is None else folder / RECORDS)
        self.memories = Memories(None if folder is None else folder / MEMORIES, device=plan.device)
        self.snapshots, self.notices = 0, list[str]()
        self._assemble(RunState.begin(identity, plan, self.topology))

    def _assemble(self, state: RunState) -> None:
        """Build all parts around a state, which is theirs from now on."""
        self.clock, self.accounts = state.clock, state.accounts
        federation, executor, often, links = self.federation, self.executor, self.often, state.links
        shared = (self.clock, executor, self.memories, self.accounts, self.record, self.seed, links.promised)
        self.devices = Devices(federation, self.topology, self.machines, *shared, state.devices)
        self.always, self.busy = self.devices.always, self.devices.queues.first
        self.count_rows = self.devices.count_rows
        self.links = Links(self.topology, self.machines, self.clock, self.accounts, links)
        carrier = Carrier(self.devices, self.links, self.record)
        self.points = {
            node: Point(node, algorithm, self, carrier, state.points[node])
            for node, algorithm in self.algorithms.items()
        }
        self.cloud = self.points[self.root]
        self.evaluator = Evaluator(federation, self, self.points, self.devices, executor, often)
        self.panel = self.evaluator.panel
        self.evaluations, self.evaluated, self.accuracy = state.evaluations, state.evaluated, state.accuracy
        self.idle_looks = state.idle_looks
        self.begun, self.stopping, self.finished = state.begun, state.stopping, state.finished

    # ---------------------------------------------------------------------------- what contexts ask of a host

    @property
    def now(self) -> float:
        return self.clock.now

    def online(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Aggregators always are."""
        found, devices = np.ones(len(nodes), bool), nodes < self.topology.devices
        found[devices] = self.federation.fleet.availability.online_many(nodes[devices], self.now)
        return found

    def owing(self, me: Node) -> set[Node]:
        return self.links.find_owing(me)

    # ---------------------------------------------------------------------------------------------- running

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """To the end; a run that was resumed goes on where it was. `look` is called after every event."""
        try:
            with tune_process():
                if not self.begun:
                    self.start()
                self.saved = time.monotonic()
                look()
                while self.step():
                    look()
                    if self.folder is not None and time.monotonic() - self.saved >= self.snapshot_every:
                        self.save()
                look()
        finally:
            self.close()

    def start(self, evaluate: bool = True) -> None:
        """Let every aggregator begin, those below first, and look at the models before training."""
        self.begun = True
        self.memories.recall(self.federation.memories)
        for node in reversed(self.topology.aggregators):
            self.points[node].begin()
            self._look_again(self.points[node])
        if self.stop.seconds is not None:
            self.clock.push(self.stop.seconds, "stop")
        if self.often.seconds is not None:
            self.clock.push(self.often.seconds, "evaluate")
        if evaluate:
            self._evaluate()
        if self.folder is not None:
            self.save()

    def step(self) -> bool:
        """One event, or replies that nothing comes between; False when the run is over."""
        if self.finished:
            return False
        if not self.busy and self.links.state.messages == 0 and self._is_over():
            self._finish()
            return False
        what = self.clock.pop()
        if type(what) is int:
            flock = self.devices.queues.flocks.get(what)
            if flock is None:
                heard: tuple[Node, Event | Replies] | None = self.devices.end(what)
            else:
                heard = self.devices.flocks.go_on(flock, self.points, self.stop.device_seconds)
            if heard is not None:
                self._hear(*heard)
        elif isinstance(what, tuple):
            node, event, serial = what
            if type(event) is Wake:
                counts = self.points[node].take_alarm(event, serial)
            else:
                counts = self.links.take(node, event)
            if counts:
                self._hear(node, event)
        elif what == "stop":
            self._stop()
        elif not self.stopping and self.often.seconds is not None:
            self._evaluate()
            self.clock.push(self.now + self.often.seconds, "evaluate")
        if self.stop.device_seconds is not None and self.accounts.seconds >= self.stop.device_seconds:
            self._stop()
        self.devices.training.look_ahead()
        return True

    @property
    def round(self) -> int:
        """How often the model that the cloud serves has changed."""
        return self.cloud.own.round

    @property
    def records(self) -> list[Record]:
        return list(self.logs.kept)

    def progress(self) -> Progress:
        done = self.stop.share(self.round, self.now, self.accounts.seconds)
        return Progress(self.round, self.now, self.accuracy, done)

    def serve(self, node: Node) -> dict[str, Task]:
        """What a node would use now, by view."""
        found = self.evaluator.find_served(node, self.evaluations)
        return {view: settled.task for view, settled in found.items()}

    def find_models(self) -> dict[str, tuple[ModelSpec, Params]]:
        """The models that the cloud serves, by view."""
        tasks = self.serve(self.root).items()
        return {v: (t.job.model, t.send["params"]) for v, t in tasks if "params" in t.send and trains(t.job)}

    def record(self, metric: str, number: Any, **whose: Unpack[Whose]) -> None:
        self.logs.write(self.round, self.now, metric, number, **whose, noted=True)

    def close(self) -> None:
        """Give back processes and files; the state stays readable."""
        self.executor.close()
        try:
            self.logs.close()
        finally:  # also if what it still had to write didn't fit on the disk
            self.memories.close()

    # --------------------------------------------------------------------------------------- ends and looks

    def _hear(self, node: Node, event: Event | Replies) -> None:
        point = self.points[node]
        point.hear(event)
        if not self.always:
            self._look_again(point)
        if node == self.root and not self.stopping:
            self._count_rounds()

    def _count_rounds(self) -> None:
        before, now = self.cloud.count_rounds()
        if now == before:
            return
        if self.stop.rounds is not None and now >= self.stop.rounds:
            self._stop()
        elif self.often.rounds is not None and now // self.often.rounds > before // self.often.rounds:
            self._evaluate()

    def _evaluate(self) -> None:
        if self.evaluated == (self.round, self.now):
            return
        lines, self.accuracy = self.evaluator.evaluate(self.evaluations)
        for metric, number, node, view in lines:
            self.logs.write(self.round, self.now, metric, number, node=node, view=view)
        self.accounts.record(self.logs, self.round, self.now)
        self.evaluations += 1
        self.evaluated = (self.round, self.now)
        target = self.stop.target
        if target is not None and self.accuracy is not None and self.accuracy >= target:
            self._stop()

    def _stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        for node in self.topology.aggregators:
            self.points[node].stop()
            if not self.always:
                self._look_again(self.points[node])

    def _look_again(self, point: Point) -> None:
        """An aggregator with parked lanes and nothing under way is woken when devices may have come."""
        if self.always or self.stopping or point.carrier.works(point.node):
            self.idle_looks = 0
        elif point.should_look():
            look = self.federation.fleet.availability.change(self.now)
            self.idle_looks += 1
            if look < float("inf") and self.idle_looks <= PATIENCE:
                point.set_alarm(Wake(look, LOOK))

    def _is_over(self) -> bool:
        """With nothing under way and no alarm set, the algorithm is done, unless lanes are stuck."""
        if self.stopping:
            return True
        if any(point.own.alarms for point in self.points.values()):
            return False
        stuck = {node: lanes for node, point in self.points.items() if (lanes := point.find_waiting())}
        if stuck:
            who = "; ".join(f"{self.topology.name(n)}: lanes {lanes}" for n, lanes in stuck.items())
            raise StalledError(
                f"at {self.now:.0f} virtual seconds nothing is under way and nobody can be asked ({who}): "
                "is anyone online and idle, and does every plan that waits wait for something?"
            )
        return True

    def _finish(self) -> None:
        self.cloud.count_rounds()
        self._evaluate()
        for metric, number, _, view in self.evaluator.evaluate_shifts(self.evaluations - 1):
            self.record(metric, number, view=view)
        self.accounts.record_private(self.logs, self.round, self.now)  # what the stop called off counts too
        self.finished = True
        if self.folder is not None:
            self.save()

    def _shrink(self, chunk: int) -> None:
        """A stack didn't fit into memory: those to come are smaller, after a resume too."""
        self.plan = replace(self.plan, chunk=chunk)
        self.saved = float("-inf")  # a snapshot is due: resuming from before would shrink at another time
        self.notices.append(f"out of memory: stacks of {chunk} clients from now on")
        if self.on_shrink is not None:
            self.on_shrink(chunk)

    # --------------------------------------------------------------------------------------------- snapshots

    def save(self) -> None:
        """Write a snapshot into the run's folder."""
        assert self.folder is not None
        self.snapshots += 1
        self.memories.make_room()
        snapshot.write(self.folder, self.snapshots, self.make_state())
        self.saved = time.monotonic()

    def make_state(self) -> RunState:
        """All that changes during a run; reads, never touches, but waits for training that is under way."""
        self.devices.training.settle()  # first: it may make stacks smaller
        return RunState(
            identity=self.identity,
            plan=self.plan,
            clock=self.clock,
            points={node: point.own for node, point in self.points.items()},
            devices=self.devices.make_state(),
            links=self.links.state,
            accounts=self.accounts,
            memories=self.memories.flush(),
            records=self.logs.flush(),
            evaluations=self.evaluations,
            evaluated=self.evaluated,
            accuracy=self.accuracy,
            idle_looks=self.idle_looks,
            begun=self.begun,
            stopping=self.stopping,
            finished=self.finished,
        )

    def restore(self, state: RunState) -> None:
        """Go back to a state, which is this simulation's from now on; the logs are cut to its length."""
        if state.identity != self.identity:
            raise SnapshotError(
                f"{self.folder}: the snapshot is of another experiment (experiment.toml has changed since?): "
                "put the old file back, or run the new one into another folder"
            )
        self._assemble(state)
        self.memories.restore(state.memories)
        self.logs.truncate(state.records)

    @classmethod
    def resume(cls, federation: Federation, algorithm: Runnable, *, folder: Path, **settings: Any) -> Self:
        """The run of a folder, where its newest good snapshot left it."""
        if not snapshot.list_all(folder):  # killed before the first one: begin again
            remove_logs(folder)
            return cls(federation, algorithm, folder=folder, **settings)
        wanted: ExecutionPlan = settings.get("plan", ExecutionPlan())
        serial, state, notices = read_newest(folder, wanted.device)
        plan = replace(state.plan, chunk=min(state.plan.chunk, settings.get("plan", state.plan).chunk))
        sim = cls(federation, algorithm, folder=folder, **(settings | {"plan": plan}))
        sim.restore(state)
        sim.snapshots, sim.notices = serial, notices
        return sim
