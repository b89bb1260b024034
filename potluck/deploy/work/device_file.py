"""device.toml: what a device's owner says of it. Only this file can name code that runs on the device.

name = "ward-3"
address = "fl.example.org:8443"
data = "rows.npz"              # or "my_module:load"
modules = []                   # of your own, whose jobs and models may be used here
threads = 1
longest = 3600.0               # seconds that a job may take here; one that takes longer is refused
jobs_a_minute = 0.0            # at most; others wait. 0: as many as come
ready = ""                     # a command: exit 0 means that now is a good time; else work waits

[federation]                   # as the invitation says
"""

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import tomli_w
import torch

from potluck.core import safe_files
from potluck.core.errors import ConfigError
from potluck.deploy.work.rows import Form

FILE = "device.toml"
TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


class Facts(TypedDict):
    """What a device must know of its federation."""

    name: str
    shape: list[int]
    classes: int
    dtype: str
    mean: float
    std: float


@dataclass(frozen=True)
class DeviceFile:
    """What a device is told by its owner."""

    name: str
    address: str
    data: str
    federation: Facts
    modules: tuple[str, ...] = ()
    threads: int = 1
    longest: float = 3600.0
    jobs_a_minute: float = 0.0
    ready: str = ""

    def write(self, folder: Path) -> None:
        safe_files.write_file(folder, FILE, tomli_w.dumps(asdict(self)).encode())

    def find_form(self) -> Form:
        """What its rows must look like."""
        f = self.federation
        return Form(tuple(f["shape"]), f["classes"], TYPES[f["dtype"]], f["mean"], f["std"])


def read(folder: Path) -> DeviceFile:
    """What a device's folder says."""
    path = folder / FILE
    if not folder.is_dir() or not safe_files.has_file(folder, FILE):
        raise ConfigError(f"{path}: no such file; `potluck deploy join INVITE` makes one")
    try:
        tables = tomllib.loads(safe_files.read_file(folder, FILE).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: no TOML ({error})") from None
    known = DeviceFile.__dataclass_fields__
    for key in tables:
        if key not in known:
            raise ConfigError(f"{path}: {key}: no such key; known: {', '.join(known)}")
    try:
        made = DeviceFile(**{**tables, "modules": tuple(tables.get("modules", ()))})
        made.find_form()
    except (TypeError, KeyError) as error:
        raise ConfigError(f"{path}: a key is missing or of another kind ({error}); join again") from None
    if not isinstance(made.threads, int) or made.threads < 1:
        raise ConfigError(f"{path}: threads = {made.threads!r}: give at least 1")
    for key in ("longest", "jobs_a_minute"):
        number = getattr(made, key)
        if not isinstance(number, float | int) or not number >= 0 or (key == "longest" and not number):
            raise ConfigError(f"{path}: {key} = {number!r}: give a number above 0")
    if not isinstance(made.ready, str):
        raise ConfigError(f"{path}: ready = {made.ready!r}: give a command as a text")
    return made
