"""Every typed setting that there is, found by itself: the keys of all tables, and all algorithms' parameters.

Each comes with an experiment in which the key counts, so that what is refused is refused for its value.
"""

import contextlib
import inspect
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from potluck import algorithms
from potluck.algorithms import _kinds, _parameters
from potluck.core.errors import PotluckError
from potluck.core.parts import parts, role_of
from potluck.core.rule import Rule
from potluck.data import PARTITIONS
from potluck.experiment.schema.experiment import Experiment
from potluck.fleet import SOURCES
from potluck.jobs import Train
from potluck.rules.wrap import is_cohort

EXTREMES: dict[str, object] = {
    "zero": 0,
    "minus one": -1,
    "a half": -0.5,
    "tiny": 1e-9,
    "tinier": 1e-300,
    "huge": 1e300,
    "minus huge": -1e300,
    "nan": float("nan"),
    "infinite": float("inf"),
    "32 bits": 2**31,
    "30 bits": 2**30,
    "a million": 10**6,
    "63 bits": 2**63,
    "400 digits": 10**400,
    "nothing": None,
    "empty": "",
    "long": "x" * 1_000_000,
    "half a character": "\ud800",
    "true": True,
    "empty list": [],
    "list": [1e300, -1],
    "table": {"kind": "nobody"},
    "long list": [1] * 10_000,
    "bytes": b"x",
}

ABSENT = "(absent)"  # of a key that another one rules out
IMAGES = {"data.source": "digits", **dict.fromkeys(("data.rows", "data.dimension", "data.classes"), ABSENT)}
SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "rows": 600, "dimension": 4, "classes": 4, "clients": 12, "server": 0.1},
    "model": {"name": "mlp", "width": 0.05},
    "fleet": {"users": 6, "edges": 2},
    "stop": {"rounds": 2},
    "run": {"executor": "loop"},
}
# What a table needs beside the key that is tried.
NEEDS: dict[str, dict[str, Any]] = {
    "data.groups": {"kind": "affine", "count": 2},
    "data.groups.within": {"kind": "permutation", "count": 2},
    "data.flip": {"share": 0.5},
    "data.changes": {"at": 1.0, "kind": "labels"},
    "fleet.claims": {"share": 0.5, "up": 2.0},
    "fleet.stragglers": {"share": 0.5, "slower": 2.0},
    "fleet.attack": {"kind": "noise", "share": 0.25},
    "robust": {"kind": "krum"},
}
# Where a key counts; one that isn't named here counts in the small experiment.
WHERE: dict[str, dict[str, Any]] = {
    "data.groups.degrees": {**IMAGES, "data.groups.kind": "rotation"},
    "data.groups.share": {"data.groups.kind": "labels"},
    "data.groups.within.degrees": {**IMAGES, "data.groups.within.kind": "rotation"},
    "data.groups.within.share": {"data.groups.within.kind": "labels"},
    "data.changes.degrees": {**IMAGES, "data.changes.kind": "rotation"},
    "robust.mode": {"robust.kind": "adaptive_krum"},
    "robust.share": {"robust.kind": "trimmed_mean"},
    "robust.norm": {"robust.kind": "clip"},
    "data.server_from": {"data.server": 0.1},
    "train.momentum": {"train.optimizer": "sgd"},
    **{f"fleet.{key}": {"fleet.availability": "on_off"} for key in ("period", "share")},
    **{f"fleet.{key}": {"fleet.availability": "day_night"} for key in ("night", "night_spread", "zones")},
    **{f"fleet.attack.{key}": {"fleet.attack.share": ABSENT} for key in ("nodes", "per_edge")},
    "fleet.claims.nodes": {"fleet.claims.share": ABSENT},
    "fleet.attack.what": {"fleet.attack.kind": "malformed"},
    "fleet.attack.knows": {"fleet.attack.kind": "alie"},
    **{
        f"fleet.attack.{key}": {**IMAGES, "fleet.attack.kind": "backdoor"}
        for key in ("target", "patch", "poisoned")
    },
}
_DEVICE = {"compute": 1.0, "up": 1.0, "down": 1.0, "latency": 0.0, "memory": 1.0}
SOURCE_NEEDS: dict[str, dict[str, Any]] = {"mix": {"slowdown": 2.0}, "table": {"rows": [_DEVICE] * 12}}
DEEPEST = 3  # parts within parts


class Setting(NamedTuple):
    """A key, and the settings among which it is tried."""

    key: str
    type: Any
    among: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]


@cache
def list_settings() -> list[Setting]:
    """All of them, in a fixed order."""
    found = [*_list_keys(Experiment, "", ()), *_list_source_options()]
    for name in algorithms.names():
        algorithms.find(name)  # first: their files offer parts to each other
    for name in algorithms.names():
        path, among, build = f"algorithms.{name}", (("algorithm", name),), algorithms.find(name)
        found += _list_parameters(build, path, among, 0)
        if algorithms.list_modes(name):
            found.append(Setting(f"{path}.mode", str, among))
        if algorithms.find_published(name):
            found += _list_parameters(build, path, (*among, (f"{path}.mode", "published")), 0)
    return list({(each.key, repr(each.among)): each for each in found}.values())


def make(setting: Setting, value: object) -> dict[str, Any]:
    """The tables of an experiment in which a setting has this value."""
    images = IMAGES if any(given == "Crop" for _, given in setting.among) else {}
    tables = _copy(SMALL)
    for key, given in (*images.items(), *setting.among, *WHERE.get(setting.key, {}).items()):
        _put(tables, key, given)
    _put(tables, setting.key, value)
    return tables


def _put(tables: dict[str, Any], key: str, value: object) -> None:
    """Set a key of a table, which is made with what it needs if it isn't there."""
    *path, last = key.split(".")
    at = tables
    for i, part in enumerate(path):
        full = ".".join(path[: i + 1])
        inner = at.setdefault(part, _copy(NEEDS.get(full, {})))
        if full in ("data.changes", "fleet.claims"):
            inner = at[part] = inner if isinstance(inner, list) else [inner]
            inner = inner[0]
        at = inner
    at[last] = value
    if value is ABSENT:
        del at[last]


def _list_keys(table: type[BaseModel], path: str, among: tuple[tuple[str, Any], ...]) -> Iterator[Setting]:
    for name, field in table.model_fields.items():
        key = f"{path}{name}"
        inner = _find_table(field.annotation)
        yield Setting(key, field.annotation, among)
        if inner is not None:
            named = typing.get_origin(field.annotation) is dict
            yield from _list_keys(inner, f"{key}.{'edge.' if named else ''}", among)


def _find_table(annotation: Any) -> type[BaseModel] | None:
    members = (annotation, *typing.get_args(annotation))
    return next((m for m in members if isinstance(m, type) and issubclass(m, BaseModel)), None)


def _list_source_options() -> Iterator[Setting]:
    for source, make_fleet in SOURCES.items():
        needs = tuple((f"fleet.{key}", value) for key, value in SOURCE_NEEDS.get(source, {}).items())
        for name, p in inspect.signature(make_fleet).parameters.items():
            if p.kind is p.KEYWORD_ONLY and source not in ("trace", "fedrac40"):
                yield Setting(f"fleet.{name}", p.annotation, (("fleet.source", source), *needs))
    for partition, way in PARTITIONS.items():
        if partition in ("by_user", "split_users"):
            continue  # of data with people
        free = (
            (("data.clients", ABSENT), ("fleet.users", ABSENT), ("data.users", 3))
            if partition == "user_devices"
            else ()
        )
        for name in [*sorted(way.takes - {"pool", "key", "cut"}), "smallest", "validation", "test"]:
            yield Setting(f"data.{name}", None, (("data.partition", partition), *free))


def _list_parameters(
    build: Any, path: str, among: tuple[tuple[str, Any], ...], depth: int
) -> Iterator[Setting]:
    for name, p in _parameters.parameters(build).items():
        if name == "local" or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        key = f"{path}.{name}"
        yield Setting(key, p.annotation, among)
        if depth == DEEPEST:
            continue
        for kind in _list_kinds(p):
            if kind in _list_cohorts():
                yield from _list_inner(key, kind, among)
                continue
            chosen = among if _parameters.is_table(p) else (*among, (f"{key}.kind", kind.__name__))
            yield from _list_parameters(kind, key, chosen, depth + 1)


def _list_inner(key: str, kind: Any, among: tuple[tuple[str, Any], ...]) -> Iterator[Setting]:
    """Parameters of an algorithm within another, if that one takes it; parts are as those of fedavg."""
    _, host, name = key.split(".")
    with contextlib.suppress(PotluckError):
        algorithms.make(host, Train(), **{name: {"kind": kind.__name__}})
        for own in _parameters.parameters(kind):
            if own != "local":
                yield Setting(f"{key}.{own}", None, (*among, (f"{key}.kind", kind.__name__)))


def _list_kinds(p: inspect.Parameter) -> list[Any]:
    """The parts that a parameter may be; of algorithms within algorithms the plainest."""
    found: dict[str, Any] = {}
    for member in _members(p.annotation):
        role = role_of(member) if inspect.isclass(member) else None
        if role == _kinds.ALGORITHM:
            found |= {"fedavg": algorithms.find("fedavg")} | {c.__name__: c for c in _list_cohorts()}
        elif role is not None:
            found |= parts(role)
        elif _parameters.is_table(p) or (inspect.isclass(member) and hasattr(member, "__dataclass_fields__")):
            found[member.__name__] = member
    return list(found.values())


@cache
def _list_cohorts() -> list[Any]:
    """The algorithms that others may hold, beside fedavg."""
    made = {name: algorithms.make(name, Train()) for name in algorithms.names() if name != "fedavg"}
    return [
        algorithms.find(name) for name, rule in made.items() if isinstance(rule, Rule) and is_cohort(rule)
    ]


def _members(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [m for arg in typing.get_args(annotation) for m in _members(arg)]
    if origin is Annotated:
        return _members(annotation.__origin__)
    return [origin if inspect.isclass(origin) and role_of(origin) else annotation]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
