"""What a parent asks for beside training: answered out of band, by memory or by rows, and called off."""

from dataclasses import replace

import torch
from support import SPEC, Desk, answer, cancelled, local, numbers, tasks

from potluck.algorithms.auxo.device import SLOT, CheckIn, TakeFeedback
from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec
from potluck.core.messages import Answer, Cancel, Lost, Reply, Spent, Task, Tell
from potluck.jobs import LabelSet, Train
from potluck.rules import Rounds

JOB = Train(SPEC)
WORK = Task(100, JOB, {"params": numbers()}, id=("up", 1, 0))
ASKED = Task(100, LabelSet(2), {}, id=("up", 2, 0))


class Office:
    """A FedAvg of three devices below a parent, in the middle of a round."""

    def __init__(self):
        self.rule, self.ctx = Rounds(FedAvg(3, JOB)), Desk(parent=99, children=range(3))
        self.state, _ = self.rule.init(self.ctx)
        self.round = tasks(self.hear(WORK))
        assert len(self.round) == 3

    def hear(self, event):
        self.ctx = self.ctx.later(busy=set())
        # As a snapshot would have it, before every event.
        self.state, commands = self.rule.receive(codec.decode(codec.encode(self.state)), event, self.ctx)
        return commands


def holds(task, *found, weight=1.0):
    return Reply(task, {"holds": torch.tensor(found)}, weight, {}, Spent())


def test_rows_are_asked_of_all_and_answered_in_mid_round():
    office = Office()
    asked = tasks(office.hear(ASKED))
    assert [t.to for t in asked] == [0, 1, 2]
    assert all(t.job == LabelSet(2) for t in asked)
    assert office.hear(holds(asked[0], True, False, weight=4.0)) == []
    assert office.hear(Lost(asked[2], "gone")) == []
    (said,) = office.hear(holds(asked[1], False, False, weight=2.0))
    assert isinstance(said, Answer)
    assert (said.task.id, said.weight, said.body["holds"].tolist()) == (ASKED.id, 6.0, [True, False])
    assert office.state.owed.id == WORK.id  # the round goes on
    for task in office.round:
        said = office.hear(answer(task, 1.0))
    assert [c.task.id for c in said if isinstance(c, Answer)] == [WORK.id]


def test_who_finds_nobody_says_so():
    office = Office()
    asked = tasks(office.hear(ASKED))
    heard = [office.hear(Lost(t, "gone")) for t in asked]
    assert heard[:2] == [[], []]
    ((said,),) = heard[2:]
    assert (type(said), said.task.id, said.why) == (Answer, ASKED.id, "gone")


def test_an_errand_is_called_off():
    office = Office()
    asked = tasks(office.hear(ASKED))
    office.hear(holds(asked[0], True, True))
    assert cancelled(office.hear(Cancel(ASKED.id))) == [t.id for t in asked[1:]]
    assert office.hear(holds(asked[1], True, True)) == []  # it was on its way
    assert office.state.errands == {}
    assert office.state.owed.id == WORK.id


def test_several_at_once_are_told_apart():
    office = Office()
    first, second = (tasks(office.hear(replace(ASKED, id=("up", n, 0)))) for n in (2, 3))
    for task in first[:2] + second[:2]:
        assert office.hear(holds(task, False, False)) == []
    (said,) = office.hear(holds(second[2], True, False))
    assert said.task.id == ("up", 3, 0)
    (said,) = office.hear(holds(first[2], False, False))
    assert (said.task.id, said.body["holds"].tolist()) == (("up", 2, 0), [False, False])


def test_what_needs_a_memory_is_done_on_the_spot():
    office = Office()
    inbox = {"leaves": ["0", "1"], "epsilon": 0.0}
    (asked,) = tasks(office.hear(Task(100, CheckIn(), inbox, slot=SLOT, id=("up", 2, 0))))
    assert (asked.to, asked.slot, asked.send) == (100, SLOT, inbox)  # its own machine, and its memory
    body = asked.job.run(local([], [], inbox)).body
    (said,) = office.hear(Reply(asked, body, 1.0, {}, Spent()))
    assert (said.body, said.weight) == (body, 1.0)


def test_words_reach_whom_they_concern():
    office, told = Office(), {"feedback": None}
    (passed,) = office.hear(Tell(100, TakeFeedback(), told, SLOT))
    assert (type(passed), passed.to, passed.slot) == (Tell, 100, SLOT)
    passed = office.hear(Tell(100, LabelSet(2), {}))
    assert [c.to for c in passed] == [0, 1, 2]
