"""Seeds depend on who asked whom for what, and on nothing that others do meanwhile."""

from potluck.core.messages import Move, Task, Tell
from potluck.engine.queues import Queues, QueueState
from potluck.engine.seeds import seed_move, seed_work

LEFT, RIGHT = 100, 101  # two senders
MOVE = Move(1, 2, ((0, 1),))


def started(*sent):
    """Flights of what two senders send, in the order of their start."""
    found = []
    queues = Queues(QueueState.begin((LEFT, RIGHT)), lambda flight, nodes: found.append(flight))
    for sender, item in sent:
        queues.accept(sender, item)
        queues.free(queues.take(found[-1].id))
    return found


def seeds(flights):
    return [seed_move(1, f, f.item) if isinstance(f.item, Move) else seed_work(1, f, f.item) for f in flights]


def test_items_are_counted_by_sender():
    tell = Tell(0, None, {})
    alone = started((LEFT, tell), (LEFT, MOVE), (LEFT, tell))
    beside = started((RIGHT, tell), (LEFT, tell), (RIGHT, MOVE), (LEFT, MOVE), (RIGHT, tell), (LEFT, tell))
    assert [f.count for f in beside] == [1, 1, 2, 2, 3, 3]
    assert seeds(f for f in beside if f.sender == LEFT) == seeds(alone)
    assert len({*seeds(beside)}) == 6


def test_a_task_is_seeded_by_its_id():
    task = Task(0, None, {}, id=("lane", 3, 1))
    first, second = started((LEFT, task)), started((LEFT, MOVE), (LEFT, task))
    assert seeds(first)[0] == seeds(second)[1]
    other = Task(0, None, {}, id=("lane", 3, 2))
    assert len({*seeds(started((LEFT, task), (LEFT, other), (RIGHT, task), (LEFT, Task(0, None, {}))))}) == 4
