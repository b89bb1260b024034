"""What an algorithm sees while it handles one event: a Context over whatever runtime is its host."""

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.errors import ConfigError
from potluck.core.job import Nets
from potluck.core.messages import Node, Task
from potluck.engine.host import Children, Host
from potluck.fleet import Profiles

TRIES = 30  # draws of a sample by rejection before everybody is looked at
FIRST = 10  # places that are drawn at first for a sample of one
FEW = 1000  # children of whom all are looked at if a first draw finds nobody: there may be nobody to be found
ONE = -9  # from here downwards: positions of an event's key for devices that are drawn one by one


class _Generators(threading.local):
    """Events come one after another, and so do their contexts: mostly one generator does for all."""

    def __init__(self) -> None:
        self.one = keys.Rewound()
        self.holder: Callable[[], EventContext | None] = lambda: None

    def lend(self, context: "EventContext", key: int) -> np.random.Generator:
        """The generator of a key: the common one, unless a context that has it is still alive."""
        if self.holder() is not None:
            return keys.generator(key)
        self.holder = weakref.ref(context)
        return self.one.at(key)


_GENERATORS = _Generators()


class EventContext:
    """One event's view; made anew for each, so nothing can be hidden in it."""

    __slots__ = (
        *("_alone", "_among", "_draws", "_freed", "_host", "_key", "_rng", "_stream", "_taken"),
        *("me", "owed", "stop"),
        "__weakref__",
    )

    def __init__(self, host: Host, me: Node, stream: tuple[int, ...]) -> None:
        self._host, self.me, self._stream = host, me, stream
        self._among: list[Node] | None = None
        self._rng: np.random.Generator | None = None
        self._draws = 0  # of single devices
        self._key: int | None = None
        self._taken: set[Node] | None = None  # sampled during this event, so as good as busy
        self._freed: set[Node] | tuple[()] = ()  # called off during this event, so as good as idle
        self._alone = False  # a sample found nobody, so the next one won't either
        self.owed: Task | None = None
        self.stop = False

    @property
    def here(self) -> Node:
        return self.me

    @property
    def parent(self) -> Node | None:
        return self._host.topology.parent(self.me)

    @property
    def now(self) -> float:
        return self._host.now

    @property
    def working(self) -> bool:
        return not self.stop and (self.owed is not None or self.me == self._host.root)

    @property
    def children(self) -> Children:
        return self._host.children[self.me] if self._among is None else self._among

    @property
    def models(self) -> Nets:
        return self._host.models

    @property
    def key(self) -> int:
        if self._key is None:
            self._key = keys.derive(self._host.seed, self.me, *self._stream)
        return self._key

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = _GENERATORS.lend(self, keys.derive(self.key, 1))
        return self._rng

    def profiles(self, nodes: Sequence[Node]) -> Profiles:
        return self._host.claimed.take(nodes)

    def rows(self, nodes: Sequence[Node]) -> NDArray[np.int64]:
        return np.array(self._host.count_rows(nodes), np.int64)

    def only(self, nodes: Iterable[Node]) -> "EventContext":
        view = EventContext(self._host, self.me, self._stream)
        if self._taken is None:
            self._taken = set()
        view._among, view._rng, view._key, view._taken = list(nodes), self.rng, self.key, self._taken
        view._freed = self._freed
        return view.holding(self.owed, self.stop)

    def holding(self, owed: Task | None, stop: bool) -> "EventContext":
        self.owed, self.stop = owed, stop
        return self

    def release(self, nodes: Iterable[Node]) -> None:
        self._freed, self._alone = {*self._freed, *nodes}, False

    def sample(self, count: int, but: Collection[Node] = ()) -> list[Node]:
        chosen = [] if self._alone else self._draw(count, but)
        self._alone = count > 0 and not (chosen or but)
        if self._taken is None:
            self._taken = set(chosen)
        else:
            self._taken.update(chosen)  # one set for all views of an event
        return chosen

    def ready(self, nodes: Sequence[Node]) -> list[Node]:
        return self._ready(nodes, np.arange(len(nodes)), ())

    def siblings(self, node: Node) -> list[Node]:
        user, mine = self._host.user, self.children
        if user[node] < 0:
            if (user < 0).all():
                raise ConfigError(
                    "fleet.users is missing: this algorithm asks whose a device is; set fleet.users, or "
                    "divide the data by user_devices"
                )
            return [node]
        found = np.flatnonzero(user == user[node])
        if isinstance(mine, range):
            return [n for n in found.tolist() if n in mine]
        near: list[Node] = found[np.isin(found, mine)].tolist()
        return near

    def _draw(self, count: int, but: Collection[Node]) -> list[Node]:
        children = self.children
        n = len(children)
        if count == 1 and n > 4 and self._rng is None:
            node = self._draw_one(children, n, but)
            if node is not None:
                return [node]
        if count * 4 < n:  # by rejection: the cost is that of the sample, not of the population
            found: dict[Node, None] = {}
            for tries in range(TRIES):
                places = self.rng.integers(n, size=2 * (count - len(found)) + FIRST - 2)
                found.update(dict.fromkeys(self._ready(children, places, but)))
                if len(found) >= count:
                    return list(found)[:count]
                if not (tries or found) and n <= FEW and not self._ready(children, np.arange(n), but):
                    return []
        return self._ready(children, self.rng.permutation(n), but)[:count]

    def _draw_one(self, children: Children, n: int, but: Collection[Node]) -> Node | None:
        """One device by counter, without the generator: asynchronous rules do this every task.

        None where devices come and go, and after many busy ones.
        """
        host = self._host
        if not host.always or host.topology.tiers:
            return None
        key, busy, taken, freed = self.key, host.busy, self._taken or (), self._freed
        for _ in range(FIRST):
            node = int(children[int(keys.chance(key, ONE - self._draws) * n)])
            self._draws += 1
            if (node not in busy or node in freed) and node not in taken and node not in but:
                return node
        return None

    def _ready(self, children: Children, places: NDArray[np.int64], but: Collection[Node]) -> list[Node]:
        """Those at these places who are online and idle."""
        host = self._host
        if isinstance(children, range):
            first, step = children.start, children.step
            nodes = places if (first, step) == (0, 1) else first + places * step
        else:
            nodes = np.asarray(children, np.int64)[places]
        if not host.always:
            nodes = nodes[host.online(nodes)]
        busy, taken, freed = host.busy, self._taken or (), self._freed
        if taken or freed or but:
            free = [
                n for n in nodes.tolist() if (n not in busy or n in freed) and n not in taken and n not in but
            ]
        else:  # as mostly: one look each
            free = [n for n in nodes.tolist() if n not in busy]
        if host.topology.tiers:
            owing = host.owing(self.me).difference(freed)
            free = [node for node in free if node not in owing]
        return free


class Glimpse(EventContext):
    """A context that notes whether it was asked for anything that is of this moment or event alone."""

    __slots__ = ("asked",)

    def __init__(self, host: Host, me: Node, stream: tuple[int, ...]) -> None:
        super().__init__(host, me, stream)
        self.asked = False

    @property
    def now(self) -> float:
        self.asked = True
        return super().now

    @property
    def key(self) -> int:
        self.asked = True
        return super().key

    def rows(self, nodes: Sequence[Node]) -> NDArray[np.int64]:
        self.asked = True
        return super().rows(nodes)

    def only(self, nodes: Iterable[Node]) -> EventContext:
        self.asked = True
        return super().only(nodes)

    def _draw(self, count: int, but: Collection[Node]) -> list[Node]:
        self.asked = True
        return super()._draw(count, but)

    def _ready(self, children: Children, places: NDArray[np.int64], but: Collection[Node]) -> list[Node]:
        self.asked = True
        return super()._ready(children, places, but)
