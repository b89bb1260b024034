"""What passes between aggregators: tasks and words down, answers up, alarms to themselves."""

from collections.abc import Hashable, Iterable
from dataclasses import replace

from potluck.core.codec import value
from potluck.core.messages import Answer, Cancel, Event, Lost, Node, Reply, Spent, Task, Tell, Wake
from potluck.core.trees import finite, nbytes
from potluck.engine.accounts import Accounts
from potluck.engine.checks import find_weight_problem
from potluck.engine.flight import count_bytes
from potluck.fleet import Profiles, Topology
from potluck.simulate.clock import Clock


@value
class OpenRequest:
    """A task to an aggregator below that isn't answered yet."""

    to: Node
    sent: float
    arrives: float
    bytes: int
    heard: bool = False  # its time alone doesn't tell: a call at the moment of its arrival may come first


@value(frozen=False, eq=False)
class LinkState:
    """What is on its way, and which answers are still wanted."""

    owing: dict[Node, dict[Hashable, OpenRequest]]  # by sender and id of the task
    promised: dict[Node, float]  # largest weights of all that an aggregator has heard since its last answer
    most: dict[Node, float]  # largest weight of that answer
    messages: int = 0  # on their way

    @classmethod
    def begin(cls, senders: Iterable[Node]) -> "LinkState":
        nodes = list(senders)
        return cls({node: {} for node in nodes}, dict.fromkeys(nodes, 0.0), dict.fromkeys(nodes, 1.0))


class Links:
    """Messages on their way between aggregation points, and which answers are still wanted."""

    def __init__(
        self, topology: Topology, machines: Profiles, clock: Clock, accounts: Accounts, state: LinkState
    ) -> None:
        self.topology, self.machines, self.clock, self.accounts = topology, machines, clock, accounts
        self.state, self.owing = state, state.owing

    def find_owing(self, me: Node) -> set[Node]:
        """Aggregators below that owe this one an answer."""
        return {asked.to for asked in self.owing[me].values()}

    def wake(self, node: Node, wake: Wake, serial: int) -> None:
        """Wake an aggregator at a time; the point knows by the serial whether it still counts."""
        self.clock.push(max(wake.at, self.clock.now), (node, wake, serial))

    def ask(self, me: Node, task: Task) -> None:
        """Send a task to an aggregator below."""
        size = nbytes(task.send)
        seconds = float(self.machines.latency[task.to] + 8 * size / self.machines.down[task.to])
        self.owing[me][task.id] = OpenRequest(task.to, self.clock.now, self.clock.now + seconds, size)
        self._send(self.clock.now + seconds, task.to, task)

    def tell(self, tell: Tell) -> None:
        """Tell an aggregator below; nothing is heard of it."""
        size = nbytes(tell.send)
        seconds = float(self.machines.latency[tell.to] + 8 * size / self.machines.down[tell.to])
        self.accounts.transfer(self.topology.tier(tell.to), size, 0)
        self._send(self.clock.now + seconds, tell.to, tell)

    def answer(self, me: Node, answer: Answer) -> None:
        """Send an answer to the parent, unless it no longer wants it."""
        parent = self.topology.parent(me)
        assert parent is not None
        asked = self.owing[parent].get(answer.task.id)
        if asked is None:
            return
        if answer.why is not None:
            far = float(self.machines.latency[me])
            self._send(self.clock.now + far, parent, Lost(answer.task, answer.why))
            return
        size = nbytes(answer.body)
        up = float(self.machines.latency[me] + 8 * size / self.machines.up[me])
        self.accounts.transfer(self.topology.tier(me), 0, size)
        spent = Spent(asked.arrives - asked.sent, self.clock.now - asked.arrives, up)
        most = self._take_most(me)
        self.state.promised[parent] += most
        good = finite(answer.body) and find_weight_problem(answer.weight, most) is None
        event: Event = Lost(answer.task, "bad")
        if good:
            event = Reply(answer.task, answer.body, answer.weight, answer.metrics, spent)
        self._send(self.clock.now + up, parent, event)

    def cancel(self, me: Node, task: Hashable) -> bool:
        """Call off a task to an aggregator, which is told so; False when there is no such task."""
        asked = self.owing[me].pop(task, None)
        if asked is None:
            return False
        to, now = asked.to, self.clock.now
        if not asked.heard:  # it turns back on its way
            self.state.messages -= 1
            passed = count_bytes(asked.bytes, now - asked.sent, asked.arrives - asked.sent)
            self.accounts.transfer(self.topology.tier(to), passed, 0)
        else:
            self._send(now + float(self.machines.latency[to]), to, Cancel(task))
        return True

    def take(self, node: Node, event: Event) -> bool:
        """Take a message off its way; False when nobody waits for it any more."""
        if isinstance(event, Task):
            parent = self.topology.parent(node)
            assert parent is not None
            asked = self.owing[parent].get(event.id)
            if asked is None:
                return False  # it was cancelled on its way
            self.accounts.transfer(self.topology.tier(node), asked.bytes, 0)
            self.owing[parent][event.id] = replace(asked, heard=True)
        self.state.messages -= 1
        if isinstance(event, Reply):
            return self.owing[node].pop(event.task.id, None) is not None
        if isinstance(event, Lost) and isinstance(event.what, Task):
            self.accounts.lose(event.why)
            return self.owing[node].pop(event.what.id, None) is not None
        return True

    def _take_most(self, me: Node) -> float:
        """The largest weight of an answer: that of all it was sent since the last, or before if that is more.

        An aggregator may answer by what it knew already, and it counts as one where it counts nothing.
        """
        state = self.state
        state.most[me], state.promised[me] = max(state.most[me], state.promised[me]), 0.0
        return state.most[me]

    def _send(self, at: float, node: Node, event: Event) -> None:
        self.clock.push(at, (node, event, 0))
        self.state.messages += 1
