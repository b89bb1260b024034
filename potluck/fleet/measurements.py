"""Fleets by measurement: a trace to draw from, or a table with a row a device.

Traces and phones of papers have one rate each. It is taken for the rate down; up is `up_share` of it, half
unless told (1 makes a link the same both ways, as FedScale does).
"""

import csv
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, DataError, nearest
from potluck.core.keys import derive, hash_all, permute
from potluck.data.sources.npz_file import read_arrays
from potluck.fleet.generate import GIB, LATENCY, MEDIAN_COMPUTE, MEMORY, UP_SHARE, draw_between, repeat_value
from potluck.fleet.profiles import COLUMNS, Column, Profiles
from potluck.fleet.validation import check, check_count, check_up_share, find_file, read_number

_TRACE = (
    "save numpy.savez(path, compute=ms_per_sample, bandwidth_kbps=...), for instance of "
    "client_device_capacity in github.com/SymbioticLab/FedScale, benchmark/dataset/data/device_info"
)
_TABLE = f"write a CSV file whose first line names columns ({', '.join(COLUMNS)}), or TOML with [[rows]]"

Row = Mapping[str, float | str]


def trace(
    n: int,
    key: int,
    *,
    path: str,
    replace: bool = False,
    up_share: float = UP_SHARE,
    latency: Sequence[float] = LATENCY,
    memory: Sequence[float] = MEMORY,
) -> Profiles:
    """Devices drawn by key from an npz of measured ones: `compute` (ms per sample) and `bandwidth_kbps`.

    `replace`: a measured device may be drawn twice. Latency and memory, which traces lack, as in `mobile`.
    """
    check_count("devices", n)
    check_up_share(up_share)
    file = find_file("path", path, _TRACE)
    found = read_arrays(file, ("compute", "bandwidth_kbps"))
    size = _check_trace(file, found)
    if not replace and n > size:
        raise ConfigError(f"fleet.replace = false: {file} has {size} devices for {n}; set it to true")
    own = derive(key, 1)
    at = hash_all(own, np.arange(n)) % np.uint64(size) if replace else permute(own, size)[:n]
    rates = found["bandwidth_kbps"][at].astype(np.float64) * 1000
    return Profiles(
        compute=found["compute"][at].astype(np.float64),
        up=rates * up_share,
        down=rates,
        latency=draw_between("latency", derive(key, 3), n, latency),
        memory=draw_between("memory", derive(key, 4), n, memory),
    ).check()


def table(
    n: int,
    key: int = 0,  # unused: rows are dealt in their order
    *,
    path: str | None = None,
    rows: Sequence[Row] | None = None,
    up_share: float = UP_SHARE,
    latency: float = 0.05,
    memory: float = 4 * GIB,
) -> Profiles:
    """Device i has row i, and the rows go round if there are more devices: `rows`, or a CSV or TOML file.

    A row needs `compute` (ms per sample) and `down` (bits per second); what the table lacks of up, latency
    and memory comes from `up_share` and the values given here.
    """
    if (path is None) == (rows is None):
        raise ConfigError("fleet.rows or fleet.path: a table needs one of them")
    where, given = ("fleet.rows", rows or ()) if path is None else _read(find_file("path", path, _TABLE))
    columns = _columns(where, given, ("compute", "down"), COLUMNS)
    rest = {"latency": latency, "memory": memory}
    return _around(
        n, columns | {k: repeat_value(k, 1, v) for k, v in rest.items() if k not in columns}, up_share
    )


def fedrac40(
    n: int,
    key: int = 0,  # unused: phones are dealt in their order
    *,
    compute: float = MEDIAN_COMPUTE,
    up_share: float = UP_SHARE,
    latency: float = 0.05,
) -> Profiles:
    """The 40 phones of Fed-RAC's Table III; they go round if there are more devices.

    The paper has a processing speed (read as GHz), a transmission rate (Mbit/s) and a memory (GB). Time a
    sample is taken to be inversely proportional to speed, and the median phone (2.1 GHz) to need `compute`
    ms: that of 51,496 measured phones unless told. So 1 / compute is the paper's speed but for a factor,
    which normalising takes out.
    """
    check(
        "compute",
        compute,
        0 < read_number(compute) < np.inf,
        "give the ms per sample of the median phone, above 0",
    )
    with importlib.resources.as_file(importlib.resources.files(__package__) / "fedrac40.csv") as file:
        where, rows = _read(file)
    names = ("participant", "speed_ghz", "rate_mbit", "memory_gb")
    phones = _columns(where, rows, names, names)
    columns = {
        "compute": compute * np.median(phones["speed_ghz"]) / phones["speed_ghz"],
        "down": phones["rate_mbit"] * 1e6,
        "latency": repeat_value("latency", 1, latency),
        "memory": phones["memory_gb"] * GIB,
    }
    return _around(n, columns, up_share)


def _around(n: int, columns: Mapping[str, Column], up_share: float) -> Profiles:
    check_count("devices", n)
    check_up_share(up_share)
    dealt = {name: column[np.arange(n) % len(column)] for name, column in columns.items()}
    return Profiles(**({"up": dealt["down"] * up_share} | dealt)).check()


def _check_trace(file: Path, arrays: Mapping[str, NDArray[np.generic]]) -> int:
    """How many devices a trace has."""
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 or not shape[0] for shape in shapes):
        shapes_by_name = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(f"{file}: shapes {shapes_by_name}; give one number a device in each array")
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise DataError(f"{file}: {name} holds {array.dtype}; give numbers")
        values = array.astype(np.float64)
        good = (values > 0) & (values < np.inf)
        if not good.all():
            i = int(np.argmin(good))
            raise DataError(f"{file}: {name}[{i}] = {array[i]}; give finite numbers above 0")
    return int(next(iter(shapes))[0])


def _read(file: Path) -> tuple[str, list[Row]]:
    """The rows of a CSV or TOML file, and what to call it."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: can't be read ({error})") from None
    if file.suffix == ".toml":
        try:
            rows = tomllib.loads(text).get("rows")
        except tomllib.TOMLDecodeError as error:
            raise DataError(f"{file}: not valid TOML: {error}") from None
        if not isinstance(rows, list):
            raise DataError(f"{file}: has no rows; write [[rows]] above each device")
        return str(file), rows
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return str(file), list(csv.DictReader(lines, restkey="(one too many)", skipinitialspace=True))


def _columns(
    where: str, rows: Sequence[Row], needed: Sequence[str], known: Sequence[str]
) -> dict[str, Column]:
    """Rows as columns: all rows have those of the first, and at least those needed."""
    if not rows:
        raise DataError(f"{where}: has no rows; give at least one device")
    names = list(dict.fromkeys((*needed, *(rows[0] if isinstance(rows[0], Mapping) else ()))))
    for name in names:
        if name not in known:
            raise DataError(f"{where}: no such column {name!r}; {nearest(name, tuple(known))}")
    columns = {name: np.empty(len(rows)) for name in names}
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            has = ", ".join(map(str, row)) if isinstance(row, Mapping) else repr(row)
            raise DataError(f"{where}: row {i + 1} has {has}; give {', '.join(names)} in every row")
        for name in names:
            try:
                columns[name][i] = float(row[name])
            except (TypeError, ValueError):
                raise DataError(f"{where}: {name} of row {i + 1} = {row[name]!r}; give a number") from None
    return columns
