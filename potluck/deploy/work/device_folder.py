"""A device, made from its folder: its file, its rows, its memory."""

from importlib.metadata import version
from pathlib import Path

import torch

from potluck.deploy.work import device_file, rows, vocabulary
from potluck.deploy.work.device import Device
from potluck.deploy.work.first_claims import measure
from potluck.models import Models


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
