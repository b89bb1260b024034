"""Packages of others that a run was made with, by name and version.

A run's folder records whose entry points offered its algorithm, its parts, its model, its source or its
partition, and goes on with the same versions only.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from potluck import algorithms
from potluck.core import entry_points, safe_files
from potluck.core.errors import ConfigError
from potluck.data import PARTITIONS, SOURCES
from potluck.experiment import json_files
from potluck.experiment.prepare import Setting
from potluck.models.registry import MODELS

RECORD = "packages.json"


class _Record(NamedTuple):
    versions: dict[str, str]  # by package


def record(settings: Iterable[Setting]) -> dict[str, str]:
    """What a folder keeps of those that its runs are made with, as the text of a file by name."""
    modules = {module for setting in settings for module in _list_modules(setting)}
    found = dict(package for module in modules if (package := entry_points.find_package(module)))
    return {RECORD: json.dumps(found, indent=2, sort_keys=True) + "\n"} if found else {}


def find_changes(folder: Path) -> list[str]:
    """What has become of those that the runs of a folder were begun with; none if all are as they were."""
    if not safe_files.has_file(folder, RECORD):
        return []
    fix = "put it back, or run it again"
    begun = json_files.make(
        {"versions": json_files.read_table(folder, RECORD, fix)}, _Record, folder / RECORD, fix
    )
    found = ((name, version, find_version(name)) for name, version in begun.versions.items())
    return [
        f"was begun with {name} {version}, and {here or 'none'} is installed; install {name}=={version}"
        for name, version, here in found
        if here != version
    ]


def check_same(folder: Path) -> None:
    """Refuse to go on with a folder by other packages than it was begun with."""
    for change in find_changes(folder):
        raise ConfigError(f"{folder}: {change}")


def find_version(name: str) -> str | None:
    """That of an installed package."""
    try:
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):  # or no name at all
        return None


def _list_modules(setting: Setting) -> Iterator[str]:
    """Where everything was written that a run is made of."""
    e = setting.experiment
    yield from _list_types(setting.algorithm)
    if e.algorithm in algorithms.names():  # else it was made in Python
        yield str(algorithms.find(e.algorithm).__module__)
    yield SOURCES.find_module(e.data.source)
    yield PARTITIONS.find_module(e.data.partition)
    yield MODELS.find_module(e.model.name)


def _list_types(value: object) -> Iterator[str]:
    """The modules of a rule and of all its parts."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _list_types(inner)
    elif dataclasses.is_dataclass(value):
        yield type(value).__module__
        for field in dataclasses.fields(value):
            yield from _list_types(getattr(value, field.name))
