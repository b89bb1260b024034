"""The process of a device: it works for its federation's server."""

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch

from potluck.deploy.https.wire import Wire
from potluck.deploy.work import device_file, join, rows, vocabulary
from potluck.deploy.work.agent import Agent
from potluck.deploy.work.device import Device
from potluck.deploy.work.first_claims import measure
from potluck.models import Models

PAUSE = 2.0  # seconds between two looks for a server


def make_device(home: Path) -> tuple[Device, device_file.DeviceFile]:
    """A device, from its folder."""
    told = device_file.read(home)
    torch.set_num_threads(told.threads)
    form = told.find_form()
    holding = rows.load(told.data, form, home)
    floats = form.dtype if form.dtype.is_floating_point else torch.float32
    inputs = None if form.dtype.is_floating_point else form.dtype
    models = Models(form.shape, form.classes, floats, inputs)
    allow = vocabulary.learn(told.modules)
    claims = measure()
    return Device(home, holding, models, allow, version=version("potluck"), claims=lambda: claims), told


def work(home: Path, begin: Callable[[Agent], None], say: Callable[[str], None]) -> None:
    """Be a device until somebody ends it; `begin` is told whom to end."""
    device, told = make_device(home)
    while not join.complete(home, told.address):
        say(f"no server at {told.address} yet; trying again")
        time.sleep(PAUSE)
    agent = Agent(device, Wire(told.address, home), say)
    begin(agent)
    say(f"{told.name}: ready, {len(device.holding.rows('train'))} rows to train on; server {told.address}")
    agent.run()
