"""What a run has cost so far: bytes by tier, device-seconds, tasks, losses, who took part."""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.engine.records import Records


@value(frozen=False, eq=False)
class Accounts:
    """Running totals; part of every snapshot."""

    up: dict[str, float]  # bytes by tier of the sender below
    down: dict[str, float]
    lost: dict[str, int]  # by reason
    took_part: NDArray[np.bool_]  # devices that trained
    seconds: float = 0.0  # of devices' computing and transfers
    tasks: int = 0
    # Updates that left each device under local differential privacy, by sigma and delta.
    private: dict[tuple[float, float], dict[int, int]] = field(default_factory=dict)

    @classmethod
    def begin(cls, devices: int) -> "Accounts":
        return cls({}, {}, {}, np.zeros(devices, bool))

    def transfer(self, tier: str, down: float, up: float) -> None:
        self.down[tier] = self.down.get(tier, 0.0) + down
        self.up[tier] = self.up.get(tier, 0.0) + up

    def lose(self, why: str) -> None:
        self.lost[why] = self.lost.get(why, 0) + 1

    def release(self, node: int, sigma: float, delta: float) -> None:
        """A device begins to send a private update."""
        counts = self.private.setdefault((sigma, delta), {})
        counts[node] = counts.get(node, 0) + 1

    def record(self, records: Records, round: int, time: float) -> None:
        for name, table in (("bytes_down", self.down), ("bytes_up", self.up), ("lost", self.lost)):
            for group, total in table.items():
                records.write(round, time, name, total, group=group)
        records.write(round, time, "device_seconds", self.seconds)
        records.write(round, time, "tasks", self.tasks)
        records.write(round, time, "participants", int(self.took_part.sum()))
        self.record_private(records, round, time)

    def record_private(self, records: Records, round: int, time: float) -> None:
        for (sigma, delta), counts in self.private.items():
            spent = {"sigma": sigma, "delta": delta, "updates": max(counts.values())}
            records.write(round, time, "private_updates", spent)  # of the most active device
