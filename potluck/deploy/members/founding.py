"""How a federation begins: its folder, its file, its authority, and what rows look like."""

import zipfile
from pathlib import Path

import numpy as np

from potluck.core.errors import ConfigError, DataError
from potluck.deploy.members import pki, roster
from potluck.deploy.work.rows import read_file
from potluck.experiment.prepare import prepare
from potluck.experiment.schema.experiment import Experiment


def found(
    folder: Path, name: str, address: str, like: Path, capacity: int | None, scale: bool
) -> roster.Roster:
    """A new federation whose rows look like those of a file."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--address {address!r}: write host:port, such as fl.example.org:8443")
    if (folder / roster.FILE).exists():
        raise ConfigError(f"{folder}: holds a federation already; name another folder")
    looks = _look_at_experiment(like) if like.suffix == ".toml" else _look_at_rows(like, scale)
    common = looks.model_copy(update={"name": name, "capacity": capacity})
    made = roster.Roster(federation=common, server=roster.Home(address=address), devices=[])
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    pki.make_authority(folder, name)
    pki.make_server(folder, host)
    roster.write(folder, made)
    return made


def _look_at_rows(like: Path, scale: bool) -> roster.Common:
    """What rows of a file look like, and what they are scaled by."""
    try:
        arrays = read_file(like)
        x, y = arrays["x"], arrays["y"]
    except (KeyError, zipfile.BadZipFile):
        raise DataError(f"{like}: no arrays x and y; give an .npz as docs/own/data.md says") from None
    if x.ndim < 2 or not len(y) or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{like}: give rows x, [rows, ...], and whole numbers y")
    tokens = np.issubdtype(x.dtype, np.integer) and x.dtype != np.uint8
    mean, std = (0.0, 1.0)
    if scale and not tokens:
        mean, std = float(x.mean(dtype=np.float64)), float(x.std(dtype=np.float64)) or 1.0
    return roster.Common(
        name="rows",
        shape=list(x.shape[1:]),
        classes=max(2, int(y.max()) + 1),
        dtype="int64" if tokens else "float32",
        mean=mean,
        std=std,
    )


def _look_at_experiment(like: Path) -> roster.Common:
    """What rows of a simulated experiment look like; they are scaled already."""
    pool = prepare(Experiment.from_file(like)).federation.pool
    dtype = next(name for name, kind in roster.TYPES.items() if kind == pool.x.dtype)
    looks = {"name": "rows", "shape": list(pool.shape), "classes": pool.classes, "dtype": dtype}
    return roster.Common.model_validate(looks)
