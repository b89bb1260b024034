"""Edges and their cloud, driven by hand: what each says to every event, and two edges below one cloud."""

from dataclasses import dataclass, field

from support import SPEC, Desk, answer, notes, numbers, tasks

from potluck.algorithms.fedavg import FedAvg
from potluck.core.messages import Answer, Lost, Reply, Spent, Task
from potluck.jobs import Train
from potluck.rules import Rounds
from potluck.rules.edges import EVERYBODY, Edge, EvenCloud

ME, CLOUD = 100, 99


def plain(**settings):
    return Edge(FedAvg(EVERYBODY, Train(SPEC)), **settings)


def halved(**settings):
    """An edge as in the paper."""
    return plain(mix="half", edge_view="mixed", **settings)


@dataclass
class Hand:
    """An edge of a few devices, driven by hand."""

    rule: Edge
    devices: int = 2
    me: int = ME
    ctx: Desk = None
    state: object = None
    open: list = field(default_factory=list)  # tasks of devices that are at work

    def __post_init__(self):
        self.ctx = Desk(children=range(self.devices), parent=CLOUD, me=self.me, here=self.me)
        self.rounds = Rounds(self.rule)
        self.state, said = self.rounds.init(self.ctx)
        assert said == []  # it waits for the cloud's first word

    def hear(self, event):
        """What it says to that: answers of the cloud's tasks, tasks for devices, notes."""
        self.state, said = self.rounds.receive(self.state, event, self.ctx)
        self.ctx = self.ctx.later()
        self.open += tasks(said)
        return [c for c in said if isinstance(c, Answer)], tasks(said), dict(notes(said))

    def told(self, w, b, serial, job=Train(), slot=None):
        return self.hear(Task(self.me, job, {"params": numbers(w, b)}, slot=slot, id=(None, serial, 0)))

    def trained(self, sent, w, b=0.0):
        """Devices come back, one after another, all with the same change."""
        for task in sent:
            self.ctx.busy.discard(task.to)
            self.open = [other for other in self.open if other.id != task.id]
            said = self.hear(answer(task, w, b))
        return said

    def learn(self, w, b=0.0):
        """The round at hand comes to this change; the answers that follow."""
        return self.trained(list(self.open), w, b)[0]

    @property
    def params(self):
        return self.rule.serve(self.state.model, self.me, self.ctx)["global"].send["params"]


@dataclass
class TwoEdges:
    """A cloud with two edges below it; what passes between them passes by hand."""

    left: Hand
    right: Hand

    def __post_init__(self):
        self.ctx = Desk(children=[self.left.me, self.right.me], me=CLOUD, here=CLOUD)
        self.rounds = Rounds(EvenCloud(FedAvg(EVERYBODY, Train(SPEC))))
        self.state, said = self.rounds.init(self.ctx)
        self.asked = {task.to: task for task in tasks(said)}

    @classmethod
    def of(cls, **settings):
        return cls(Hand(plain(**settings), me=101), Hand(plain(**settings), me=102))

    @property
    def edges(self):
        return self.left, self.right

    @property
    def params(self):
        return self.state.model.params

    def tell(self, *edges):
        """The cloud's model comes to these edges, or to both; what they answer at once."""
        return [said for edge in edges or self.edges for said in edge.hear(self.asked[edge.me])[0]]

    def hear(self, edge, answers):
        """The cloud hears an edge's answer, or that none will come."""
        task = self.asked.pop(edge.me)
        event = Lost(task, "gone")
        if answers:
            (said,) = answers
            assert said.task.id == task.id
            event = Reply(task, said.body, said.weight, {}, Spent())
        self.ctx.busy.clear()
        self.state, said = self.rounds.receive(self.state, event, self.ctx)
        self.ctx = self.ctx.later()
        self.asked |= {task.to: task for task in tasks(said)}
