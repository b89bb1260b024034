"""A dry run: who is there, whether they fit, and what a round will take. Nothing is trained."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from potluck.core.job import ModelSpec
from potluck.core.messages import Node
from potluck.core.units import duration, size
from potluck.deploy import parcels
from potluck.deploy.conduct.claims import clean_claims, read_hello
from potluck.deploy.conduct.deployment import Deployment, settle
from potluck.deploy.conduct.whole_run import count_rows, load_server_rows
from potluck.deploy.https.hub import Hub
from potluck.deploy.members import joining
from potluck.deploy.port import Outgoing
from potluck.experiment.schema.experiment import Experiment
from potluck.fleet import TRAINING_FACTOR, compute_seconds


class Rehearsal(NamedTuple):
    """What a dry run found."""

    good: bool
    lines: list[str]


def rehearse(
    home: Path, experiment: Experiment, wait: float, listen: str | None, say: Callable[[str], None]
) -> Rehearsal:
    """Build the run, listen for a while, and greet whoever comes."""
    members = joining.Members(home, say)
    own = load_server_rows(home, members.roster)
    deployment = settle(experiment, members.roster, count_rows(own))
    host, _, port = (listen or members.roster.server.address).rpartition(":")
    with tempfile.TemporaryDirectory(prefix="potluck-") as spare:
        join = joining.Registrar(home).admit
        hub = Hub((host, int(port)), home, Path(spare), members.find, join=join, say=say)
        try:
            told = _greet_all(hub, deployment, wait)
        finally:
            hub.close()
    return _describe(deployment, told)


def _greet_all(hub: Hub, deployment: Deployment, wait: float) -> dict[Node, parcels.Present | str]:
    """What devices answer to a hello, or what is wrong with their answers."""
    told: dict[Node, parcels.Present | str] = {}
    greeted: set[Node] = set()
    end = time.monotonic() + wait
    while time.monotonic() < end and len(told) < len(deployment.roster.devices):
        fresh = [node for node in hub.nodes() if node not in greeted]
        greeted |= set(fresh)
        for node in fresh:
            hello = parcels.pack(parcels.Hello(parcels.PROTOCOL, "", node))
            hub.post_all([Outgoing(node, "hello", hello, b"")])
        for heard in hub.poll(0.1):
            told[heard.node] = read_hello(heard.parcel, deployment.terms.rows.classes)
    return told


def _describe(deployment: Deployment, told: dict[Node, parcels.Present | str]) -> Rehearsal:
    e = deployment.experiment
    net = deployment.models[ModelSpec(e.model.name, e.model.width, e.model.depth)]
    lines = [f"{e.algorithm}, model {e.model.name}: {size(net.nbytes)} each way for a task"]
    epochs, there = e.training(e.algorithm).epochs or 1, 0
    for node, seat in enumerate(deployment.roster.devices):
        found = told.get(node)
        if found is None:
            state = "hasn't joined" if not seat.certificate else "isn't there"
            lines.append(f"{seat.name}: {state}")
        elif isinstance(found, str):
            lines.append(f"{seat.name}: can't take part: {found}")
        else:
            there += 1
            rows, claims = found.rows, clean_claims(found.claims)
            ops = TRAINING_FACTOR * rows.get("train", 0) * epochs * net.ops
            ms = claims.get("compute")
            pace = "" if ms is None else f", about {duration(float(compute_seconds(ops, ms)))} a task"
            counts = ", ".join(f"{count} {part}" for part, count in rows.items())
            lines.append(f"{seat.name}: {counts} rows, potluck {found.version!s:.20}{pace}")
    enough = there >= deployment.start_with
    bad = any(isinstance(found, str) for found in told.values())
    lines.append(f"{there} there, {deployment.start_with} to begin with" + ("" if enough else ": not enough"))
    return Rehearsal(enough and not bad, lines)
