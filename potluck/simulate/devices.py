"""The devices of a simulation: one queue each, what runs on them, how long it takes and what comes out.

Tasks, tells and moves to one device run one after another. Nothing else touches a device while an item runs
on it, so its rows and its memory are those of the start whenever the item is computed: a task is trained when
its reply falls due, or some time ahead by other processes, together with all others of the same shape that
have started by then.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.job import Result
from potluck.core.messages import Lost, Move, Node, Reply, Spent, Task, TaskId, Tell
from potluck.core.trees import nbytes
from potluck.engine.accounts import Accounts
from potluck.engine.flight import Flight, Seen, occupied, part, problem
from potluck.engine.memories import Keeps
from potluck.engine.timeline import KEPT, Trail, leg
from potluck.execute.plan import Executor, ParallelExecutor
from potluck.execute.reference import Item, batch_shape, run_alone
from potluck.federation import Federation
from potluck.fleet import DEVICE, REFERENCE_OPS, Always, Profiles, Topology, swapping
from potluck.simulate.attack import lied
from potluck.simulate.clock import Clock
from potluck.simulate.holdings import Holdings
from potluck.simulate.moves import drawn

DONE = "done"
FORGET = -8  # stream of the run's seed for devices that lose their memory


class Begun(NamedTuple):
    """Training that others do."""

    batch: list[Flight]
    results: Callable[[], list[Result]]  # waits for them


class Devices:
    """All queues and flights; only what is busy takes memory."""

    def __init__(
        self,
        federation: Federation,
        topology: Topology,
        machines: Profiles,
        clock: Clock,
        executor: Executor,
        keeps: Keeps,
        accounts: Accounts,
        record: Callable[..., None],
        seed: int,
    ) -> None:
        self.federation, self.topology, self.clock, self.seed = federation, topology, clock, seed
        self.executor, self.keeps, self.record = executor, keeps, record
        self.aside = executor if isinstance(executor, ParallelExecutor) else None
        self.begun: dict[int, Begun] = {}  # training that is under way there, by flight
        self.charge_to(accounts)
        self.models, self.pool = federation.models, federation.pool
        self.always = isinstance(federation.fleet.availability, Always)
        # Scalars out of a memoryview come as Python floats, several times faster than out of an array.
        self.size = topology.devices
        self.compute_ms, self.up_rate = machines.compute.data, machines.up.data
        self.down_rate, self.latency = machines.down.data, machines.latency.data
        self.memory = machines.memory.data
        self.jitter, self.forget = federation.fleet.jitter, federation.fleet.forget
        self.attack, self.attackers = federation.fleet.attack, federation.fleet.attackers
        self.accepted = 0  # items so far; not the clock's serial, which grows with every evaluation too
        self.flights: dict[int, Flight] = {}
        self.first: dict[Node, int] = {}  # of every busy device: the flight that runs, or a move that waits
        self.behind: dict[Node, list[int]] = {}  # and those queued after it
        self.ids: dict[Node, dict[TaskId, int]] = {n: {} for n in topology.aggregators}  # tasks by sender
        self.pending: dict[Hashable, dict[int, None]] = {}  # training that has started, by shape
        self.holdings = Holdings(federation, topology)
        self.trail = Trail(maxlen=KEPT)
        self._sent: tuple[Any, int] = (None, 0)  # last tree sent, and its bytes
        self._shape: tuple[Any, Hashable] = (None, None)  # last job, and its shape

    def charge_to(self, accounts: Accounts) -> None:
        """Where costs are summed up."""
        self.accounts = accounts
        self.took_part = accounts.took_part.data

    # ------------------------------------------------------------------------------------------ in and out

    def accept(self, sender: Node, item: Task | Tell | Move) -> None:
        """Put an item into its device's queue (a move: into both)."""
        fid = self.accepted = self.accepted + 1
        flight = self.flights[fid] = Flight(fid, sender, item)
        if type(item) is Task and item.id is not None:
            self.ids[sender][item.id] = fid
        nodes = occupied(item)
        for node in nodes:
            if node in self.first:
                self.behind.setdefault(node, []).append(fid)
            else:
                self.first[node] = fid
        self._try(flight, nodes)

    def cancel(self, sender: Node, task: TaskId, over: bool = False) -> bool:
        """Drop a task; what it has used so far is charged. False when it isn't on a device.

        `over`: the run ends, so the task isn't late.
        """
        fid = self.ids[sender].pop(task, None)
        if fid is None:
            return False
        flight = self.flights.pop(fid)
        self.begun.pop(fid, None)
        assert isinstance(flight.item, Task)
        node = flight.item.to
        if self.first[node] == fid:
            self._unpend(flight)
            self._charge(flight)
            if node < self.size and not over:
                self.trail.append(leg(flight, flight.item, self.clock.now, "late"))
            self._next(node)
        else:
            self.behind[node].remove(fid)
            if not self.behind[node]:
                del self.behind[node]
        return True

    def done(self, fid: int) -> tuple[Node, Reply | Lost] | None:
        """End of an item: what its sender hears, if anything."""
        flight = self.flights.pop(fid, None)
        if flight is None:
            return None  # cancelled
        item = flight.item
        event: Reply | Lost | None
        if type(item) is Move:
            event = self._end_move(flight, item)
            for node in occupied(item):
                self._next(node)
        else:
            assert not isinstance(item, Move)
            event = self._end_work(flight, item)
            if isinstance(item, Task) and item.id is not None:
                del self.ids[flight.sender][item.id]
            if type(item) is Task and item.to < self.size:
                fate = event.why if type(event) is Lost else ""
                self.trail.append(leg(flight, item, self.clock.now, fate))
            self._next(item.to)
        if isinstance(event, Lost):
            self.accounts.lose(event.why)
        return None if event is None else (flight.sender, event)

    def look_ahead(self) -> None:
        """Begin training before it is due, if other processes do it: each of them has a part of what is in
        the air, and this process one whose results have come, which it handles meanwhile.

        By what is in the air alone, never by how fast anybody is: what is stacked with what must not change.
        """
        if self.aside is not None:
            air, parts = len(self.flights), self.aside.count + 1
            waiting = [(shape, len(flights)) for shape, flights in self.pending.items()]
            for shape in [shape for shape, count in waiting if count < air <= parts * count]:
                if self.begun or any(flight.result is not None for flight in self.flights.values()):
                    self._begin(shape)

    def settle(self) -> None:
        """Wait for all training that is under way."""
        while self.begun:
            self._fetch(next(iter(self.begun.values())))

    def rows(self, node: Node, at: float | None = None) -> NDArray[np.int64]:
        """The rows that a device trains on, now unless told."""
        return self.holdings.rows(node, self.clock.now if at is None else at)

    @property
    def moved(self) -> dict[Node, NDArray[np.int64]]:
        """Rows of devices that gave or took some."""
        return self.holdings.moved

    # -------------------------------------------------------------------------------------------- starting

    def _try(self, flight: Flight, nodes: tuple[Node, ...]) -> None:
        """Start an item if it is first in all of its queues."""
        for node in nodes:
            if self.first[node] != flight.id:
                return
        flight.began = self.clock.now
        if type(flight.item) is Move:
            self._start_move(flight, flight.item)
        else:
            self._start_work(flight, flight.item)  # type: ignore[arg-type]
        end = flight.began + flight.down + flight.compute + flight.up
        if not self.always:
            end = self._until(flight, nodes, end)
            if flight.gone and type(flight.item) is not Move:
                self._unpend(flight)  # nobody will see what it computes
        self.clock.push(end, DONE, flight.id)

    def _start_work(self, flight: Flight, item: Task | Tell) -> None:
        node, job = item.to, item.job
        if self.forget and node < self.size and type(item) is Task:
            self._forget(node, flight.id)
        cost = job.cost(Seen(self, flight, item))
        ms: float = self.compute_ms[node]
        down: float = self.down_rate[node]
        up: float = self.up_rate[node]
        if self.jitter is not None and node < self.size:
            slower, faster = self.jitter.factors(node, flight.began)
            ms, down, up = ms * slower, down * faster, up * faster
        if cost.memory and node < self.size:
            ms *= swapping(cost.memory, self.memory[node])
        flight.compute = cost.ops / REFERENCE_OPS * ms / 1000 + cost.seconds
        if node != flight.sender:  # an aggregator's work for itself needs no link
            if item.send is not self._sent[0]:
                self._sent = item.send, nbytes(item.send)
            flight.bytes_down = self._sent[1]
            flight.down = self.latency[node] + 8 * flight.bytes_down / down
            if type(item) is Task:
                flight.bytes_up = nbytes(cost.sends) if cost.sends else 0
                flight.up = self.latency[node] + 8 * flight.bytes_up / up
        flight.sends = cost.sends
        if job is not self._shape[0]:
            self._shape = job, batch_shape(job)
        if self._shape[1] is not None:
            self.pending.setdefault(self._shape[1], {})[flight.id] = None

    def _forget(self, node: Node, count: int) -> None:
        """With some chance a device has lost all its memory before it begins; by counter, so never again."""
        chance = float(keys.uniforms(keys.derive(self.seed, FORGET, node), np.array([count]))[0])
        if chance < self.forget and self.keeps.forget(node):
            self.record("forgot", 1, node=node)

    def _start_move(self, flight: Flight, move: Move) -> None:
        # Relayed by the hub: both ends are busy for the whole path.
        size = self.federation.row_bytes() * sum(max(0, n) for _, n in move.take)
        flight.bytes_up = flight.bytes_down = size
        up: float = self.up_rate[move.src]
        down: float = self.down_rate[move.dst]
        if self.jitter is not None and max(move.src, move.dst) < self.size:
            up *= self.jitter.factors(move.src, flight.began)[1]
            down *= self.jitter.factors(move.dst, flight.began)[1]
        flight.up = self.latency[move.src] + 8 * size / up
        flight.down = self.latency[move.dst] + 8 * size / down

    def _until(self, flight: Flight, nodes: tuple[Node, ...], end: float) -> float:
        """The item's end, or the moment when a device of it goes (if it is there at all)."""
        availability, now = self.federation.fleet.availability, self.clock.now
        for node in nodes:
            if node < self.size:
                leaves = availability.until(node, now) if availability.online(node, now) else now
                if leaves < end:
                    # Noticing takes time too, else a loop of failures would stand still on the clock.
                    flight.gone, end = True, max(leaves, now + self.latency[node] + 1e-3)
        return end

    # ---------------------------------------------------------------------------------------------- ending

    def _end_work(self, flight: Flight, item: Task | Tell) -> Reply | Lost | None:
        self._charge(flight)
        if flight.gone:
            return Lost(item, "gone") if isinstance(item, Task) else None
        result = self._computed(flight, item)
        if self.attack is not None:
            result = self._told(flight, item, result)
        wrong = problem(result, flight.sends)
        if wrong:
            self.record("bad_update", wrong, node=item.to)
            return Lost(item, "bad") if isinstance(item, Task) else None
        if result.keep is not None:
            self.keeps.put(item.to, item.slot, result.keep)
        self.accounts.tasks += 1
        if item.to < self.size and hasattr(item.job, "shape"):  # it trained; others only answered
            self.took_part[item.to] = True
        if isinstance(item, Tell):
            return None
        spent = Spent(flight.down, flight.compute, flight.up)
        return Reply(item, result.body, result.weight, result.metrics, spent)

    def _told(self, flight: Flight, item: Task | Tell, result: Result) -> Result:
        """What leaves the device: the result, or an attacker's lie. A tell leaves nothing."""
        attack, who = self.attack, self.attackers
        if attack is None or who is None or isinstance(item, Tell) or item.to >= self.size:
            return result
        if not who[item.to] or self.clock.now < attack.start:
            return result
        at = Seen(self, flight, item)
        return lied(result, flight.sends, batch_shape(item.job) is not None, attack, at.seed)

    def _end_move(self, flight: Flight, move: Move) -> Lost | None:
        self._charge(flight)
        if flight.gone:
            return Lost(move, "gone")
        have = self.rows(move.src)
        go = drawn(have, self.federation.pool.y, move, keys.derive(self.seed, flight.id))
        if go is None:
            return Lost(move, "refused")
        self.holdings.move(move.src, move.dst, go, self.clock.now)
        return None

    def _computed(self, flight: Flight, item: Task | Tell) -> Result:
        if flight.result is not None:
            return flight.result
        shape = batch_shape(item.job)
        if shape is None:
            return run_alone(item.job, Seen(self, flight, item))
        if flight.id not in self.begun:
            self._begin(shape, flight)
        self._fetch(self.begun[flight.id])
        assert flight.result is not None
        return flight.result

    def _begin(self, shape: Hashable, due: Flight | None = None) -> None:
        """Train all that wait with this one."""
        batch = [due if due and due.id == fid else self.flights[fid] for fid in self.pending.pop(shape)]
        items = [Item(f.item.job, Seen(self, f, f.item)) for f in batch]  # type: ignore[union-attr, arg-type]
        results = self.aside.begin(items, due is None) if self.aside else partial(self.executor.run, items)
        self.begun |= dict.fromkeys((f.id for f in batch), Begun(batch, results))

    def _fetch(self, begun: Begun) -> None:
        for flight, result in zip(begun.batch, begun.results(), strict=True):
            flight.result = result
            self.begun.pop(flight.id, None)

    def _charge(self, flight: Flight) -> None:
        """Bytes and seconds up to now: all of them at the end, a part when it was cut short."""
        down, up = flight.bytes_down, flight.bytes_up
        total = flight.down + flight.compute + flight.up
        elapsed = self.clock.now - flight.began
        if elapsed < total * (1 - 1e-12):
            moves = type(flight.item) is Move  # rows go up before they come down
            down = part(down, elapsed - flight.up if moves else elapsed, flight.down)
            up = part(up, elapsed if moves else elapsed - flight.down - flight.compute, flight.up)
            total = elapsed
        private = getattr(getattr(flight.item, "job", None), "privacy", None)
        nodes = occupied(flight.item)
        if private is not None and up > 0 and nodes[0] < self.size:  # what has begun to leave is seen
            self.accounts.release(nodes[0], private.sigma, private.delta)
        tier = DEVICE if nodes[-1] < self.size else self.topology.tier(nodes[-1])
        self.accounts.transfer(tier, down, up)
        self.accounts.seconds += total * sum(node < self.size for node in nodes)

    def _unpend(self, flight: Flight) -> None:
        assert not isinstance(flight.item, Move)
        waiting = self.pending.get(batch_shape(flight.item.job), {})
        waiting.pop(flight.id, None)
        if not waiting:
            self.pending.pop(batch_shape(flight.item.job), None)

    def _next(self, node: Node) -> None:
        queue = self.behind.get(node)
        if queue is None:
            del self.first[node]
            return
        self.first[node] = queue.pop(0)
        if not queue:
            del self.behind[node]
        flight = self.flights[self.first[node]]
        self._try(flight, occupied(flight.item))

    # ------------------------------------------------------------------------------------------- snapshots

    def state(self) -> Any:
        pending = [list(fids) for fids in self.pending.values()]
        own = self.accepted, self.first, self.behind, self.flights, self.ids
        return *own, pending, self.holdings.state()

    def restore(self, state: Any) -> None:
        self.accepted, self.first, self.behind, self.flights, self.ids, pending, held = state
        self.holdings.restore(held)
        self.pending = {batch_shape(self.flights[p[0]].item.job): dict.fromkeys(p) for p in pending}  # type: ignore[union-attr]
