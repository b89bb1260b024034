"""The devices of a simulation: what runs on them, how long it takes and what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Result, find_noise, trains
from potluck.core.messages import Lost, Move, Node, Reply, Spent, Task, Tell, Why
from potluck.core.trees import Tree, nbytes
from potluck.engine.accounts import Accounts
from potluck.engine.checks import find_problem
from potluck.engine.drought import Drought
from potluck.engine.flight import Flight, count_bytes, find_nodes
from potluck.engine.local import LazyLocal
from potluck.engine.memories import Memories
from potluck.engine.queues import Queues, QueueState
from potluck.engine.seeds import seed_move, seed_work
from potluck.engine.timeline import KEPT, Plain, Timeline, make_leg
from potluck.execute.plan import Executor
from potluck.federation import Federation
from potluck.fleet import DEVICE, REFERENCE_OPS, Always, Attack, Profiles, Topology, slow_by_swapping
from potluck.simulate.attack import falsify, forge
from potluck.simulate.clock import Clock
from potluck.simulate.crew import Crew, CrewState
from potluck.simulate.flocks import Flocks
from potluck.simulate.holdings import Holdings, Moved
from potluck.simulate.moves import draw_rows
from potluck.simulate.training import PendingTraining

FORGET = -8  # stream of the run's seed for devices that lose their memory


@value(frozen=False, eq=False)
class DeviceState:
    """All of the devices that changes during a run, but for what they remember."""

    queues: QueueState
    moved: Moved = field(default_factory=Moved)
    pending: list[list[int]] = field(default_factory=list)  # flights whose training waits, by shape
    timeline: list[Plain] = field(default_factory=list)
    drought: Drought = field(default_factory=Drought)
    crew: CrewState = field(default_factory=CrewState)


class Devices:
    """All devices; they run what their queues start, and charge for it."""

    def __init__(
        self,
        federation: Federation,
        topology: Topology,
        machines: Profiles,
        clock: Clock,
        executor: Executor,
        memories: Memories,
        accounts: Accounts,
        record: Callable[..., None],
        seed: int,
        promised: dict[Node, float],  # to aggregators: the largest weights of what they were sent
        state: DeviceState,
    ) -> None:
        self.federation, self.topology, self.clock, self.seed = federation, topology, clock, seed
        self.memories, self.record, self.accounts, self.promised = memories, record, accounts, promised
        self.took_part = accounts.took_part.data
        self.models, self.pool = federation.models, federation.pool
        self.always = isinstance(federation.fleet.availability, Always)
        # Scalars out of a memoryview come as Python floats, several times faster than out of an array.
        self.size, self.root = topology.devices, topology.root
        self.machines = machines
        self.compute_ms, self.up_rate = machines.compute.data, machines.up.data
        self.down_rate, self.latency = machines.down.data, machines.latency.data
        self.memory = machines.memory.data
        self.jitter, self.forget = federation.fleet.jitter, federation.fleet.forget
        self.attack, self.attackers = federation.fleet.attack, federation.fleet.attackers
        self.queues = Queues(state.queues, self._start)
        self.training = PendingTraining(executor, self, self.queues, state.pending)
        self.crew: Crew | None = None
        if self.attack is not None and self.attackers is not None and self.attack.colludes:
            self.crew = Crew(self.attack, self.attackers, self.training, seed, state.crew)
        self.holdings = Holdings(federation, topology, state.moved)
        self.timeline = Timeline(state.timeline, maxlen=KEPT)
        self.drought = state.drought
        self.flocks = Flocks(self)
        self._sent: tuple[Tree, int] = (None, 0)  # last tree sent, and its bytes

    def make_state(self) -> DeviceState:
        """What a snapshot stores."""
        pending = self.training.list_pending()
        legs, crew = list(self.timeline), CrewState() if self.crew is None else self.crew.state
        return DeviceState(self.queues.state, self.holdings.moved, pending, legs, self.drought, crew)

    def rows(self, node: Node, at: float | None = None) -> NDArray[np.int64]:
        """The rows that a device trains on, now unless told."""
        return self.holdings.rows(node, self.clock.now if at is None else at)

    def find_sizes(self, nodes: NDArray[np.int64], at: float) -> NDArray[np.int64]:
        """How many rows devices train on."""
        return self.holdings.find_sizes(nodes, at)

    def lay_rows(self, nodes: NDArray[np.int64], at: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All rows that devices train on, and where in them each one's begin."""
        return self.holdings.lay_rows(nodes, at)

    def count_rows(self, nodes: Sequence[Node]) -> list[int]:
        """How many train rows these have; nobody lies about them."""
        return [self.holdings.count(node, self.clock.now) for node in nodes]

    def cancel(self, sender: Node, fid: int, over: bool) -> None:
        """Drop a task; what it has used so far is charged. `over`: the run ends, so the task isn't late."""
        flight = self.queues.take(fid)
        assert flight is not None
        assert isinstance(flight.item, Task)
        self.training.begun.pop(fid, None)
        if self.crew is not None:
            self.crew.leave(flight)
        if flight.began >= 0:
            self.training.remove(flight.id, flight.item.job)
            self._charge(flight)
            if flight.item.to < self.size and not over:
                self.timeline.append(make_leg(flight, flight.item, self.clock.now, "late"))
        self.queues.free(flight)
        if not over:
            self._lose("late")

    def end(self, fid: int) -> tuple[Node, Reply | Lost] | None:
        """End of an item: what its sender hears, if anything."""
        flight = self.queues.take(fid)
        if flight is None:
            return None  # cancelled
        item = flight.item
        event: Reply | Lost | None
        if type(item) is Move:
            event = self._end_move(flight, item)
        else:
            event = self._end_work(flight, item)
            if type(item) is Task and item.to < self.size:
                fate = event.why if type(event) is Lost else ""
                self.timeline.append(make_leg(flight, item, self.clock.now, fate))
        self.queues.free(flight)
        if isinstance(event, Lost):
            self._lose(event.why)
        return None if event is None else (flight.sender, event)

    def lose_answer(self, sender: Node, task: Task, why: Why) -> None:
        """An answer that its sender had heard counts as lost after all."""
        if task.to < self.size or task.to == sender:  # else an aggregator's, which is no task done
            self.accounts.tasks -= 1
        self.accounts.lose(why)
        self.record("bad_update", "merged, it makes numbers NaN or infinite", node=task.to)

    def _lose(self, why: Why) -> None:
        self.accounts.lose(why)
        self.drought.lose(why, self.queues.state, self.clock.now)

    # -------------------------------------------------------------------------------------------- starting

    def _start(self, flight: Flight, nodes: tuple[Node, ...]) -> None:
        """An item is first in all of its queues."""
        item = flight.item
        flight.began = self.clock.now
        if type(item) is Move:
            self._start_move(flight, item)
        else:
            self._start_work(flight, item)
        end = flight.began + flight.down + flight.compute + flight.up
        if not self.always:
            end = self._find_end(flight, nodes, end)
            if flight.gone and type(item) is not Move:
                self.training.remove(flight.id, item.job)
        if self.crew is not None and not flight.gone:
            self.crew.join(flight)
        self.clock.push(end, flight.id)

    def _start_work(self, flight: Flight, item: Task | Tell) -> None:
        node, job = item.to, item.job
        if self.forget and node < self.size and type(item) is Task:
            self.forget_some(node, flight.id)
        cost = job.cost(LazyLocal(self, flight, item))
        ms: float = self.compute_ms[node]
        down: float = self.down_rate[node]
        up: float = self.up_rate[node]
        if self.jitter is not None and node < self.size:
            slower, faster = self.jitter.factors(node, flight.began)
            ms, down, up = ms * slower, down * faster, up * faster
        if cost.memory and node < self.size:
            ms *= slow_by_swapping(cost.memory, self.memory[node])
        flight.compute = cost.ops / REFERENCE_OPS * ms / 1000 + cost.seconds
        if node != flight.sender:  # an aggregator's work for itself needs no link
            if item.send is not self._sent[0]:
                self._sent = item.send, nbytes(item.send)
            flight.bytes_down = self._sent[1]
            flight.down = self.latency[node] + 8 * flight.bytes_down / down
            if type(item) is Task:
                flight.bytes_up = nbytes(cost.sends) if cost.sends else 0
                flight.up = self.latency[node] + 8 * flight.bytes_up / up
        flight.cost = cost
        self.training.add(flight.id, job)

    def forget_some(self, node: Node, count: int) -> None:
        """With some chance a device has lost all its memory before it begins; by counter, so never again."""
        chance = keys.chance(keys.derive(self.seed, FORGET, node), count)
        if chance < self.forget and self.memories.forget(node):
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

    def _find_end(self, flight: Flight, nodes: tuple[Node, ...], end: float) -> float:
        """The item's end, or the moment when a device of it goes (if it is there at all)."""
        for node in nodes:
            if node < self.size and (leaves := self.find_leave(node, end)) is not None:
                flight.gone, end = True, leaves
        return end

    def find_leave(self, node: Node, end: float) -> float | None:
        """When it is noticed that a device has gone which starts something now, if it goes before the end."""
        availability, now = self.federation.fleet.availability, self.clock.now
        leaves = availability.until(node, now) if availability.online(node, now) else now
        # Noticing takes time too, else a loop of failures would stand still on the clock.
        return max(leaves, now + self.latency[node] + 1e-3) if leaves < end else None

    # ---------------------------------------------------------------------------------------------- ending

    def _end_work(self, flight: Flight, item: Task | Tell) -> Reply | Lost | None:
        self._charge(flight)
        if flight.gone:
            return Lost(item, "gone") if isinstance(item, Task) else None
        result, honest = self.training.compute(flight, item), True
        if self.attack is not None:
            false = self._falsify(flight, item, result, self.attack)
            if false is not None:
                result, honest = false, False
        wrong = find_problem(result, flight.cost, trusted=honest)
        if wrong:
            self.record("bad_update", wrong, node=item.to)
            return Lost(item, "bad") if isinstance(item, Task) else None
        if result.keep is not None:
            self.memories.put(item.to, item.slot, result.keep)
        self.accounts.tasks += 1
        if item.to < self.size:
            self.drought.waves = 0
            if trains(item.job):  # others only answered
                self.took_part[item.to] = True
        if isinstance(item, Tell):
            return None
        if flight.sender != self.root:
            self.promised[flight.sender] += flight.cost.weight
        spent = Spent(flight.down, flight.compute, flight.up)
        return Reply(item, result.body, result.weight, result.metrics, spent)

    def _falsify(self, flight: Flight, item: Task | Tell, result: Result, attack: Attack) -> Result | None:
        """What an attacker sends; None from others. A tell leaves nothing to falsify."""
        if self.attackers is None or type(item) is Tell or item.to >= self.size:
            return None
        assert type(item) is Task
        crafted = None if self.crew is None else self.crew.answer(flight, item, result)
        if not self.attackers[item.to] or self.clock.now < attack.start:
            return None
        if crafted is not None:
            return crafted
        seed = seed_work(self.seed, flight, item)
        if attack.kind == "forge_affinity":
            return forge(item, result, attack, seed)
        return falsify(result, flight.cost.sends, trains(item.job), attack, seed)

    def _end_move(self, flight: Flight, move: Move) -> Lost | None:
        self._charge(flight)
        if flight.gone:
            return Lost(move, "gone")
        have, key = self.rows(move.src), seed_move(self.seed, flight, move)
        go = draw_rows(have, self.federation.pool.y, move, key)
        if go is None:
            return Lost(move, "refused")
        self.holdings.move(move.src, move.dst, go, self.clock.now)
        return None

    def _charge(self, flight: Flight) -> None:
        """Bytes and seconds up to now: all of them at the end, a part when it was cut short."""
        item, down, up = flight.item, flight.bytes_down, flight.bytes_up
        total = flight.down + flight.compute + flight.up
        elapsed = self.clock.now - flight.began
        if elapsed < total * (1 - 1e-12):
            moves = type(item) is Move  # rows go up before they come down
            down = count_bytes(down, elapsed - flight.up if moves else elapsed, flight.down)
            up = count_bytes(up, elapsed if moves else elapsed - flight.down - flight.compute, flight.up)
            total = elapsed
        nodes = find_nodes(item)
        if up > 0 and nodes[0] < self.size and type(item) is not Move:
            noise = find_noise(item.job)
            if noise is not None:  # what has begun to leave is seen
                self.accounts.release(nodes[0], noise.sigma, noise.delta)
        tier = DEVICE if nodes[-1] < self.size else self.topology.tier(nodes[-1])
        self.accounts.transfer(tier, down, up)
        self.accounts.seconds += total * sum(node < self.size for node in nodes)
