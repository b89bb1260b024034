"""Hands for the commands of all aggregation points of a simulation."""

from collections.abc import Callable, Hashable

from potluck.core.messages import Answer, Lost, Move, Node, Note, Task, Tell, Wake
from potluck.simulate.devices import Devices
from potluck.simulate.links import Links


class Carrier:
    """Work goes to devices' queues, what passes between points over their links, and notes to the records."""

    __slots__ = ("accept", "accept_all", "devices", "links", "queues", "record")

    def __init__(self, devices: Devices, links: Links, record: Callable[..., None]) -> None:
        self.devices, self.queues, self.links, self.record = devices, devices.queues, links, record
        self.accept: Callable[[Node, Task | Tell | Move], None] = devices.queues.accept
        self.accept_all: Callable[[Node, list[Task]], None] = devices.flocks.accept

    def ask(self, me: Node, item: Task | Tell) -> None:
        if type(item) is Task:
            self.links.ask(me, item)
        else:
            self.links.tell(item)

    def answer(self, me: Node, answer: Answer) -> None:
        self.links.answer(me, answer)

    def wake(self, me: Node, wake: Wake, serial: int) -> None:
        self.links.wake(me, wake, serial)

    def note(self, note: Note) -> None:
        self.record(note.name, note.value, group=note.group)

    def lose(self, me: Node, lost: Lost) -> None:
        assert isinstance(lost.what, Task)
        self.devices.lose_answer(me, lost.what, lost.why)

    def cancel(self, me: Node, task: Hashable, over: bool) -> bool:
        fid = self.queues.find(me, task)
        if fid is None:
            return self.links.cancel(me, task)
        self.devices.cancel(me, fid, over)
        return True

    def works(self, me: Node) -> bool:
        return bool(self.queues.ids[me] or self.links.owing[me])
