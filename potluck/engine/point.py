"""One aggregation point: it hears an event, its algorithm answers with commands, a carrier obeys them."""

from collections.abc import Hashable
from dataclasses import field, replace
from typing import Any

from potluck.core.codec import value
from potluck.core.messages import (
    Answer,
    Cancel,
    Command,
    Event,
    Lane,
    Lost,
    Move,
    Node,
    Note,
    Stop,
    Task,
    Tell,
    Until,
    Wake,
)
from potluck.core.replies import Replies
from potluck.core.rule import Algorithm, Relays, Rule, Runnable, Tiered
from potluck.engine.context import EventContext, Glimpse
from potluck.engine.host import Carrier, Host
from potluck.fleet import Fleet, Topology
from potluck.rules import Rounds, as_algorithm
from potluck.rules.wrap import unwrap

LOOK = "look again"  # tag of the alarm of a point that waits for devices


@value(frozen=False, eq=False)
class PointState:
    """All of a point that changes during a run."""

    state: Any = None  # the algorithm's own
    tick: int = 0  # events heard, for their randomness
    round: int = 0  # how often the served model has changed, when it was last counted
    alarms: dict[Hashable, int] = field(default_factory=dict)  # set and not called off: tag to serial
    alarm: int = 0  # the last alarm's serial
    stopped: bool = False  # it has heard that the run is over


class Point:
    """One aggregation point of a run. Its own state is a value; the rest is given and never changes."""

    __slots__ = ("algorithm", "carrier", "devices", "host", "node", "own", "top")

    def __init__(
        self, node: Node, algorithm: Algorithm, host: Host, carrier: Carrier, own: PointState
    ) -> None:
        self.node, self.algorithm, self.host, self.carrier, self.own = node, algorithm, host, carrier, own
        self.devices, self.top = host.topology.devices, node == host.topology.root

    def begin(self) -> None:
        """Let the algorithm make its state, and obey its first commands."""
        self.own.state, commands = self.algorithm.init(EventContext(self.host, self.node, (0,)))
        self.obey(commands)

    def count_wanted(self, lane: Lane, serial: int) -> int:
        """How many replies of a barrier may be heard as one event; 0: not even one as a table."""
        if not isinstance(self.algorithm, Rounds):
            return 0
        ctx = Glimpse(self.host, self.node, (self.own.tick + 1,))
        wanted = self.algorithm.count_wanted(self.own.state, lane, serial, ctx)
        return min(wanted, 1) if ctx.asked else wanted

    def hear(self, event: Event | Replies) -> None:
        """Hand an event to the algorithm and obey what it commands."""
        own, algorithm = self.own, self.algorithm
        tick = own.tick = own.tick + (len(event) if type(event) is Replies else 1)
        ctx = EventContext(self.host, self.node, (tick,))
        if type(event) is Replies:
            assert isinstance(algorithm, Rounds)
            own.state, commands = algorithm.receive(own.state, event, ctx)
        else:
            own.state, commands = algorithm.receive(own.state, event, ctx)
        if commands:
            self.obey(commands)

    def stop(self) -> None:
        """Tell the algorithm that the run is over."""
        self.own.stopped = True
        self.hear(Stop())

    def obey(self, commands: list[Command]) -> None:
        """Hand commands to the carrier, in their order."""
        me, carrier, devices = self.node, self.carrier, self.devices
        tasks: list[Task] = []  # for devices, in a row
        for c in commands:
            if type(c) is Task and c.to < devices:
                tasks.append(c)
                continue
            if tasks:
                self._ask(tasks)
                tasks = []
            if type(c) is Task:
                if c.to == me:
                    carrier.accept(me, c)
                else:
                    carrier.ask(me, c)
            elif isinstance(c, Note):
                carrier.note(c if self.top else self._sign(c))
            elif isinstance(c, Tell) and c.to >= devices and c.to != me:
                carrier.ask(me, c)
            elif isinstance(c, Tell | Move):
                carrier.accept(me, c)
            elif isinstance(c, Cancel):
                if not carrier.cancel(me, c.id, self.own.stopped):
                    self.own.alarms.pop(c.id, None)
            elif isinstance(c, Wake):
                self.set_alarm(c)
            elif isinstance(c, Answer):
                carrier.answer(me, c)
            elif isinstance(c, Lost):
                carrier.lose(me, c)
            else:
                assert isinstance(c, Until), f"not a command: {c!r}"  # outside Rounds it means nothing
        if tasks:
            self._ask(tasks)

    def _ask(self, tasks: list[Task]) -> None:
        if len(tasks) == 1:
            self.carrier.accept(self.node, tasks[0])
        else:
            self.carrier.accept_all(self.node, tasks)

    def _sign(self, note: Note) -> Note:
        """Of a point below others, by its path: several may note the same of groups that are called alike."""
        topology, group = self.host.topology, note.group
        if isinstance(group, int) and group >= self.devices:
            return note  # of an aggregator: there is no second one
        names = _list_names(group)
        return replace(note, group=" / ".join([topology.name(self.node), *names]) if names else self.node)

    def set_alarm(self, wake: Wake) -> None:
        """Have itself woken at a time; of alarms with the same tag the last one counts."""
        self.own.alarm += 1
        self.own.alarms[wake.tag] = self.own.alarm
        self.carrier.wake(self.node, wake, self.own.alarm)

    def take_alarm(self, wake: Wake, serial: int) -> bool:
        """Whether an alarm that goes off still counts; it is no longer set then."""
        if self.own.alarms.get(wake.tag) != serial:
            return False
        del self.own.alarms[wake.tag]
        return True

    def count_rounds(self) -> tuple[int, int]:
        """The number of rounds when they were last counted, and now."""
        before, self.own.round = self.own.round, self.algorithm.round(self.own.state)
        return before, self.own.round

    def find_waiting(self) -> list[Lane]:
        """Lanes that would go on but can't."""
        return list(self.algorithm.waiting(self.own.state, EventContext(self.host, self.node, (0,))))

    def should_look(self) -> bool:
        """Whether it should be woken when devices may have come: lanes wait, and no such alarm is set."""
        return LOOK not in self.own.alarms and bool(self.find_waiting())


def _list_names(group: Any) -> list[str]:
    """What a group is called; one within another comes as a tuple, as memories of theirs do (`Task.slot`)."""
    if isinstance(group, tuple):
        return [name for part in group for name in _list_names(part)]
    return [] if group is None or group == "" else [str(group)]


def find_topology(algorithm: Runnable, fleet: Fleet) -> Topology:
    """Who is below whom when a fleet runs an algorithm."""
    tiers = algorithm.tiers if isinstance(algorithm, Tiered) else ()
    return Topology.build(len(fleet), tiers, fleet.groups)


def find_relays(algorithm: Runnable) -> dict[str, Relays]:
    """By tier, from the cloud downward: who passes on training from above."""
    tiers = algorithm.tiers if isinstance(algorithm, Tiered) else ()
    found: dict[str, Relays] = {}
    for tier in tiers:
        assert isinstance(algorithm, Tiered)
        placed = as_algorithm(algorithm.at(tier))
        rule = unwrap(placed.rule) if isinstance(placed, Rounds) else placed
        if isinstance(rule, Relays):
            found[tier] = rule
    return found


def find_moving(algorithm: Runnable) -> list[str]:
    """The tiers within whose members rows move."""
    return [tier for tier, rule in find_relays(algorithm).items() if rule.moves]


def place_algorithms(algorithm: Runnable, topology: Topology) -> dict[Node, Algorithm]:
    """What each aggregation point runs."""
    if topology.tiers and isinstance(algorithm, Tiered):
        return {node: as_algorithm(algorithm.at(topology.tier(node))) for node in topology.aggregators}
    assert isinstance(algorithm, Rule | Algorithm), f"{algorithm!r} is neither a rule nor an algorithm"
    return {node: as_algorithm(algorithm) for node in topology.aggregators}
