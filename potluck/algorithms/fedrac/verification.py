"""Measuring participants (Fed-RAC): who is asked when, and what comes of it."""

from dataclasses import replace
from typing import Final

import torch

from potluck.algorithms.fedrac.claims import checked, claimed
from potluck.algorithms.fedrac.device.trial import Trial
from potluck.algorithms.fedrac.state import Tiers
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.errors import require
from potluck.core.job import ModelSpec
from potluck.core.messages import Command, Lane, Node, Note, Task
from potluck.core.rule import Got
from potluck.jobs import Probe

MEASURE: Final = "measure"  # the lane in which everybody is measured at first
BALLAST = 1 << 16  # bytes, about those of a small model


@value
class Trials:
    """Timed trials of devices; without `verify`, they are only asked how many rows they have."""

    model: ModelSpec  # that their speed is tried on
    verify: bool
    tolerance: float
    patience: int
    remeasure: int

    def __post_init__(self) -> None:
        require(self.tolerance > 0, "tolerance", self.tolerance, "must be above 0, such as 0.2")
        require(self.patience >= 1, "patience", self.patience, "must be at least 1: rounds late in a row")
        fix = "must be 0 (never) or more rounds of a tier"
        require(self.remeasure >= 0, "remeasure", self.remeasure, fix)

    def due(self, done: int) -> bool:
        """Whether a tier's members are to be measured again after so many of its rounds."""
        return bool(self.remeasure) and done % self.remeasure == 0

    def tasks(self, m: Tiers, lane: Lane, ctx: Context) -> tuple[Tiers, list[Command]]:
        """Trials of everybody, or of a tier's members and of those that nobody has heard of yet."""
        new = [int(n) for n in ctx.children if n not in m.known and n not in m.left_out]
        nodes = ctx.ready([*m.members(lane), *new] if isinstance(lane, int) else new)
        if isinstance(lane, int) and not nodes:  # it trains when somebody comes
            return replace(m, due=tuple(f for f in m.due if f != lane)), []
        if not self.verify:
            return m, [Task(n, Probe(), {"ballast": torch.zeros(0)}) for n in nodes]
        bits = torch.from_numpy(ctx.rng.integers(0, 256, BALLAST, dtype="uint8"))
        return m, [Task(n, Trial(self.model), {"ballast": bits}) for n in nodes]

    def learnt(
        self, m: Tiers, lane: Lane, got: Got, ctx: Context
    ) -> tuple[Tiers, dict[Node, str], list[Command]]:
        """What trials told; for those who should move, why."""
        nodes = [r.task.to for r in got.replies]
        rows = [max(1, int(r.weight)) for r in got.replies]
        said = claimed(nodes, ctx.profiles(nodes), rows) if nodes else {}
        new = [n for n in nodes if n not in m.known]
        heard = {n: d if n in new else replace(m.known[n], rows=d.rows) for n, d in said.items()}
        m = replace(m, known={**m.known, **heard}, due=tuple(f for f in m.due if f != lane))
        m, why, notes = self.verified(m, got, ctx.models[self.model].ops)
        return m, {**why, **dict.fromkeys(new, "newcomer")}, notes

    def verified(
        self, m: Tiers, got: Got, ops: int | None = None
    ) -> tuple[Tiers, dict[Node, str], list[Command]]:
        """What replies show of rates and speeds, where it isn't what was believed."""
        known, why, notes = dict(m.known), dict[Node, str](), list[Command]()
        for r in got.replies if self.verify else ():
            node = r.task.to
            known[node], off = checked(m.known[node], r, self.tolerance, ops)
            if off:
                notes.append(Note("false_report", {name: list(pair) for name, pair in off.items()}, node))
                why[node] = ", ".join(f"{name} {b:.4g} instead of {a:.4g}" for name, (a, b) in off.items())
        return replace(m, known=known), why, notes
