"""How parcels travel, as three calls; and the port without a network, for tests and for one process.

A port may lose, repeat and reorder anything. It says who is there, and it vouches for who has answered: a
report is handed over with the number of the node that it came from.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from potluck.core.messages import Node


class Outgoing(NamedTuple):
    """A parcel for a node. A later one of the same key takes its place."""

    to: Node
    key: str
    head: bytes  # of the parcel, packed
    body: bytes  # shared by all that are sent the same tree
    wanted: bool = True  # whether an answer is


class Incoming(NamedTuple):
    """A report, as it came."""

    node: Node
    key: str
    parcel: bytes
    seconds: float = 0.0  # since the parcel that it answers left


class Port(Protocol):
    """What a conductor knows of a network."""

    def nodes(self) -> Mapping[Node, str]: ...  # who is there, and the session: another one has restarted
    def post_all(self, parcels: Sequence[Outgoing]) -> None: ...
    def poll(self, wait: float) -> list[Incoming]: ...  # at most so many seconds


Answer = Callable[[bytes], bytes]  # a device: a parcel in, a parcel out; empty: no answer


class MemoryPort:
    """Devices in this process; parcels pass as bytes, as they would elsewhere."""

    def __init__(self, devices: Mapping[Node, Answer]) -> None:
        self.devices = dict(devices)
        self.sessions = dict.fromkeys(devices, "1")
        self.waiting: list[Outgoing] = []

    def nodes(self) -> Mapping[Node, str]:
        return self.sessions

    def post_all(self, parcels: Sequence[Outgoing]) -> None:
        self.waiting += parcels

    def poll(self, wait: float) -> list[Incoming]:
        posted, self.waiting = self.waiting, []
        return [answer for parcel in posted for answer in self.carry(parcel)]

    def carry(self, parcel: Outgoing) -> list[Incoming]:
        """Hand one parcel to its device, and its answer back."""
        if parcel.to not in self.devices:
            return []
        answer = self.devices[parcel.to](parcel.head + parcel.body)
        return [Incoming(parcel.to, parcel.key, answer)] if answer else []
