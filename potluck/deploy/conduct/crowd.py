"""Who is there, what they have said of themselves, and who is asked nothing for a while."""

import numpy as np

from potluck.core.messages import Node
from potluck.deploy.conduct.conductor_state import Member
from potluck.deploy.conduct.events import Came, Measured
from potluck.fleet import Profiles

BAD = 5  # refused reports in a row, after which a device is asked nothing for a while
BAN = 3600.0  # seconds
# Of a device of which nothing was measured yet.
UNKNOWN = {"compute": 10.0, "up": 1e7, "down": 1e7, "latency": 0.05, "memory": 1e9}


class Crowd:
    """The devices of a run; its members are part of the run's state."""

    def __init__(self, members: dict[Node, Member], devices: int) -> None:
        self.members, self.devices = members, devices
        columns = {name: np.full(devices + 1, number) for name, number in UNKNOWN.items()}
        self.claimed = Profiles(**columns)
        for node, member in members.items():
            self._claim(node, member.claims)

    def is_there(self, node: Node, now: float) -> bool:
        """Whether something can be asked of a node; the server itself always is."""
        if node >= self.devices:
            return True
        member = self.members.get(node)
        return member is not None and member.there and member.banned <= now

    def are_all_there(self, now: float) -> bool:
        """Whether every number of the federation is."""
        every = len(self.members) == self.devices
        return every and all(m.there and m.banned <= now for m in self.members.values())

    def come(self, what: Came) -> bool:
        """A device says what it holds; whether it wasn't there before."""
        known = self.members.get(what.node)
        new = known is None or not known.there
        if known is None:
            self.members[what.node] = Member(what.rows, what.labels, what.claims)
        else:
            known.rows, known.labels, known.claims, known.there = what.rows, what.labels, what.claims, True
        self._claim(what.node, what.claims)
        return new

    def measure(self, what: Measured) -> None:
        """Believe what its work has shown."""
        self.members[what.node].claims.update(what.claims)
        self._claim(what.node, what.claims)

    def blame(self, node: Node, now: float) -> bool:
        """A report had to be refused; whether this was one too many."""
        member = self.members[node]
        member.bad += 1
        if member.bad < BAD:
            return False
        member.bad, member.banned = 0, now + BAN
        return True

    def forgive(self, now: float) -> None:
        """Those whose time is over may be asked again."""
        for member in self.members.values():
            if member.banned <= now:
                member.banned = 0.0

    def _claim(self, node: Node, claims: dict[str, float]) -> None:
        for name, number in claims.items():
            getattr(self.claimed, name)[node] = number
