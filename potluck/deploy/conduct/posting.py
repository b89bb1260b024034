"""What leaves a server: work, and models to be scored, as parcels; when each left, and how large it was."""

from collections.abc import Callable
from math import inf

from potluck.core import codec
from potluck.core.messages import Move, Node
from potluck.core.trees import Tree
from potluck.deploy import parcels
from potluck.deploy.conduct.conductor import Conductor
from potluck.deploy.conduct.conductor_state import Ask
from potluck.deploy.conduct.events import Dropped, Unjudged
from potluck.deploy.port import Outgoing, Port

TREES = 8  # whose bytes are kept, since many devices are sent the same


class Poster:
    """Makes parcels and hands them to the port."""

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self.port, self.clock = port, clock
        self.posted: dict[str, tuple[float, int]] = {}  # by key: when it left, and its bytes
        self.asked: dict[Node, float] = {}  # when something last left for a node
        self.encoded: dict[int, tuple[Tree, bytes]] = {}  # by a tree's id

    def make_work(self, conductor: Conductor, fid: int) -> Outgoing:
        """A parcel of a flight."""
        flight = conductor.queues.flights[fid]
        assert not isinstance(flight.item, Move)
        work = conductor.make_work(flight)
        return Outgoing(flight.item.to, work.key, parcels.pack(work), self._encode(flight.item.send))

    def make_ask(self, conductor: Conductor, key: str, serial: int, ask: Ask) -> Outgoing:
        """A parcel of a model that is to be scored."""
        head, sent = conductor.evaluations.make_order(key, serial, ask)
        return Outgoing(ask.node, key, parcels.pack(head), self._encode(sent))

    def forget(self, conductor: Conductor, node: Node) -> None:
        """A device has left: nothing is on its way to it any more."""
        flights = conductor.queues.flights.values()
        mine = [f for f in flights if not isinstance(f.item, Move) and f.item.to == node]
        asks = [key for key, _, ask in conductor.evaluations.list_asks() if ask.node == node]
        for key in [*asks, *map(conductor.make_key, mine)]:
            self.posted.pop(key, None)

    def list_overdue(self, conductor: Conductor, most: float) -> list[tuple[Node, Dropped | Unjudged]]:
        """What devices have had for longer than they may: they may be there and never answer."""
        last, found = self.clock() - most, list[tuple[Node, Dropped | Unjudged]]()
        for node, fid in conductor.queues.first.items():
            key = conductor.make_key(conductor.queues.flights[fid])
            if node < conductor.root and self.posted.get(key, (inf, 0))[0] <= last:
                found.append((node, Dropped(fid, "gone")))
        for key, _, ask in conductor.evaluations.list_asks():
            if ask.node < conductor.root and self.posted.get(key, (inf, 0))[0] <= last:
                del self.posted[key]
                found.append((ask.node, Unjudged(key)))
        return found

    def send(self, out: list[Outgoing]) -> None:
        """Hand parcels to the port."""
        for parcel in out:
            if parcel.wanted:
                self.posted.setdefault(parcel.key, (self.clock(), len(parcel.head) + len(parcel.body)))
            self.asked[parcel.to] = self.clock()
        self.port.post_all(out)

    def _encode(self, tree: Tree) -> bytes:
        """A tree as bytes; the same tree, by identity, is encoded once."""
        found = self.encoded.get(id(tree))
        if found is None or found[0] is not tree:
            while len(self.encoded) >= TREES:
                del self.encoded[next(iter(self.encoded))]
            found = self.encoded[id(tree)] = (tree, codec.encode(tree))
        return found[1]
