"""A conductor in the world: a port, a clock, a journal, snapshots, and who is there.

The order that everything rests on: an entry is in the journal, then it is applied; what follows from it
leaves when the journal is on disk. After any end the newest snapshot and the journal since give the same
state, and all that is under way is posted again.
"""

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from potluck.core import safe_files
from potluck.core.errors import SnapshotError
from potluck.core.job import Cost
from potluck.core.messages import Move, Node
from potluck.deploy import parcels
from potluck.deploy.conduct import journal
from potluck.deploy.conduct.claims import clean_claims, find_spent, read_hello
from potluck.deploy.conduct.conductor import Conductor
from potluck.deploy.conduct.conductor_state import ConductorState
from potluck.deploy.conduct.events import (
    Answered,
    Begun,
    Came,
    Due,
    Halted,
    Happening,
    Judged,
    Left,
    Looked,
    Measured,
    Woke,
)
from potluck.deploy.conduct.gauge import Gauge
from potluck.deploy.conduct.journal import Journal
from potluck.deploy.conduct.posting import Poster
from potluck.deploy.conduct.reports import shorten
from potluck.deploy.conduct.terms import Terms
from potluck.deploy.port import Incoming, Outgoing, Port
from potluck.engine import record_sums, snapshot
from potluck.engine.records import Records
from potluck.engine.schedule import Progress

RECORDS = "records.jsonl"
LOOK_EVERY = 0.5  # seconds between two looks at who is there
POLL = 0.25  # seconds that a poll waits at most
NOTHING = Cost(sends={})  # of what is asked for by a score: no body
Watch = Callable[[Progress], None]


class Server:
    """One deployed run, in its folder."""

    def __init__(
        self,
        terms: Terms,
        port: Port,
        folder: Path,
        *,
        identity: str,
        run: str,
        start_with: int,
        patience: float = 60.0,
        timeout: float = 3600.0,
        snapshot_every: float = 30.0,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.terms, self.folder, self.clock, self.say = terms, folder, clock, say
        self.start_with, self.patience, self.timeout = start_with, patience, timeout
        self.snapshot_every, self.saved = snapshot_every, clock()
        self.logs = Records(folder / RECORDS)
        self.serial = 0
        self.sessions: dict[Node, str] = {}  # whose hello has been answered
        self.greeted: dict[Node, tuple[str, float]] = {}  # who was sent a hello: session, and when
        self.away: dict[Node, float] = {}  # since when
        self.unfit: dict[Node, str] = {}  # who can't take part, and why
        self.poster = Poster(port, clock)
        self.looked, self.gauge = -inf, Gauge()
        self.journal: Journal | None = None  # none before the first snapshot
        if snapshot.list_all(folder):
            self._recover(identity)
        else:
            sums = record_sums.name_sums(folder / RECORDS)
            for old in (RECORDS, sums, *(journal.name(n) for n in journal.list_serials(folder))):
                safe_files.remove_file(folder, old)
            self.logs = Records(folder / RECORDS)
            state = ConductorState.begin(identity, run, terms.devices, terms.devices)
            self.conductor = Conductor(terms, state, self.logs)
            self.save()

    # ---------------------------------------------------------------------------------------------- running

    def run(self, progress: Watch | None = None, until: Callable[[], bool] = lambda: False) -> None:
        """To the end, or until somebody says so; it goes on from there when it is called again."""
        while not self.state.finished and not until():
            self.step()
            if progress is not None:
                own, now = self.state.point, self.state.now
                done = self.terms.stop.share(own.round, now, self.state.accounts.seconds)
                progress(Progress(own.round, now, self.state.accuracy, done))
        self.save()

    def step(self) -> None:
        """Whatever has happened since the last look."""
        self._look_who_is_there()
        for heard in self.poster.port.poll(self._find_wait()):
            self.take_report(heard)
        self._look_at_clock()
        self.post()
        if self.clock() - self.saved >= self.snapshot_every:
            self.save()

    @property
    def state(self) -> ConductorState:
        return self.conductor.state

    @property
    def now(self) -> float:
        """Seconds since the run began, never backwards; all who ask during one event hear the same."""
        state = self.state
        return max(self.clock() - state.began, state.now) if state.begun else 0.0

    def take(self, what: Happening, body: bytes = b"") -> None:
        """Something happened: into the journal, then to the conductor."""
        assert self.journal is not None
        at = self.now
        self.journal.append(at, what, body)
        self.conductor.apply(at, what, body)

    # --------------------------------------------------------------------------------------------- presence

    def _look_who_is_there(self) -> None:
        if self.clock() - self.looked < LOOK_EVERY:
            return
        self.looked = self.clock()
        there, members = self.poster.port.nodes(), self.state.members
        for node, session in there.items():
            self.away.pop(node, None)
            if self.sessions.get(node) != session:
                self._greet(node, session)
            elif self.clock() - self.poster.asked.get(node, inf) >= self.patience:
                self.post_again(node)  # it may have been lost; if not, its device knows it
        for node, member in members.items():
            if member.there and node not in there:
                since = self.away.setdefault(node, self.clock())
                if self.clock() - since >= self.patience:
                    del self.away[node]
                    self.sessions.pop(node, None)
                    self.greeted.pop(node, None)
                    self.say(f"device {node} has been away for {self.patience:g} s: its work is given up")
                    self.poster.forget(self.conductor, node)
                    self.take(Left(node))
        for node, what in self.poster.list_overdue(self.conductor, self.timeout):
            self.say(f"device {node} has had something to do for {self.timeout:g} s: it is given up")
            self.take(what)
        self._begin_if_enough()

    def _greet(self, node: Node, session: str) -> None:
        """Ask who has come what it holds; once more if it doesn't answer."""
        last, when = self.greeted.get(node, ("", -inf))
        if last != session or self.clock() - when >= self.patience:
            self.greeted[node] = (session, self.clock())
            hello = parcels.Hello(parcels.PROTOCOL, self.state.run, node)
            self.poster.port.post_all([Outgoing(node, f"hello/{session}", parcels.pack(hello), b"")])

    def _begin_if_enough(self) -> None:
        state = self.state
        if not state.begun and len(self.sessions) >= self.start_with:
            self.take(Begun(self.clock()))

    def _welcome(self, node: Node, session: str, told: parcels.Present) -> None:
        """A device has said what it holds; what is under way there is posted again."""
        known = self.state.members.get(node)
        self.sessions[node] = session
        claims = clean_claims(told.claims)
        said = (told.rows, told.labels, claims)
        if known is None or not known.there or (known.rows, known.labels, known.claims) != said:
            self.take(Came(node, *said))
        self.post_again(node)
        self._begin_if_enough()

    # ---------------------------------------------------------------------------------------------- reports

    def take_report(self, heard: Incoming) -> None:
        kind, _, rest = heard.key.partition("/")
        if kind == "hello":
            self._take_hello(heard, rest)
            return
        count = rest.rpartition("/")[2]
        if kind != self.state.run:
            return
        if count.startswith("e"):
            self._take_scores(heard)
        elif count.isascii() and count.isdigit():
            self._take_work(heard, int(count))

    def _take_hello(self, heard: Incoming, session: str) -> None:
        told = read_hello(heard.parcel, self.terms.rows.classes)
        if not isinstance(told, str):
            self._welcome(heard.node, session, told)
        elif self.unfit.get(heard.node) != told:  # it is greeted again and again
            self.unfit[heard.node] = told
            self.say(f"device {heard.node}: {told}")

    def _take_work(self, heard: Incoming, count: int) -> None:
        flight = self.conductor.queues.flights.get(count)
        if (
            flight is None
            or flight.began < 0
            or isinstance(flight.item, Move)
            or flight.item.to != heard.node
        ):
            return  # called off, answered already, or another's
        left, size = self.poster.posted.pop(heard.key, (self.clock(), 0))
        whole = max(0.0, self.clock() - left)
        cost = self.conductor.estimate_cost(flight.item)
        report = shorten(heard.parcel, cost)
        spent = find_spent(report, whole)
        self.take(Answered(count, spent, size, len(heard.parcel)), report)
        if heard.node in self.state.members:
            self.gauge.note(heard.node, cost.ops, spent, size, len(heard.parcel))
            news = self.gauge.find_news(heard.node, self.state.members[heard.node].claims)
            if news:
                self.take(Measured(heard.node, news))

    def _take_scores(self, heard: Incoming) -> None:
        ask = self.conductor.evaluations.find_ask(heard.key)
        if ask is not None and ask.node == heard.node:
            self.poster.posted.pop(heard.key, None)
            self.take(Judged(heard.key), shorten(heard.parcel, NOTHING))

    # ------------------------------------------------------------------------------------------------ clock

    def _find_wait(self) -> float:
        alarm = min((at for _, at in self.state.alarms.values()), default=inf)
        return min(POLL, max(0.0, alarm - self.now))

    def _look_at_clock(self) -> None:
        state, stop = self.state, self.terms.stop
        if not state.begun or state.finished:
            return
        if stop.seconds is not None and self.now >= stop.seconds and not state.stopping:
            self.take(Halted())
        for tag in [tag for tag, (_, at) in state.alarms.items() if at <= self.now]:
            if tag in state.alarms:
                self.take(Woke(tag))
        if any(0 < member.banned <= self.now for member in state.members.values()):
            self.take(Looked())
        every = self.terms.evaluate.seconds
        if every is not None and not state.stopping and self.now >= (state.evaluated or (0, 0.0))[1] + every:
            self.take(Due())

    # ---------------------------------------------------------------------------------------------- posting

    def post(self) -> None:
        """What events asked for leaves, once they are on disk."""
        c = self.conductor
        parcels_out = [self.poster.make_work(self.conductor, fid) for fid in c.outbox]
        c.outbox.clear()
        fresh = c.evaluations.fresh
        for key, serial, ask in c.evaluations.list_asks() if fresh else ():
            if key in fresh:
                parcels_out.append(self.poster.make_ask(self.conductor, key, serial, ask))
        fresh.clear()
        for node, key in c.called_off:
            self.poster.posted.pop(key, None)
            parcels_out.append(Outgoing(node, key, parcels.pack(parcels.CallOff(key)), b"", wanted=False))
        c.called_off.clear()
        for line in c.remarks:
            self.say(line)
        c.remarks.clear()
        if parcels_out:
            self._send(parcels_out)

    def post_again(self, node: Node) -> None:
        """All that is under way on a device: it answers what it has done from disk."""
        c = self.conductor
        again = []
        fid = c.queues.first.get(node)
        if fid is not None and c.queues.flights[fid].began >= 0:
            again.append(self.poster.make_work(self.conductor, fid))
            c.outbox.pop(fid, None)
        again += [
            self.poster.make_ask(self.conductor, key, serial, ask)
            for key, serial, ask in c.evaluations.list_asks()
            if ask.node == node
        ]
        for parcel in again:
            c.evaluations.fresh.pop(parcel.key, None)
        if again:
            self._send(again)

    def _send(self, out: list[Outgoing]) -> None:
        assert self.journal is not None
        self.journal.sync()
        self.poster.send(out)

    # -------------------------------------------------------------------------------- snapshots and recovery

    def close(self) -> None:
        """Give back files; what isn't on disk yet may be lost, as if the process had been killed."""
        if self.journal is not None:
            self.journal.close()
        self.logs.close()

    def save(self) -> None:
        """A snapshot, and a journal since then; nothing that an entry asked for is forgotten."""
        if self.journal is not None:
            self.journal.close()
        self.serial += 1
        snapshot.write(self.folder, self.serial, self.conductor.make_state())
        self.journal = Journal(self.folder, self.serial)
        kept = [int(Path(name).stem) for name in snapshot.list_all(self.folder)]
        journal.remove_before(self.folder, min(kept))
        self.saved = self.clock()

    def _recover(self, identity: str) -> None:
        def find_fault(state: ConductorState) -> str | None:
            return record_sums.find_fault(self.folder / RECORDS, state.records)

        serial, state, remarks = snapshot.read_newest(self.folder, ConductorState, find_fault=find_fault)
        if state.identity != identity:
            raise SnapshotError(
                f"{self.folder}: the run of another experiment or federation; put the old files back, or "
                "name another folder"
            )
        for line in remarks:
            self.say(line)
        self.logs.truncate(state.records)
        self.conductor, self.serial = Conductor(self.terms, state, self.logs), serial
        for number in [n for n in journal.list_serials(self.folder) if n >= serial]:
            for at, what, body in journal.read(self.folder, number):
                self.conductor.apply(at, what, body)
        c, root = self.conductor, self.conductor.root
        c.called_off.clear()
        c.remarks.clear()
        c.outbox = {
            fid: None for node, fid in c.queues.first.items() if node == root
        }  # others when they come
        c.evaluations.fresh = {key: None for key, _, ask in c.evaluations.list_asks() if ask.node == root}
        self.serial = max([serial, *journal.list_serials(self.folder)])
        self.journal = Journal(self.folder, self.serial)
        self.saved = self.clock()
