"""A run from its beginning, or from where it was, to its end, over any port."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from potluck.deploy.conduct import outcome
from potluck.deploy.conduct.deployment import Deployment, settle
from potluck.deploy.conduct.here import WithServer
from potluck.deploy.conduct.run_folder import OWN, open_folder
from potluck.deploy.conduct.server import Server, Watch
from potluck.deploy.members import roster
from potluck.deploy.port import Port
from potluck.deploy.work import rows, vocabulary
from potluck.deploy.work.device import Device, Holding, OwnRows
from potluck.experiment import folder
from potluck.experiment.claimed_run import find_patience
from potluck.experiment.pulse import Crowd, Pulse
from potluck.experiment.run_lock import lock_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.summary import Summary

Say = Callable[[str], None]


class OpenPort(Port, Protocol):
    """A port that is closed after a run."""

    def close(self) -> None: ...


def load_server_rows(home: Path, found: roster.Roster) -> Holding:
    """The server's own rows, if it has any."""
    c = found.federation
    form = rows.Form(tuple(c.shape), c.classes, roster.TYPES[c.dtype], c.mean, c.std)
    if found.server.data is not None:
        return rows.load(found.server.data, form, home)
    empty = torch.zeros((0, *form.shape), dtype=form.dtype)
    return Holding(OwnRows(empty, torch.zeros(0, dtype=torch.int64)), {}, form.classes)


def count_rows(holding: Holding) -> dict[str, int]:
    return {part: len(places) for part, places in holding.parts.items()}


def conduct(
    home: Path,
    found: roster.Roster,
    experiment: Experiment,
    out: Path,
    open_port: Callable[[Deployment], OpenPort],
    *,
    progress: Watch | None = None,
    until: Callable[[], bool] = lambda: False,
    say: Say = lambda line: None,
) -> Summary | None:
    """Conduct a run, or go on with it; None if it was ended before its time. `home`: where rows lie."""
    own_rows = load_server_rows(home, found)
    deployment = settle(experiment, found, count_rows(own_rows))
    for table in deployment.set_aside:
        why = "no tool follows real devices yet" if table == "log" else "devices bring their own"
        say(f"[{table}] is set aside: {why}")
    run = open_folder(out, deployment, count_rows(own_rows))
    if folder.is_finished(out):
        say(f"{out}: finished already")
        return folder.read_summary(out)
    torch.set_num_threads(1)
    began = time.monotonic()
    with lock_run(out, find_patience(experiment)) as claim:

        def is_over() -> bool:
            if claim is not None:
                claim.look()
            return until()

        own = Device(out / OWN, own_rows, deployment.models, vocabulary.learn())
        port = open_port(deployment)
        here = WithServer(port, deployment.terms.devices, own)
        try:
            server = make_server(deployment, here, out, run, say)
            conductor = server.conductor
            pulse = Pulse(out, server.logs, conductor.accounts, lambda: _count_crowd(server), progress)
            try:
                server.run(pulse, is_over)
            finally:
                pulse.close()
                server.close()
                folder.add_session(out, time.monotonic() - began)
        finally:
            port.close()
            here.close()
        if not server.state.finished:
            return None
        return outcome.write(out, deployment, server.conductor, own)


def _count_crowd(server: Server) -> Crowd:
    there = sum(member.there for member in server.state.members.values())
    devices = server.terms.devices
    working = sum(node < devices for node in server.conductor.queues.first)
    return Crowd(devices, there, working, {"cloud": devices})


def make_server(deployment: Deployment, port: Port, out: Path, run: str, say: Say) -> Server:
    """The server of a run's folder, at its beginning or where it was."""
    e = deployment.experiment
    return Server(
        deployment.terms,
        port,
        out,
        identity=deployment.identity,
        run=run,
        start_with=deployment.start_with,
        patience=deployment.patience,
        timeout=deployment.timeout,
        snapshot_every=e.run.snapshot_every,
        say=say,
    )
