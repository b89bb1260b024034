"""One aggregation point under another runtime than the simulator: a host of facts, a carrier that notes."""

from types import SimpleNamespace

import numpy as np
import pytest
from support import Script

from potluck.core import codec
from potluck.core.messages import Answer, Cancel, Lost, Move, Note, Stop, Task, Tell, Until, Wake
from potluck.engine.context import EventContext
from potluck.engine.point import Point, PointState
from potluck.engine.queues import Queues, QueueState
from potluck.fleet import Topology

ROOT = 4


class Carrier:
    """Notes what it is told to do; tasks of `under_way` can be called off."""

    def __init__(self, under_way=()):
        self.did, self.under_way = [], {*under_way}

    def cancel(self, me, task, over):
        self.did.append(("cancel", me, task, over))
        return task in self.under_way

    def __getattr__(self, name):
        return lambda *given: self.did.append((name, *given))


def make_host(**facts):
    topology = Topology.build(4)
    plain = {"topology": topology, "root": ROOT, "seed": 1, "now": 0.0, "children": {ROOT: range(4)}}
    return SimpleNamespace(**plain | {"always": True, "busy": {}, "user": np.full(4, -1)} | facts)


def make_point(script, carrier, host=None):
    return Point(ROOT, script, host or make_host(), carrier, PointState())


def test_commands_go_where_they_belong():
    task, own, below = Task(1, None, {}), Task(ROOT, None, {}), Task(7, None, {})
    tell, move, wake, answer = Tell(2, None, {}), Move(0, 1, ()), Wake(3.0, "tea"), Answer(task, {}, 1.0)
    carrier = Carrier()
    note = Note("split", 1)
    point = make_point(Script(task, own, below, tell, move, wake, answer, note, Until()), carrier)
    point.begin()
    assert carrier.did == [
        ("accept", ROOT, task),
        ("accept", ROOT, own),
        ("ask", ROOT, below),
        ("accept", ROOT, tell),
        ("accept", ROOT, move),
        ("wake", ROOT, wake, 1),
        ("answer", ROOT, answer),
        ("note", note),
    ]


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ("01", "edge 1 / 01"),  # a cohort, which other edges have members of, too
        (("01", None), "edge 1 / 01"),  # as its slot says it
        (("0", ("half", 2)), "edge 1 / 0 / half / 2"),
        (("", None), 6),
        (2, "edge 1 / 2"),  # a class, a device: what an algorithm calls so
        (None, 6),  # of the edge itself
        ("", 6),
        (6, 6),
        (4, 4),  # an aggregator: there is no second one
    ],
)
def test_below_the_cloud_notes_bear_the_name_of_their_aggregator(group, kept):
    topology = Topology.build(4, ("edge",), {"edge": np.array([0, 0, 1, 1])})
    host, told = make_host(topology=topology, children={6: [2, 3]}), Note("guarded", 3, group)
    below, above = Carrier(), Carrier()
    Point(6, Script(told), host, below, PointState()).begin()
    Point(ROOT, Script(told), host, above, PointState()).begin()
    assert [(note.name, note.value, note.group) for _, note in below.did] == [("guarded", 3, kept)]
    assert above.did == [("note", told)]


def test_every_event_is_a_tick_and_has_numbers_of_its_own():
    seen = []
    point = make_point(Script(then=lambda e, ctx: seen.append((ctx.key, ctx.rng.random())) or []), Carrier())
    point.begin()
    for _ in range(3):
        point.hear(Wake(1.0))
    assert point.own.tick == 3
    assert len({key for key, _ in seen}) == len({number for _, number in seen}) == 3


def test_of_alarms_with_one_tag_the_last_one_counts():
    carrier = Carrier()
    point = make_point(Script(Wake(1.0, "a"), Wake(2.0, "a"), Wake(3.0, "b")), carrier)
    point.begin()
    first, last, other = carrier.did
    assert not point.take_alarm(*first[2:])
    assert point.take_alarm(*last[2:])
    assert not point.take_alarm(*last[2:])  # it went off once
    point.obey([Cancel("b")])
    assert not point.take_alarm(*other[2:])


def test_a_task_is_called_off_and_no_alarm_of_that_name():
    carrier = Carrier(under_way=["x"])
    point = make_point(Script(Wake(1.0, "x")), carrier)
    point.begin()
    point.obey([Cancel("x")])
    assert "x" in point.own.alarms
    point.stop()
    point.obey([Cancel("y")])
    assert carrier.did[1:] == [("cancel", ROOT, "x", False), ("cancel", ROOT, "y", True)]
    assert point.algorithm.of(Stop)


def test_its_state_is_a_value():
    point = make_point(Script(Wake(1.0, ("lane", 2))), Carrier())
    point.begin()
    point.hear(Lost(Task(0, None, {}), "gone"))
    again = codec.decode(codec.encode(point.own))
    assert (again.tick, again.alarms, again.alarm, again.stopped) == (1, {("lane", 2): 1}, 1, False)


def test_who_is_not_there_is_not_drawn_aggregators_neither():
    host = make_host(always=False, online=lambda nodes: nodes != 2)
    ctx = EventContext(host, ROOT, (1,))
    assert sorted(ctx.sample(4)) == [0, 1, 3]
    assert ctx.ready([2, 3]) == []  # 3 was drawn just now
    other = EventContext(make_host(always=False, online=lambda nodes: nodes < 6), ROOT, (1,))
    assert other.only([5, 6]).sample(2) == [5]
    many = make_host(always=False, online=lambda nodes: nodes == 2, children={ROOT: range(9)})
    for tick in range(20):
        assert EventContext(many, ROOT, (tick,)).sample(1) == [2]


# ----------------------------------------------------------------------------------------------------- queues


@pytest.fixture
def queues():
    found = SimpleNamespace(started=[])
    found.queues = Queues(QueueState.begin((ROOT,)), lambda flight, nodes: found.started.append(flight.id))
    return found


def test_items_of_one_device_start_one_after_another(queues):
    q = queues.queues
    for node in (0, 0, 1):
        q.accept(ROOT, Task(node, None, {}, id=(None, 1, len(q.flights))))
    assert queues.started == [1, 3]
    q.free(q.take(1))
    assert queues.started == [1, 3, 2]
    q.free(q.take(2))
    assert (q.first, q.behind) == ({1: 3}, {})


def test_a_move_waits_for_both_of_its_devices(queues):
    q = queues.queues
    q.accept(ROOT, Tell(0, None, {}))
    q.accept(ROOT, Move(0, 1, ()))
    q.accept(ROOT, Tell(1, None, {}))
    assert queues.started == [1]  # the second tell waits behind the move
    q.free(q.take(1))
    assert queues.started == [1, 2]
    q.free(q.take(2))
    assert queues.started == [1, 2, 3]


@pytest.mark.parametrize("ended", [1, 2])
def test_a_move_that_is_first_for_one_of_its_devices_waits_for_the_other(queues, ended):
    q = queues.queues
    for item in (Tell(0, None, {}), Tell(1, None, {}), Move(0, 1, ())):
        q.accept(ROOT, item)
    q.free(q.take(ended))
    assert queues.started == [1, 2]
    q.free(q.take(3 - ended))
    assert queues.started == [1, 2, 3]


def test_what_waits_can_be_taken_out(queues):
    q = queues.queues
    for place in range(3):
        q.accept(ROOT, Task(0, None, {}, id=(None, 1, place)))
    q.free(q.take(q.find(ROOT, (None, 1, 1))))
    assert q.find(ROOT, (None, 1, 1)) is None
    assert q.take(2) is None
    q.free(q.take(1))
    assert queues.started == [1, 3]
