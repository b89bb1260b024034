"""What follows from a round's findings: who is suspected, what is noted, and what participants are told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from potluck.algorithms.auxo.criterion import Fact, Findings
from potluck.algorithms.auxo.device import SLOT, Feedback, Request, TakeFeedback
from potluck.algorithms.auxo.state import Crowd
from potluck.core.messages import Command, Lost, Node, Note, Tell
from potluck.core.rule import Got
from potluck.rules.guard import note_odd

FLAGGED: Final = 10_000  # at most so many devices under suspicion are remembered
DESERTED: Final = 10  # rounds of others, after which a cohort without any is said to be deserted

L = TypeVar("L")


def find_lies(requests: Sequence[Request], findings: Findings[L], claim: float) -> list[bool]:
    """Who claimed to fit (a reward from `claim` on) but doesn't.

    A device that was told nothing, as its update is too long, fits elsewhere if it is a visitor and no stray.
    """
    count, strays = len(requests), findings.strays
    gains = findings.gain or [None] * count
    astray = [True] * count if strays is None or findings.visits is None else strays
    visits = findings.visits or [False] * count
    fits_not = [
        visit and not stray if gain is None else gain < 0
        for gain, visit, stray in zip(gains, visits, astray, strict=True)
    ]
    return [r["affinity"] >= claim and lie for r, lie in zip(requests, fits_not, strict=True)]


def find_odd(lies: Sequence[bool], strays: Sequence[bool] | None) -> list[bool]:
    """Whose updates can't be believed: like no cohort's, or of who claimed to fit and doesn't.

    Nobody's, where the criterion doesn't look for such, or where there would be nobody else.
    """
    odd = [False] * len(lies) if strays is None else [a or b for a, b in zip(lies, strays, strict=True)]
    return [False] * len(lies) if all(odd) else odd


def leave_out(got: Got, odd: Sequence[bool], visits: Sequence[bool] | None) -> Got:
    """A round without odd updates, and without its visitors unless nobody else came.

    They learn from it, and it not from them.
    """
    out = [a or b for a, b in zip(odd, visits or odd, strict=True)]
    if all(out):
        out = list(odd)
    if not any(out):
        return got
    kept = [r for r, gone in zip(got.replies, out, strict=True) if not gone]
    others = [r.task for r, gone in zip(got.replies, out, strict=True) if gone]
    return Got(kept, [*got.lost, *(Lost(task, "bad") for task in others)])


def flag_claims(
    m: Crowd, lane: str, nodes: Sequence[Node], lies: Sequence[bool], strikes: int
) -> tuple[Crowd, list[Command]]:
    """Count false claims; note whom `strikes` of them shut out."""
    flags, notes = dict(m.flags), list[Command]()
    for node, lie in zip(nodes, lies, strict=True):
        if lie:
            flags[node] = flags.pop(node, 0) + 1
            if flags[node] == strikes:
                notes.append(Note("blacklisted", node, lane))
    while len(flags) > FLAGGED:
        del flags[next(iter(flags))]
    return replace(m, flags=flags), notes


def note_guard(
    lane: str, nodes: Sequence[Node], odd: Sequence[bool], findings: Findings[L], me: Node
) -> list[Command]:
    """Whose updates were kept out, of whose were looked at; as a judge of updates notes it."""
    if findings.strays is None:
        return []
    out = [node for node, one in zip(nodes, odd, strict=True) if one]
    counts = {"replies": len(nodes), "odd": len(out), "changed": 0}
    judged = sorted(node for node in nodes if node < me)
    return [Note("guarded", {**counts, "judged": judged}, lane), *note_odd(out, me, lane)]


def note_round(lane: str, requests: Sequence[Request], findings: Findings[L]) -> Note:
    """What a round showed of its cohort."""
    new = sum(request["times"] == 0 for request in requests)
    facts: dict[str, Fact] = {"participants": len(requests), "newcomers": new, **findings.facts}
    if gains := [gain for gain in findings.gain or () if gain is not None]:
        facts["reward"] = float(np.mean(gains))
    return Note("cohort", facts, lane)


def note_deserted(m: Crowd) -> tuple[Crowd, list[Command]]:
    """Say, once of each, which cohorts nobody comes to."""
    notes = list[Command]()
    for name, cohort in m.cohorts.items():
        if m.round - cohort.round >= DESERTED and not cohort.deserted:
            m = m.update(name, replace(cohort, deserted=True))
            notes.append(Note("deserted", "no members: the cohort keeps its model", name))
    return m, notes


def tell_participants(
    lane: str, nodes: Sequence[Node], leaves: list[str], findings: Findings[L], job: TakeFeedback
) -> list[Tell]:
    """Every participant's feedback on a round of its cohort."""
    tells = []
    for i, node in enumerate(nodes):
        feedback: Feedback = {
            "cohort": lane,
            "side": dict(findings.side[i]),
            "leaves": leaves,
            "gain": None if findings.gain is None else findings.gain[i],
            "others": {} if findings.others is None else dict(findings.others[i]),
        }
        tells.append(Tell(node, job, {"feedback": feedback}, SLOT))
    return tells
