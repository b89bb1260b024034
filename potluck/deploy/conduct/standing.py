"""Where a deployed run stands, from its folder: for people who look at it while it runs, or after it."""

from pathlib import Path
from typing import NamedTuple

from potluck.core.messages import Node
from potluck.core.units import duration, percent
from potluck.deploy.conduct import journal
from potluck.deploy.conduct.conductor import Conductor
from potluck.deploy.conduct.conductor_state import ConductorState
from potluck.deploy.conduct.terms import Terms
from potluck.engine import snapshot
from potluck.engine.records import Records


class Standing(NamedTuple):
    """A moment of a run."""

    state: ConductorState
    working: dict[Node, float]  # devices with work, since when


def look(folder: Path, terms: Terms) -> Standing:
    """The newest snapshot and the journal since, as far as it is written; changes nothing."""
    serial, state, _ = snapshot.read_newest(folder, ConductorState)
    conductor = Conductor(terms, state, Records(None))
    for number in [n for n in journal.list_serials(folder) if n >= serial]:
        for at, what, body in journal.read(folder, number, cut=False):
            conductor.apply(at, what, body)
    flights = conductor.queues.flights
    first = {node: flights[fid].began for node, fid in conductor.queues.first.items()}
    return Standing(conductor.state, first)


def describe(found: Standing, names: list[str]) -> list[str]:
    """A line for the run, and one for each device."""
    state = found.state
    phase = "finished" if state.finished else "ends" if state.stopping else "runs" if state.begun else "waits"
    accuracy = "" if state.accuracy is None else f", accuracy {percent(state.accuracy)}"
    lost = "".join(f", {count} {why}" for why, count in sorted(state.accounts.lost.items()))
    so_far = f"round {state.point.round}, {duration(state.now)}{accuracy}"
    lines = [f"{phase}: {so_far}; {state.accounts.tasks} tasks{lost}"]
    for node, name in enumerate(names):
        member = state.members.get(node)
        if member is None:
            lines.append(f"  {name}: hasn't come")
            continue
        where = "away" if not member.there else "banned" if member.banned > state.now else "there"
        since = found.working.get(node, -1.0)
        busy = f", works since {duration(max(0.0, state.now - since))}" if since >= 0 else ""
        lines.append(f"  {name}: {where}{busy}, {member.rows.get('train', 0)} rows")
    return lines
