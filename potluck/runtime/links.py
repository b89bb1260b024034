"""What passes between aggregators: tasks down, answers up, alarms to themselves."""

from typing import Any

from potluck.fleet import Profiles, Topology
from potluck.messages import Answer, Event, Lost, Node, Reply, Spent, Task, TaskId, Wake
from potluck.runtime.accounts import Accounts
from potluck.runtime.clock import Clock
from potluck.trees import finite, nbytes

HEAR = "hear"


class Links:
    """Messages on their way between aggregation points, and which answers are still wanted."""

    def __init__(self, topology: Topology, machines: Profiles, clock: Clock, accounts: Accounts) -> None:
        self.topology, self.machines, self.clock, self.accounts = topology, machines, clock, accounts
        self.owing: dict[tuple[Node, TaskId | None], tuple[float, float]] = {}  # when sent, when arrived
        self.messages = 0  # on their way
        self.wakes = 0  # alarms that are set

    def later(self, at: float, node: Node, event: Event) -> None:
        """Let an aggregator hear an event at a time."""
        self.clock.push(at, HEAR, (node, event))
        if isinstance(event, Wake):
            self.wakes += 1
        else:
            self.messages += 1

    def below(self, me: Node, task: Task) -> None:
        """Send a task to an aggregator below."""
        size = nbytes(task.send)
        seconds = float(self.machines.latency[task.to] + 8 * size / self.machines.down[task.to])
        self.owing[me, task.id] = (self.clock.now, self.clock.now + seconds)
        self.accounts.transfer(self.topology.tier(task.to), size, 0)
        self.later(self.clock.now + seconds, task.to, task)

    def above(self, me: Node, answer: Answer) -> None:
        """Send an answer to the parent, unless it no longer wants it."""
        parent = self.topology.parent(me)
        assert parent is not None
        asked = self.owing.get((parent, answer.task.id))
        if asked is None:
            return
        size = nbytes(answer.body)
        up = float(self.machines.latency[me] + 8 * size / self.machines.up[me])
        self.accounts.transfer(self.topology.tier(me), 0, size)
        sent, arrived = asked
        spent = Spent(arrived - sent, self.clock.now - arrived, up)
        good = finite(answer.body) and finite(float(answer.weight))
        event = (
            Reply(answer.task, answer.body, answer.weight, {}, spent) if good else Lost(answer.task, "bad")
        )
        self.later(self.clock.now + up, parent, event)

    def forget(self, me: Node, task: TaskId) -> None:
        """An answer that is no longer wanted."""
        self.owing.pop((me, task), None)

    def arrived(self, node: Node, event: Event) -> bool:
        """Count a message in; False when nobody waits for it any more."""
        if isinstance(event, Wake):
            self.wakes -= 1
            return True
        self.messages -= 1
        if isinstance(event, Reply):
            return self.owing.pop((node, event.task.id), None) is not None
        if isinstance(event, Lost) and isinstance(event.what, Task):
            self.accounts.lose(event.why)
            return self.owing.pop((node, event.what.id), None) is not None
        return True

    def state(self) -> Any:
        return self.owing, self.messages, self.wakes

    def restore(self, state: Any) -> None:
        self.owing, self.messages, self.wakes = state
