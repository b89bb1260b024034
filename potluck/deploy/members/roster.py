"""federation.toml: what all members have in common, and who they are.

[federation]
name = "clinic"
shape = [1, 28, 28]            # of a row
classes = 10
dtype = "float32"              # of rows; "int64": tokens
mean = 0.1307                  # a row is used as (row - mean) / std, everywhere
std = 0.3081
capacity = 8                   # numbers for devices, for those too who join later

[server]
address = "fl.example.org:8443"
data = "server.npz"            # rows of its own, if there are any

[[devices]]
name = "ward-3"
certificate = "sha256:..."     # taking this line out locks the device out at once
user = "alice"                 # whose it is, if that matters

Numbers are given in the order of the file: a device keeps its place, so lines are emptied, never moved.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from potluck.core import safe_files
from potluck.core.errors import ConfigError
from potluck.core.messages import Node
from potluck.core.ranges import Count, Positive
from potluck.experiment import toml
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.settings import dump_all
from potluck.experiment.schema.table import Table

FILE = "federation.toml"
TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


class Common(Table):
    """What all members have in common."""

    name: Annotated[str, "of the federation"]
    shape: Annotated[list[Count], Field(min_length=1), "of a row"]
    classes: Annotated[int, Field(ge=2), "labels count from 0"]
    dtype: Annotated[Literal["float32", "float64", "int64"], "of rows; int64: tokens"] = "float32"
    mean: Annotated[float, "a row is used as (row - mean) / std, everywhere"] = 0.0
    std: Annotated[Positive, "see mean"] = 1.0
    capacity: Annotated[Count | None, "numbers for devices, for those too who join later"] = None


class Home(Table):
    """Where the server is."""

    address: Annotated[str, "host:port, as devices reach it"]
    data: Annotated[str | None, "a file with rows of its own"] = None


class Seat(Table):
    """A device's place."""

    name: Annotated[str, Field(min_length=1, max_length=64), "of the device"]
    certificate: Annotated[str, "its fingerprint; none: it hasn't joined, or isn't welcome any more"] = ""
    user: Annotated[str, "whose it is, if that matters"] = ""


class Roster(Table):
    """A federation, as its file tells it."""

    federation: Common
    server: Home
    devices: Annotated[list[Seat], "in the order of their numbers"] = Field(default=[])

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        names = [seat.name for seat in self.devices]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"devices.name = {name!r}: name each device once")
        if self.federation.capacity is not None and self.federation.capacity < len(names):
            raise ValueError(
                f"federation.capacity = {self.federation.capacity}: there are {len(names)} devices"
            )
        return self

    @property
    def size(self) -> int:
        """Numbers that devices may have."""
        return self.federation.capacity or len(self.devices)

    @property
    def tokens(self) -> bool:
        return self.federation.dtype == "int64"

    def find_number(self, certificate: str) -> Node | None:
        """Who has a certificate, by its fingerprint; None: nobody, or nobody any more."""
        found = (i for i, seat in enumerate(self.devices) if certificate and seat.certificate == certificate)
        return next(found, None)

    def find_seat(self, name: str) -> Node | None:
        """The number of a device, by its name."""
        return next((i for i, seat in enumerate(self.devices) if seat.name == name), None)

    def number_users(self) -> NDArray[np.int32]:
        """Whose each device is, in order of appearance; -1: nobody's."""
        names: dict[str, int] = {}
        mine = [names.setdefault(seat.user, len(names)) if seat.user else -1 for seat in self.devices]
        return np.array([*mine, *[-1] * (self.size - len(mine))], np.int32)


class Facts:
    """What rules may ask of a federation before it runs there."""

    def __init__(self, roster: Roster, server: int) -> None:
        self.devices, self.shape, self.tokens = roster.size, tuple(roster.federation.shape), roster.tokens
        self.classes, self.server = roster.federation.classes, server

    def count_labels(self) -> NDArray[np.int64] | None:
        """Nobody knows before devices have come."""
        return None


def read(folder: Path) -> Roster:
    """The roster of a federation's folder."""
    path = folder / FILE
    if not folder.is_dir() or not safe_files.has_file(folder, FILE):
        raise ConfigError(f"{path}: no such file; `potluck deploy init FOLDER` makes one")
    try:
        return Roster.model_validate(toml.read(path))
    except ValidationError as error:
        raise config_errors.explain_error(error, Roster, str(path)) from None


def write(folder: Path, roster: Roster) -> None:
    """Another roster for a federation, whole or not at all."""
    safe_files.write_file(folder, FILE, toml.write(dump_all(roster)).encode())


def hide_certificates(roster: Roster) -> Roster:
    """A roster as others may see it."""
    seats = [seat.model_copy(update={"certificate": ""}) for seat in roster.devices]
    return roster.model_copy(update={"devices": seats})
