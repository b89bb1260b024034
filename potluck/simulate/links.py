"""What passes between aggregators: tasks down, answers up, alarms to themselves."""

from typing import Any

from potluck.core.messages import Answer, Cancel, Event, Lost, Node, Reply, Spent, Task, TaskId, Wake
from potluck.core.trees import finite, nbytes
from potluck.engine.accounts import Accounts
from potluck.engine.flight import part
from potluck.fleet import Profiles, Topology
from potluck.simulate.clock import Clock

HEAR = "hear"


class Links:
    """Messages on their way between aggregation points, alarms, and which answers are still wanted."""

    def __init__(self, topology: Topology, machines: Profiles, clock: Clock, accounts: Accounts) -> None:
        self.topology, self.machines, self.clock, self.accounts = topology, machines, clock, accounts
        # By sender and id: to whom, when sent, when it arrives, bytes.
        self.owing: dict[Node, dict[TaskId | None, tuple[Node, float, float, int]]] = {
            node: {} for node in topology.aggregators
        }
        self.alarms: dict[tuple[Node, Any], int] = {}  # set and not called off, by node and tag: its serial
        self.messages = 0  # on their way

    def busy(self, me: Node) -> set[Node]:
        """Aggregators below that owe this one an answer."""
        return {to for to, *_ in self.owing[me].values()}

    def alarm(self, node: Node, wake: Wake) -> None:
        """Wake an aggregator at a time; of alarms with the same tag the last one counts."""
        at = max(wake.at, self.clock.now)
        self.clock.push(at, HEAR, (node, wake, self.clock.serial + 1))
        self.alarms[node, wake.tag] = self.clock.serial

    def below(self, me: Node, task: Task) -> None:
        """Send a task to an aggregator below."""
        size = nbytes(task.send)
        seconds = float(self.machines.latency[task.to] + 8 * size / self.machines.down[task.to])
        self.owing[me][task.id] = (task.to, self.clock.now, self.clock.now + seconds, size)
        self._later(self.clock.now + seconds, task.to, task)

    def above(self, me: Node, answer: Answer) -> None:
        """Send an answer to the parent, unless it no longer wants it."""
        parent = self.topology.parent(me)
        assert parent is not None
        asked = self.owing[parent].get(answer.task.id)
        if asked is None:
            return
        size = nbytes(answer.body)
        up = float(self.machines.latency[me] + 8 * size / self.machines.up[me])
        self.accounts.transfer(self.topology.tier(me), 0, size)
        _, sent, arrived, _ = asked
        spent = Spent(arrived - sent, self.clock.now - arrived, up)
        good = finite(answer.body) and finite(float(answer.weight))
        event = (
            Reply(answer.task, answer.body, answer.weight, {}, spent) if good else Lost(answer.task, "bad")
        )
        self._later(self.clock.now + up, parent, event)

    def cancel(self, me: Node, what: Any) -> None:
        """Call off an alarm, or a task to an aggregator, which is told so."""
        if self.alarms.pop((me, what), None) is None:
            asked = self.owing[me].pop(what, None)
            if asked is None:
                return
            to, sent, arrives, size = asked
            now = self.clock.now
            if now < arrives:  # it turns back half-way
                self.messages -= 1
                self.accounts.transfer(self.topology.tier(to), part(size, now - sent, arrives - sent), 0)
            else:
                self._later(now + float(self.machines.latency[to]), to, Cancel(what))

    def arrived(self, node: Node, event: Event, serial: int) -> bool:
        """Take a message off its way; False when nobody waits for it any more."""
        if isinstance(event, Wake):
            if self.alarms.get((node, event.tag)) != serial:
                return False
            del self.alarms[node, event.tag]
            return True
        if isinstance(event, Task):
            parent = self.topology.parent(node)
            asked = None if parent is None else self.owing[parent].get(event.id)
            if asked is None:
                return False  # it was cancelled on its way
            self.accounts.transfer(self.topology.tier(node), asked[-1], 0)
        self.messages -= 1
        if isinstance(event, Reply):
            return self.owing[node].pop(event.task.id, None) is not None
        if isinstance(event, Lost) and isinstance(event.what, Task):
            self.accounts.lose(event.why)
            return self.owing[node].pop(event.what.id, None) is not None
        return True

    def state(self) -> Any:
        return self.owing, self.alarms, self.messages

    def restore(self, state: Any) -> None:
        self.owing, self.alarms, self.messages = state

    def _later(self, at: float, node: Node, event: Event) -> None:
        self.clock.push(at, HEAR, (node, event, 0))
        self.messages += 1
