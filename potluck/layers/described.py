"""A stack level by level, from the cloud downward: whose rule stands there, and what is set of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from potluck import algorithms
from potluck.core.codec import Json
from potluck.layers.matrix import SERVES
from potluck.layers.presets import (
    BASE,
    COHORTS,
    EDGES,
    OF_BASE,
    OF_TUNING,
    SIZE_KINDS,
    TUNED,
    USERS,
    Table,
    settle,
)
from potluck.layers.stacking import complete_layers

CLOUD = "cloud"
_CHOICES = ("kind", "mode")  # they decide on other defaults
_DOWNWARD = (CLOUD, "cohorts", "sizes", "edges", "users", *SERVES)


@dataclass(frozen=True)
class Level:
    """One rule of a stack."""

    name: str  # of the layer; the base rule is the cloud's
    rule: str  # the algorithm that it comes from, and that says how its notes read
    settings: Mapping[str, Json]  # that aren't defaults, and how many members a round


def describe_stack(
    base: str, given: Table, names: Sequence[str], tables: Mapping[str, Table], rounds: int | None = None
) -> list[Level]:
    """All levels of a base rule and its layers; an old name is the stack that it stands for."""
    around = {name: tables.get(name, {}) for name in names}
    cloud, *more = _describe_base(base, settle(base, around, given), rounds)
    if "cohorts" in names:
        cloud = _leave_clients(cloud)
    return sorted(
        [cloud, *more, *_describe_layers(base, around, given)], key=lambda level: _DOWNWARD.index(level.name)
    )


def _describe_base(base: str, given: Table, rounds: int | None) -> list[Level]:
    table = algorithms.complete(base, rounds, **given)
    plain = algorithms.complete(base, rounds, **{key: given[key] for key in _CHOICES[1:] if key in given})
    if base in COHORTS:
        inner = table.pop("inner", None)
        own = dict(inner) if isinstance(inner, dict) else {}
        kind = own.pop("kind", BASE)
        cloud, *more = _describe_base(str(kind), own, rounds)
        return [_leave_clients(cloud), Level("cohorts", base, _pick_set(table, plain)), *more]
    if base in SIZE_KINDS:
        said = _pick_set(table, plain)
        shared = {key: value for key, value in said.items() if key in SIZE_KINDS[base]}
        own = {key: value for key, value in said.items() if key not in SIZE_KINDS[base]}
        return [Level(CLOUD, BASE, shared), Level("sizes", base, own)]
    said = _pick_set(table, plain)
    if base == TUNED:
        own = {OF_TUNING[key]: value for key, value in said.items() if key in OF_TUNING}
        kept = {key: value for key, value in said.items() if key not in OF_TUNING}
        return [Level(CLOUD, BASE, kept), Level("tuned", base, own)]
    if base == USERS:
        own = {new: table[old] for old, new in OF_BASE.items() if old == "users" or old in said}
        return [
            Level(CLOUD, BASE, own),
            Level("users", base, {k: v for k, v in said.items() if k not in OF_BASE}),
        ]
    if base in EDGES:
        return [Level(CLOUD, BASE, {}), Level("edges", base, said)]
    return [Level(CLOUD, base, said)]


def _describe_layers(base: str, tables: Mapping[str, Table], given: Table) -> list[Level]:
    full, plain = complete_layers([*tables], tables, base, given), {}
    for name, own in tables.items():
        chosen = {key: own[key] for key in _CHOICES if key in own}
        plain[name] = complete_layers([*tables], {**tables, name: chosen}, base, given)[name]
    rules = {"users": "shufflefl", "edges": "fededge", "tuned": TUNED}
    found = []
    for name, table in full.items():
        rule = str(table.get("kind", rules.get(name, "")))
        if name == "edges":
            rule = "maverick" if "contrast" in table else rule if table.get("go_on") else "hierfl"
        found.append(Level(name, rule, _pick_set(table, plain[name])))
    return found


def _leave_clients(level: Level) -> Level:
    """Of a rule inside cohorts: who groups says how many take part."""
    return Level(level.name, level.rule, {k: v for k, v in level.settings.items() if k != "clients"})


def _pick_set(table: Mapping[str, Json], plain: Mapping[str, Json]) -> dict[str, Json]:
    """What isn't as it would be by itself; parts by their fields."""
    found: dict[str, Json] = {"clients": table["clients"]} if "clients" in table else {}
    for key, value in table.items():
        other = plain.get(key)
        if isinstance(value, dict) and isinstance(other, dict) and value.get("kind") == other.get("kind"):
            found |= {f"{key}.{k}": v for k, v in value.items() if v != other.get(k)}
        elif value != other:
            found[key] = str(value.get("kind", "")) if isinstance(value, dict) else value
    return found
