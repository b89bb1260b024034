"""Fed-RAC's verification of devices: who is tried when, and what trials and replies show of claims."""

from dataclasses import replace
from typing import Final

import torch

from potluck.algorithms.fedrac.claims import check_claims, read_claims
from potluck.algorithms.fedrac.device.trial import Trial
from potluck.algorithms.fedrac.notes import FALSE_REPORT
from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import Command, Context, Got, LabelCounts, Lane, Node, Note, Probe, Task

MEASURE: Final = "measure"  # the lane in which everybody is tried at first
BALLAST = 1 << 16  # bytes, about those of a small model


def is_due(s: FedRACSettings, done: int) -> bool:
    """Whether a tier's members are to be tried again after so many of its rounds."""
    every = s.verification.remeasure
    return bool(every) and done % every == 0


def plan_trials(s: FedRACSettings, m: Tiers, lane: Lane, ctx: Context) -> tuple[Tiers, list[Command]]:
    """Timed trials of everybody, or of a tier's members and of those that nobody has heard of yet.

    Where devices are believed, they are only asked how many rows they have.
    """
    new = [int(n) for n in ctx.children if n not in m.known and n not in m.left_out]
    members = m.members(lane) if isinstance(lane, int) else m.places
    nodes = ctx.ready([*members, *new])
    if lane != MEASURE and not nodes:  # it trains when somebody comes
        return replace(m, due=tuple(f for f in m.due if f != lane)), []
    asked = LabelCounts(ctx.models[s.local.model].classes)
    census: list[Command] = [Task(n, asked, {}) for n in nodes] if s.use == "known" else []
    if not s.verification.enabled:
        return m, census or [Task(n, Probe(), {"ballast": torch.zeros(0)}) for n in nodes]
    bits = torch.from_numpy(ctx.rng.integers(0, 256, BALLAST, dtype="uint8"))
    return m, [*(Task(n, Trial(s.local.model), {"ballast": bits}) for n in nodes), *census]


def read_trials(
    s: FedRACSettings, m: Tiers, lane: Lane, got: Got, ctx: Context
) -> tuple[Tiers, dict[Node, str], list[Command]]:
    """What trials told; for those who should move, why."""
    found = {r.task.to: max(1, int(r.weight)) for r in got.replies}
    labels = {r.task.to: tuple(r.body["counts"].tolist()) for r in got.replies if "counts" in r.body}
    nodes = list(found)
    claims = read_claims(nodes, ctx.profiles(nodes), list(found.values())) if nodes else {}
    new = [n for n in nodes if n not in m.known]
    heard = {n: d if n in new else replace(m.known[n], rows=d.rows) for n, d in claims.items()}
    heard = {n: replace(d, labels=labels.get(n, d.labels)) for n, d in heard.items()}
    m = replace(m, known={**m.known, **heard}, due=tuple(f for f in m.due if f != lane))
    m, why, notes = verify_replies(s, m, got, ctx.models[s.local.model].ops)
    return m, {**why, **dict.fromkeys(new, "newcomer")}, notes


def verify_replies(
    s: FedRACSettings, m: Tiers, got: Got, ops: int | None = None
) -> tuple[Tiers, dict[Node, str], list[Command]]:
    """What replies show of rates and speeds, where it isn't what was believed."""
    known, why, notes = dict(m.known), dict[Node, str](), list[Command]()
    for r in got.replies if s.verification.enabled else ():
        node = r.task.to
        if isinstance(r.task.job, LabelCounts):  # too few bytes to tell a rate by
            continue
        known[node], off = check_claims(m.known[node], r, s.verification.tolerance, ops)
        if off:
            notes.append(Note(FALSE_REPORT, {name: list(pair) for name, pair in off.items()}, node))
            why[node] = ", ".join(f"{name} {b:.4g} instead of {a:.4g}" for name, (a, b) in off.items())
    return replace(m, known=known), why, notes
