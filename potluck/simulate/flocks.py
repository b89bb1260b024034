"""Flocks of a simulation: how tasks that start together start and end, in columns.

To the last bit as `Devices` does it one by one. Where a row needs more than columns (its device leaves, its
answer is a lie or is refused) its flight is ended there, by itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from potluck.core.columns import CostsTogether, Results, costs_together
from potluck.core.job import Job, find_noise, trains
from potluck.core.messages import Lost, Node, Reply, Task
from potluck.core.replies import Replies, Sheet
from potluck.core.trees import nbytes
from potluck.engine.checks import find_first_problem
from potluck.engine.flight import Flight, count_all_bytes
from potluck.engine.flock import Flock
from potluck.engine.local import LazyLocal, find_places
from potluck.engine.point import Point
from potluck.engine.timeline import KEPT
from potluck.fleet import DEVICE, REFERENCE_OPS, slow_all_by_swapping

if TYPE_CHECKING:
    from potluck.simulate.devices import Devices

FEW: float = 8  # tasks: of fewer, columns take longer than they spare
MOST = 1 << 62  # replies that are heard as one event; whoever wants to see a run between any two sets 1


def fit(one: Task, other: Task) -> bool:
    """Whether two tasks may be in one flock."""
    a, b, alike = one.id, other.id, one.job is other.job and one.send is other.send
    return alike and a is not None and b is not None and a[1] == b[1]


class Flocks:
    """What happens to many of a barrier's tasks at once."""

    def __init__(self, devices: "Devices") -> None:
        self.devices, self.queues, self.clock = devices, devices.queues, devices.clock

    # -------------------------------------------------------------------------------------------- starting

    def accept(self, sender: Node, tasks: list[Task]) -> None:
        """Tasks that follow each other in a plan, in their order: those that fit together as flocks."""
        run: list[Task] = []
        nodes: set[Node] = set()
        busy = self.queues.first
        for task in tasks:
            if run and (task.to in nodes or not fit(run[0], task)):
                self._begin(sender, run)
                run, nodes = [], set()
            if task.to in busy:
                self._begin(sender, run)
                self.queues.accept(sender, task)
                run, nodes = [], set()
            else:
                run.append(task)
                nodes.add(task.to)
        self._begin(sender, run)

    def _begin(self, sender: Node, run: list[Task]) -> None:
        job = run[0].job if len(run) >= FEW and run[0].id is not None else None
        if job is not None and trains(job) and costs_together(job):
            self._start(sender, job, run)
            return
        for task in run:
            self.queues.accept(sender, task)

    def _start(self, sender: Node, job: CostsTogether, tasks: list[Task]) -> None:
        d, now, count = self.devices, self.clock.now, len(tasks)
        who = [task.to for task in tasks]
        first, counted = self.queues.accept_together(sender, tasks, who)
        nodes = np.array(who, np.int64)
        if d.forget:
            for i, node in enumerate(who):
                d.forget_some(node, first + i)

        def one(i: int) -> LazyLocal:
            return LazyLocal(d, Flight(first + i, sender, tasks[i], counted + i, now), tasks[i])

        send = tasks[0].send
        costs = job.cost_all(find_places(d, sender, tasks, nodes, now, one))
        machines = d.machines.take(nodes)
        ms, down_rate, up_rate = machines.compute, machines.down, machines.up
        if d.jitter is not None:
            slower, faster = np.array([d.jitter.factors(node, now) for node in who]).T
            ms, down_rate, up_rate = ms * slower, down_rate * faster, up_rate * faster
        if costs.same.memory:
            ms = ms * slow_all_by_swapping(costs.same.memory, machines.memory)
        compute = costs.ops / REFERENCE_OPS * ms / 1000 + costs.same.seconds
        bytes_down = nbytes(send)
        bytes_up = nbytes(costs.same.sends) if costs.same.sends else 0
        down, up = machines.latency + 8 * bytes_down / down_rate, machines.latency + 8 * bytes_up / up_rate
        d.training.add_all(range(first, first + count), job)
        ends, gone = now + down + compute + up, np.zeros(count, np.bool_)
        if not d.always:
            self._leave(who, job, first, ends, gone)
        order = np.argsort(ends, kind="stable")
        flock = Flock(
            id=first,
            sender=sender,
            count=counted,
            began=now,
            sheet=Sheet(tasks, down, compute, up),
            nodes=nodes,
            bytes_down=bytes_down,
            bytes_up=bytes_up,
            cost=costs.same,
            weights=costs.weights,
            gone=gone,
            ends=ends,
            place=self.clock.reserve(count),
            order=order,
            due=ends[order],
            there=np.ones(count, np.bool_),
            left=count,
        )
        self.queues.flocks[first] = flock
        if d.crew is not None:
            for i in np.flatnonzero(~gone).tolist():
                d.crew.join(flock.make_flight(i))
        self.wait(flock)

    def _leave(
        self, who: list[Node], job: Job, first: int, ends: NDArray[np.float64], gone: NDArray[np.bool_]
    ) -> None:
        """Of those who go before their end: when that is noticed."""
        for i, (node, end) in enumerate(zip(who, ends.tolist(), strict=True)):
            leaves = self.devices.find_leave(node, end)
            if leaves is not None:
                ends[i], gone[i] = leaves, True
                self.devices.training.remove(first + i, job)

    # ---------------------------------------------------------------------------------------------- ending

    def wait(self, flock: Flock) -> None:
        """Come back when the next row of a flock ends."""
        due = flock.find_next()
        if due is not None:
            self.clock.put(*due, flock.id)

    def go_on(
        self, flock: Flock, points: Mapping[Node, Point], seconds: float | None
    ) -> tuple[Node, Reply | Lost | Replies] | None:
        """Ends of a flock's rows: as many as one event may tell of, or one by itself; and who hears it."""
        rows = self.find_due(flock)
        heard: tuple[Node, Reply | Lost | Replies] | None = None
        if len(rows):
            wanted = points[flock.sender].count_wanted(flock.lane, flock.serial)
            replies = self.end(flock, rows[:wanted], seconds) if wanted else None
            if replies is not None:
                heard = flock.sender, replies
            else:
                self.clock.now = float(flock.ends[rows[0]])
                heard = self.devices.end(flock.id + int(rows[0]))
        self.wait(flock)
        return heard

    def find_due(self, flock: Flock) -> NDArray[np.int64]:
        """Rows that end before anything else happens; none, if that whose turn it was has been called off."""
        at, place = self.clock.heap[0][:2] if self.clock.heap else (np.inf, 0)
        return flock.list_until(at, place)[:MOST]

    def end(self, flock: Flock, rows: NDArray[np.int64], seconds: float | None) -> Replies | None:
        """Those of these rows that answer, one after another: up to one that doesn't, or isn't like others.

        Nor more than till devices have been at work for so many seconds. None: the first is no such row.
        """
        rows = self._cut(flock, rows)
        if len(rows):
            rows = rows[: self._count_good(flock, rows)]
        if len(rows):
            rows = self._charge(flock, rows, seconds)
            self._settle(flock, rows)
            return Replies(flock.sheet, rows)
        return None

    def _cut(self, flock: Flock, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Up to the first who leaves or lies, and to one for whose device something else waits."""
        d, nodes = self.devices, flock.nodes[rows]
        if d.crew is not None:
            return rows[:0]
        if flock.gone.any():
            rows = _until(rows, flock.gone[rows])
        if d.attack is not None and d.attackers is not None:
            rows = _until(rows, d.attackers[flock.nodes[rows]] & (flock.ends[rows] >= d.attack.start))
        if self.queues.behind:
            waits = [i for i, node in enumerate(nodes.tolist()) if node in self.queues.behind]
            rows = rows[: waits[0] + 1] if waits else rows
        return rows

    def _count_good(self, flock: Flock, rows: NDArray[np.int64]) -> int:
        """How many answer before the first who is refused; they are computed if they weren't yet."""
        sheet, training = flock.sheet, self.devices.training
        if sheet.results is None:
            training.compute(flock.make_flight(int(rows[0])), sheet.tasks[int(rows[0])])
        if training.aside is not None and training.pending:
            rows = rows[:1]  # whether others should begin is asked after each
        assert sheet.results is not None
        assert sheet.rows is not None
        bad = find_first_problem(sheet.results, sheet.rows[rows], flock.cost, flock.weights[rows])
        return len(rows) if bad is None else bad

    def _charge(self, flock: Flock, rows: NDArray[np.int64], seconds: float | None) -> NDArray[np.int64]:
        """Charge for them, up to the one with whom the seconds are reached."""
        accounts, sheet = self.devices.accounts, flock.sheet
        down, compute, up = sheet.down[rows], sheet.compute[rows], sheet.up[rows]
        total, elapsed = down + compute + up, flock.ends[rows] - flock.began
        short = elapsed < total * (1 - 1e-12)  # by rounding, if at all
        total = np.where(short, elapsed, total)
        sums = np.add.accumulate(np.concatenate([[accounts.seconds], total]))  # one after another
        if seconds is not None and sums[-1] >= seconds:
            count = int(np.argmax(sums[1:] >= seconds)) + 1
            return self._charge(flock, rows[:count], None)
        came = np.where(short, count_all_bytes(flock.bytes_down, elapsed, down), flock.bytes_down)
        went = np.where(short, count_all_bytes(flock.bytes_up, elapsed - down - compute, up), flock.bytes_up)
        noise = find_noise(flock.sheet.tasks[0].job)
        if noise is not None:  # what has begun to leave is seen
            for node in flock.nodes[rows][went > 0].tolist():
                accounts.release(node, noise.sigma, noise.delta)
        accounts.transfer(DEVICE, int(came.sum()), int(went.sum()))
        accounts.seconds = float(sums[-1])
        return rows

    def _settle(self, flock: Flock, rows: NDArray[np.int64]) -> None:
        """All else that their ends bring about but what their sender hears."""
        d, sheet = self.devices, flock.sheet
        nodes = flock.nodes[rows]
        self._keep(sheet, rows, nodes.tolist())
        d.accounts.tasks += len(rows)
        d.accounts.took_part[nodes] = True
        d.drought.waves = 0
        if flock.sender != d.root:
            for weight in flock.weights[rows].tolist():
                d.promised[flock.sender] += weight
        last = rows[-KEPT:]
        ids, seconds = [sheet.tasks[row].id for row in last.tolist()], (sheet.down, sheet.compute, sheet.up)
        columns = (column[last].tolist() for column in (*seconds, flock.ends))
        senders, starts, fates = ([same] * len(last) for same in (flock.sender, flock.began, ""))
        d.timeline.extend(zip(ids, senders, flock.nodes[last].tolist(), starts, *columns, fates, strict=True))
        self.clock.now = float(flock.ends[rows[-1]])
        self.queues.take_together(flock, rows)

    def _keep(self, sheet: Sheet, rows: NDArray[np.int64], nodes: list[Node]) -> None:
        """What devices remember of their tasks."""
        results = sheet.results
        if results is None or (isinstance(results, Results) and results.keep is None):
            return
        for row, node in zip(rows.tolist(), nodes, strict=True):
            result = sheet.find_result(row)
            if result is not None and result.keep is not None:
                self.devices.memories.put(node, sheet.tasks[row].slot, result.keep)


def _until(rows: NDArray[np.int64], stops: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows before the first of which this holds."""
    return rows[: int(np.argmax(stops))] if stops.any() else rows
