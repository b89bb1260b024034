"""The conductor: one aggregation point whose devices are elsewhere. Its state follows from its journal alone.

`apply` takes one entry of the journal, whether it happens now or is replayed. What is to leave is only
listed; whoever runs the conductor posts it when the entry is on disk.
"""

from collections import deque
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError
from potluck.core.job import Cost, trains
from potluck.core.messages import Answer, Event, Lost, Move, Node, Note, Reply, Spent, Task, Tell, Wake, Why
from potluck.core.records import Whose
from potluck.deploy import parcels
from potluck.deploy.conduct import events
from potluck.deploy.conduct.conductor_state import ConductorState
from potluck.deploy.conduct.crowd import BAD, BAN, Crowd
from potluck.deploy.conduct.reports import Refusal, imagine, read_work
from potluck.deploy.conduct.scoring import Evaluations
from potluck.deploy.conduct.terms import Terms
from potluck.engine.flight import Flight
from potluck.engine.host import Children
from potluck.engine.point import LOOK, Point
from potluck.engine.queues import Queues
from potluck.engine.records import Records
from potluck.engine.seeds import seed_work
from potluck.engine.timeline import KEPT, Timeline, make_leg
from potluck.fleet import DEVICE, Topology


class Conductor:
    """One run's aggregation point. It is the Host of its point, and does what that commands."""

    def __init__(self, terms: Terms, state: ConductorState, logs: Records) -> None:
        self.terms, self.state, self.logs = terms, state, logs
        self.topology = Topology.build(terms.devices)
        self.root, self.seed, self.models = self.topology.root, terms.seed, terms.models
        self.children: Mapping[Node, Children] = {self.root: range(terms.devices)}
        self.user = np.full(terms.devices, -1, np.int32) if terms.user is None else terms.user
        self.queues = Queues(state.queues, self._start)
        self.point = Point(self.root, terms.algorithm, self, self, state.point)
        self.accounts, self.timeline = state.accounts, Timeline(state.timeline, maxlen=KEPT)
        self.crowd = Crowd(state.members, terms.devices)
        self.claimed = self.crowd.claimed
        self.evaluations = Evaluations(self, terms.evaluate)
        self.outbox: dict[int, None] = {}  # flights that are to leave
        self.called_off: list[tuple[Node, str]] = []  # of what has left: who, and its key
        self.remarks: list[str] = []  # for a server's log
        self._doomed: deque[int] = deque()  # flights whose device isn't there

    # ---------------------------------------------------------------------------- what contexts ask of a host

    @property
    def now(self) -> float:
        return self.state.now

    @property
    def always(self) -> bool:
        """Whether all devices are there at this moment."""
        return self.crowd.are_all_there(self.now)

    @property
    def busy(self) -> Container[Node]:
        return self.queues.first

    def online(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array([self.is_there(node) for node in nodes.tolist()], bool)

    def count_rows(self, nodes: Sequence[Node]) -> list[int]:
        """What devices said when they came; of one that hasn't come, nothing is known."""
        members, own = self.state.members, self.terms.server
        told = (own if n == self.root else members[n].rows if n in members else {} for n in nodes)
        return [rows.get("train", 0) for rows in told]

    def owing(self, me: Node) -> set[Node]:
        return set()

    def is_there(self, node: Node) -> bool:
        """Whether something can be asked of a node; the server itself always is."""
        return self.crowd.is_there(node, self.now)

    @property
    def tested(self) -> bool:  # whether the server has rows to test on
        return self.terms.server.get("test", 0) > 0

    # ------------------------------------------------------------------------------- what a point commands

    def accept(self, me: Node, item: Task | Tell | Move) -> None:
        if isinstance(item, Move):
            fix = "take another, or simulate it with `potluck run`"
            raise ConfigError(f"algorithm: it moves rows between devices, which can't be deployed yet; {fix}")
        self.queues.accept(me, item)

    def accept_all(self, me: Node, tasks: list[Task]) -> None:
        for task in tasks:
            self.accept(me, task)

    def ask(self, me: Node, item: Task | Tell) -> None:
        raise AssertionError("a flat federation has no aggregators below")

    def answer(self, me: Node, answer: Answer) -> None:
        raise AssertionError("a flat federation has nobody above")

    def wake(self, me: Node, wake: Wake, serial: int) -> None:
        self.state.alarms[wake.tag] = (serial, wake.at)

    def note(self, note: Note) -> None:
        self.record(note.name, note.value, group=note.group)

    def lose(self, me: Node, lost: Lost) -> None:
        assert isinstance(lost.what, Task)
        self.accounts.tasks -= 1
        self.accounts.lose(lost.why)
        self.record("bad_update", "merged, it makes numbers NaN or infinite", node=lost.what.to)

    def cancel(self, me: Node, task: Hashable, over: bool) -> bool:
        fid = self.queues.find(me, task)
        if fid is None:
            return False
        flight = self.queues.take(fid)
        assert flight is not None
        assert isinstance(flight.item, Task)
        self._call_back(flight, flight.item)
        if flight.began >= 0 and flight.item.to < self.root and not over:
            self.timeline.append(make_leg(flight, flight.item, self.now, "late"))
        self.queues.free(flight)
        if not over:
            self._count_lost("late")
        return True

    def works(self, me: Node) -> bool:
        return bool(self.queues.flights)

    def record(self, metric: str, number: object, **whose: Unpack[Whose]) -> None:
        self.logs.write(self.point.own.round, self.now, metric, number, **whose)

    # ------------------------------------------------------------------------------------------- the reducer

    def apply(self, at: float, what: events.Happening, body: bytes = b"") -> None:
        """One entry of the journal; `body`: the bytes behind it."""
        self.state.now = max(at, self.state.now)
        match what:
            case events.Begun():
                self.state.begun, self.state.began = True, what.wall
                self.point.begin()
                self.evaluations.begin()
            case events.Came():
                self._come(what)
            case events.Measured():
                self.crowd.measure(what)
            case events.Left():
                self._leave(what.node)
            case events.Answered():
                self._end(what, body)
            case events.Dropped():
                self._lose(what.count, what.why)
            case events.Woke():
                serial, time = self.state.alarms.pop(what.tag)
                wake = Wake(time, what.tag)
                if self.point.take_alarm(wake, serial):
                    self._hear(wake)
            case events.Looked():
                self.crowd.forgive(self.now)
                self._hear(Wake(self.now, LOOK))
            case events.Due():
                self.evaluations.begin()
            case events.Judged():
                self.evaluations.judge(what.key, body)
            case events.Unjudged():
                self.evaluations.give_up(what.key)
            case events.Halted():
                self._stop()
        while self._doomed:
            if self._doomed[0] in self.queues.flights:
                self._lose(self._doomed[0], "gone")
            self._doomed.popleft()
        counting = self.point.own.alarms
        for tag in [t for t, (serial, _) in self.state.alarms.items() if counting.get(t) != serial]:
            del self.state.alarms[tag]
        self._look_at_end()

    def make_state(self) -> ConductorState:
        """What a snapshot stores."""
        self.state.timeline, self.state.records = list(self.timeline), self.logs.flush()
        return self.state

    def make_key(self, flight: Flight) -> str:
        """The name of an item, the same after any restart."""
        return f"{self.state.run}/{flight.sender}/{flight.count}"

    def make_work(self, flight: Flight) -> parcels.Work:
        """What a device is told of an item, but for what is sent."""
        item = flight.item
        assert not isinstance(item, Move)
        base = self.find_base(item.to, item.slot)
        seed = seed_work(self.seed, flight, item)
        return parcels.Work(self.make_key(flight), item.job, seed, item.slot, base, item.to)

    def find_base(self, node: Node, slot: Hashable) -> str | None:
        """The last work of a device whose memory counted."""
        return self.state.counted.get(node, {}).get(slot)

    # ------------------------------------------------------------------------------------- comings and goings

    def _come(self, what: events.Came) -> None:
        new = self.crowd.come(what)
        if new and self.state.begun and not self.state.stopping and self.point.find_waiting():
            self._hear(Wake(self.now, LOOK))

    def _leave(self, node: Node) -> None:
        self.state.members[node].there = False
        self.evaluations.forget(node)
        while node in self.queues.first:
            self._lose(self.queues.first[node], "gone")

    # ---------------------------------------------------------------------------------------------- work

    def _start(self, flight: Flight, nodes: tuple[Node, ...]) -> None:
        item = flight.item
        assert not isinstance(item, Move)
        flight.began = self.now
        if self.is_there(item.to):
            self.outbox[flight.id] = None
        else:
            self._doomed.append(flight.id)

    def estimate_cost(self, item: Task | Tell) -> Cost:
        """What a job promises, by what is known of its device."""
        known = self.terms.server if item.to == self.root else self.state.members[item.to].rows
        return item.job.cost(imagine(item, known.get("train", 0), self.terms))

    def _end(self, what: events.Answered, body: bytes) -> None:
        flight = self.queues.take(what.count)
        if flight is None:
            return  # called off, or answered already
        item = flight.item
        assert not isinstance(item, Move)
        spent = what.spent
        flight.down, flight.compute, flight.up = spent.down, spent.compute, spent.up
        if item.to < self.root:
            self.accounts.seconds += spent.total
            self.accounts.transfer(DEVICE, what.down, what.up)
        event = self._judge(flight, item, body, spent)
        fate = event.why if isinstance(event, Lost) else ""
        if isinstance(item, Task) and item.to < self.root:
            self.timeline.append(make_leg(flight, item, self.now, fate))
        self.queues.free(flight)
        if isinstance(event, Lost):
            self._count_lost(event.why)
        if isinstance(event, Reply) or (isinstance(event, Lost) and isinstance(item, Task)):
            self._hear(event)

    def _judge(self, flight: Flight, item: Task | Tell, body: bytes, spent: Spent) -> Reply | Lost | None:
        """What a report means: a reply, or a loss; of a tell nothing is heard."""
        found = read_work(body, self.estimate_cost(item), self.terms.limits)
        if isinstance(found, Refusal):
            return self._refuse(item, found)
        if item.to < self.root:
            self.state.members[item.to].bad = 0
        if found.kept:
            self.state.counted.setdefault(item.to, {})[item.slot] = self.make_key(flight)
        self.accounts.tasks += 1
        if item.to < self.root:
            self.state.drought.waves = 0
            self.accounts.took_part[item.to] |= trains(item.job)
        if isinstance(item, Tell):
            return None
        return Reply(item, found.body, found.weight, found.metrics, spent)

    def _refuse(self, item: Task | Tell, found: Refusal) -> Lost | None:
        self.record("bad_update", found.text, node=item.to)
        self.remarks.append(f"device {item.to}: {found.why}: {found.text}")
        if item.to < self.root and self.crowd.blame(item.to, self.now):
            self.record("banned", BAN, node=item.to)
            self.remarks.append(f"device {item.to}: {BAD} in a row: it is asked nothing for {BAN:g} s")
        return Lost(item, found.why) if isinstance(item, Task) else None

    def _call_back(self, flight: Flight, item: Task | Tell) -> None:
        if flight.id in self.outbox:
            del self.outbox[flight.id]  # it hasn't left
        elif flight.began >= 0 and flight.id not in self._doomed:
            self.called_off.append((item.to, self.make_key(flight)))

    def _lose(self, fid: int, why: Why) -> None:
        flight = self.queues.take(fid)
        if flight is None:
            return
        item = flight.item
        assert not isinstance(item, Move)
        self._call_back(flight, item)
        if isinstance(item, Task):
            self.timeline.append(make_leg(flight, item, self.now, why))
        self.queues.free(flight)
        self._count_lost(why)
        if isinstance(item, Task):
            self._hear(Lost(item, why))

    def _count_lost(self, why: Why) -> None:
        self.accounts.lose(why)
        self.state.drought.lose(why, self.queues.state, self.now)

    # ------------------------------------------------------------------------------------------ rounds, ends

    def _hear(self, event: Event) -> None:
        self.point.hear(event)
        if not self.state.stopping:
            self._count_rounds()

    def _count_rounds(self) -> None:
        before, now = self.point.count_rounds()
        stop, often = self.terms.stop, self.terms.evaluate
        if stop.device_seconds is not None and self.accounts.seconds >= stop.device_seconds:
            self._stop()
        elif now == before:
            return
        elif stop.rounds is not None and now >= stop.rounds:
            self._stop()
        elif often.rounds is not None and now // often.rounds > before // often.rounds:
            self.evaluations.begin()

    def reach(self, accuracy: float | None) -> None:
        """An evaluation is complete; perhaps its accuracy is what the run was for."""
        self.state.accuracy = accuracy
        target = self.terms.stop.target
        if target is not None and accuracy is not None and accuracy >= target:
            self._stop()

    def _stop(self) -> None:
        if not self.state.stopping and self.state.begun:
            self.state.stopping = True
            self.point.stop()

    def _look_at_end(self) -> None:
        """With nothing under way, the last evaluation, and then the end."""
        s = self.state
        if not s.begun or s.finished or self.queues.flights:
            return
        if not s.stopping and (s.alarms or self.point.find_waiting()):
            return
        if not s.closing:
            s.closing = s.stopping = True
            self.point.count_rounds()
            self.evaluations.begin()
        if not s.open:
            self.accounts.record_private(self.logs, self.point.own.round, self.now)
            s.finished = True
