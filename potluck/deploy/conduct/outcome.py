"""What a deployed run leaves in its folder: the files of any run, so that all commands read it."""

import datetime
from pathlib import Path

from potluck.core.job import Local, ModelSpec, trains
from potluck.core.messages import Choice, Task
from potluck.core.trees import Params
from potluck.deploy.conduct.conductor import Conductor
from potluck.deploy.conduct.deployment import Deployment
from potluck.deploy.work.device import Device
from potluck.engine.offers import find_offers, settle
from potluck.engine.seeds import seed_choice
from potluck.engine.timeline import make_columns
from potluck.experiment import folder, json_files, model_files
from potluck.experiment.device_summary import DeviceSummary
from potluck.experiment.summary import Summary, summarise_run

MOST = 1000  # devices


def write(path: Path, deployment: Deployment, conductor: Conductor, own: Device) -> Summary:
    """Models, devices and the summary of a run that is over."""
    model_files.write_models(path, find_models(conductor, own), deployment.models)
    folder.write_devices(path, summarise_devices(conductor, deployment))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    lines = folder.read_records(path)
    summary = summarise_run(deployment.experiment, lines, folder.wall_seconds(path), now)
    json_files.write_json(path, folder.SUMMARY, summary)
    return summary


def find_models(conductor: Conductor, own: Device) -> dict[str, tuple[ModelSpec, Params]]:
    """The models that the server serves, by view; it chooses between several on its own rows."""
    root, found = conductor.root, dict[str, tuple[ModelSpec, Params]]()
    serial = conductor.state.evaluations
    for view, offer in find_offers(conductor, {root: conductor.point}, root, serial).items():
        task = _settle(conductor, own, offer) if isinstance(offer, Choice) else offer
        if "params" in task.send and trains(task.job):
            found[view] = (task.job.model, task.send["params"])
    return found


def _settle(conductor: Conductor, own: Device, offer: Choice) -> Task:
    root, holding = conductor.root, own.holding
    keep = own.memory.recall(offer.slot, conductor.find_base(root, offer.slot))
    seed = seed_choice(conductor.seed, root)
    at = Local(root, holding.rows("train"), offer.send, keep, seed, own.models, holding.pool)
    return settle(offer, at).task


def summarise_devices(conductor: Conductor, deployment: Deployment) -> DeviceSummary:
    """Who took part: what they said of themselves and their rows, and the last tasks."""
    members = dict(sorted(conductor.state.members.items())[:MOST])
    profiles = conductor.claimed.take(list(members))
    classes = deployment.roster.federation.classes
    return {
        "devices": conductor.terms.devices,
        "tiers": {"cloud": conductor.root},
        "nodes": list(members),
        "compute": profiles.compute.tolist(),
        "up": profiles.up.tolist(),
        "down": profiles.down.tolist(),
        "latency": profiles.latency.tolist(),
        "memory": profiles.memory.tolist(),
        "rows": [member.labels or [0] * classes for member in members.values()],
        "rows_at_end": None,
        "tasks": make_columns(conductor.timeline),
    }
