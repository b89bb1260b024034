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

FLAGGED: Final = 10_000  # at most so many devices under suspicion are remembered
DESERTED: Final = 10  # rounds of others, after which a cohort without any is said to be deserted

L = TypeVar("L")


def leave_out(got: Got, visits: Sequence[bool] | None) -> Got:
    """A round without its visitors, unless nobody else came: they learn from it, and it not from them."""
    if visits is None or all(visits) or not any(visits):
        return got
    members = [r for r, visit in zip(got.replies, visits, strict=True) if not visit]
    others = [r.task for r, visit in zip(got.replies, visits, strict=True) if visit]
    return Got(members, [*got.lost, *(Lost(task, "bad") for task in others)])


def flag_claims(
    m: Crowd,
    lane: str,
    nodes: Sequence[Node],
    requests: Sequence[Request],
    gains: Sequence[float | None] | None,
    claim: float,
    strikes: int,
) -> tuple[Crowd, list[Command]]:
    """Count who claimed to fit (a reward from `claim` on) but doesn't; note whom `strikes` shut out."""
    flags, notes = dict(m.flags), list[Command]()
    for node, request, gain in zip(nodes, requests, gains or (), strict=gains is not None):
        if gain is not None and request["affinity"] >= claim and gain < 0:
            flags[node] = flags.pop(node, 0) + 1
            if flags[node] == strikes:
                notes.append(Note("blacklisted", node, lane))
    while len(flags) > FLAGGED:
        del flags[next(iter(flags))]
    return replace(m, flags=flags), notes


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
