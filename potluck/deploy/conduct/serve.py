"""The process of a server: it conducts one run."""

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch

from potluck.core import safe_files
from potluck.core.errors import ConfigError, SnapshotError
from potluck.deploy.conduct import outcome
from potluck.deploy.conduct.deployment import Deployment, settle
from potluck.deploy.conduct.here import WithServer
from potluck.deploy.conduct.server import Server
from potluck.deploy.https.hub import Hub
from potluck.deploy.members import joining, roster
from potluck.deploy.work import rows, vocabulary
from potluck.deploy.work.device import Device, Holding, OwnRows
from potluck.engine.schedule import Progress
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import code, folder
from potluck.experiment.launch import execution_plan
from potluck.experiment.run_lock import lock_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.summary import Summary

ABOUT = "federation.json"  # in a run's folder: what all members had in common
OWN, BLOBS = "own", "blobs"  # the server's own memory, and large bodies that wait for devices


class About(TypedDict):
    """What a run was begun with, beside its experiment."""

    roster: dict[str, object]  # without certificates
    server: dict[str, int]  # its own rows, by part
    run: str


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


def serve(
    home: Path,
    experiment: Experiment,
    out: Path,
    *,
    listen: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    until: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda line: None,
) -> Summary | None:
    """Conduct a run, or go on with it; None if it was ended before its time."""
    members = joining.Members(home, say)
    own_rows = load_server_rows(home, members.roster)
    deployment = settle(experiment, members.roster, count_rows(own_rows))
    for table in deployment.set_aside:
        say(f"[{table}] is set aside: devices bring their own")
    run = _open_folder(out, deployment, count_rows(own_rows))
    if folder.is_finished(out):
        say(f"{out}: finished already")
        return folder.read_summary(out)
    torch.set_num_threads(1)
    began = time.monotonic()
    with lock_run(out):
        own = Device(out / OWN, own_rows, deployment.models, vocabulary.learn())
        host, _, port = (listen or deployment.roster.server.address).rpartition(":")
        hub = Hub(
            (host, int(port)),
            home,
            out / BLOBS,
            members.find,
            largest=deployment.terms.limits.bytes,
            join=joining.Registrar(home).admit,
            say=say,
        )
        here = WithServer(hub, deployment.terms.devices, own)
        try:
            server = make_server(deployment, here, out, run, say)
            try:
                server.run(progress, until)
            finally:
                server.close()
                folder.add_session(out, time.monotonic() - began)
        finally:
            hub.close()
            here.close()
        if not server.state.finished:
            return None
        return outcome.write(out, deployment, server.conductor, own)


def make_server(
    deployment: Deployment, port: WithServer, out: Path, run: str, say: Callable[[str], None]
) -> Server:
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


def _open_folder(out: Path, deployment: Deployment, server: dict[str, int]) -> str:
    """A run's folder, new or with the same run in it; the run's name among all."""
    if out.exists() and folder.is_run(out):
        if not safe_files.has_file(out, ABOUT):
            raise ConfigError(f"out = {str(out)!r}: holds a simulated run; name another folder")
        if folder.experiment(out).to_toml() != deployment.experiment.to_toml():
            raise SnapshotError(
                f"{out}: the run of another experiment; put the old file back, or name another folder"
            )
        return read_about(out)["run"]
    found = deployment.roster
    seats = [seat.model_copy(update={"certificate": ""}) for seat in found.devices]
    plain = found.model_copy(update={"devices": seats}).model_dump(mode="json")
    run = secrets.token_hex(16)
    about: About = {"roster": plain, "server": server, "run": run}
    files = {
        folder.EXPERIMENT: deployment.experiment.to_toml(),
        folder.PLAN: execution_plan.dump_plan(ExecutionPlan(), "each device computes for itself"),
        ABOUT: json.dumps(about, indent=2) + "\n",
        **code.record(),
    }
    folder.create(out, files, force=False)
    (out / OWN).mkdir()
    return run


def read_about(out: Path) -> About:
    """What a deployed run's folder says of its federation."""
    try:
        found: About = json.loads(safe_files.read_file(out, ABOUT))
        return {"roster": found["roster"], "server": found["server"], "run": found["run"]}
    except (ValueError, KeyError, TypeError):
        raise SnapshotError(f"{out / ABOUT}: damaged; put the old file back") from None


def load_deployment(out: Path) -> Deployment:
    """A run's terms, from its folder."""
    about = read_about(out)
    found = roster.Roster.model_validate(about["roster"])
    return settle(folder.experiment(out), found, about["server"])
