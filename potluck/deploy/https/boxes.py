"""What waits at a hub for one device, and whether the device is there."""

import asyncio
import time
from math import inf
from typing import NamedTuple

from potluck.core.messages import Node
from potluck.deploy.https.blobs import Pieces

GRACE = 5.0  # seconds that somebody counts as there after its last word
MOST = 1000  # parcels that wait for a node, and keys that it may report on


class Parcel(NamedTuple):
    """As it travels: a line that tells where its body is, its head, and a small body."""

    to: Node
    key: str
    data: bytes
    blob: str  # its body, if that is large
    wanted: bool  # whether an answer is


class Box:
    """Of one device."""

    def __init__(self, pieces: Pieces) -> None:
        self.parcels: dict[int, Parcel] = {}  # by serial
        self.wanted: dict[str, float] = {}  # keys that it may report on, since when
        self.pieces = pieces  # of its report
        self.session = ""
        self.seen = -inf  # when it was last heard; inf while its request is held
        self.held = -inf  # when its last request was answered; a broken one leaves nobody there
        self.awake = asyncio.Event()
        self.sends = False  # a body is being read

    def put(self, serial: int, parcel: Parcel) -> None:
        """A parcel is posted; it takes the place of one with the same key."""
        self.drop(parcel.key)
        self.parcels[serial] = parcel
        self.wanted.pop(parcel.key, None)
        if parcel.wanted:
            self.wanted[parcel.key] = time.monotonic()
        while len(self.wanted) > MOST:
            del self.wanted[next(iter(self.wanted))]
        while len(self.parcels) > MOST:  # what is lost is posted again
            del self.parcels[min(self.parcels)]
        self.awake.set()

    def drop(self, key: str) -> None:
        """Parcels of a key needn't leave."""
        self.parcels = {n: parcel for n, parcel in self.parcels.items() if parcel.key != key}

    def forget(self, last: int) -> None:
        """The device has all parcels up to this one."""
        self.parcels = {n: parcel for n, parcel in self.parcels.items() if n > last}

    def hear(self) -> None:
        """It has said something."""
        self.seen = max(self.seen, time.monotonic())

    def shut(self) -> None:
        """It has left, or isn't welcome any more."""
        self.seen, self.held, self.session = -inf, -inf, ""
        self.awake.set()

    def is_taken(self, session: str) -> bool:
        """Whether another process with the same certificate is there."""
        there = self.seen == inf or self.held + GRACE > time.monotonic()
        return there and session != self.session

    def is_there(self, now: float) -> bool:
        return self.seen + GRACE > now
