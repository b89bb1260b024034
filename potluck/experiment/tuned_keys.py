"""Which settings of an algorithm a search may change, and an experiment with some of them changed."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from potluck import algorithms as registry
from potluck.core.errors import ConfigError, nearest
from potluck.experiment import folder
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import Privacy, Training, dump_given
from potluck.experiment.schema.tune_table import Tune, flatten, nest
from potluck.experiment.search import Point, Space, Value

TRAIN = "train."  # what an algorithm has otherwise than [train]
LONGEST = 100  # characters of a trial's name


def find_space(table: Tune, algorithm: str) -> dict[str, list[Value]]:
    """The values of every key that is tried with an algorithm: its own, and those of the grid that it has."""
    shared = {key: values for key, values in flatten(table.grid).items() if has_key(algorithm, key)}
    return shared | flatten(table.own.get(algorithm, {}))


def list_lacking(table: Tune, algorithm: str) -> list[str]:
    """Keys of the grid that an algorithm doesn't have."""
    return [key for key in flatten(table.grid) if not has_key(algorithm, key)]


def narrow(table: Tune, tuned: Collection[str], others: Collection[str] = ()) -> Tune:
    """What concerns these algorithms; keys and names that are nobody's, of `others` either, are refused."""
    everybody, grid = [*dict.fromkeys([*tuned, *others])], flatten(table.grid)
    for key in grid:
        if not any(has_key(name, key) for name in everybody):
            known = dict.fromkeys(own for name in everybody for own in list_keys(name))
            whose = ", ".join(everybody)
            raise ConfigError(f"tune.grid.{key}: no setting of {whose}; {nearest(key, list(known))}")
    for name, own in table.own.items():
        if name not in everybody:
            whose = ", ".join(everybody)
            raise ConfigError(f"tune.own.{name}: tuned here: {whose}; leave it out, or name it in compare")
        for key in flatten(own):
            if not has_key(name, key):
                raise ConfigError(f"tune.own.{name}.{key}: {name} has none; {nearest(key, list_keys(name))}")
    kept = {key: values for key, values in grid.items() if any(has_key(name, key) for name in tuned)}
    own = {name: nest(flatten(grid)) for name, grid in table.own.items() if name in tuned}
    return table.model_copy(update={"grid": nest(kept), "own": own})


def list_keys(algorithm: str) -> list[str]:
    """What may be set of an algorithm, dotted below tables."""
    own = [p.name for p in registry.describe(algorithm).parameters if p.name != "local" and p.type != "table"]
    train = [key for key in Training.model_fields if key != "privacy"]
    return [
        *own,
        *(f"{TRAIN}{key}" for key in train),
        *(f"{TRAIN}privacy.{key}" for key in Privacy.model_fields),
    ]


def has_key(algorithm: str, key: str) -> bool:
    """Whether it is a parameter, a setting of a table, or (by its first name) of a part."""
    if key in (known := list_keys(algorithm)):
        return True
    above = key.rpartition(".")[0]
    return bool(above) and not key.startswith(TRAIN) and above in known


def is_set(table: Mapping[str, object], key: str) -> bool:
    """Whether parameters say something of a dotted key."""
    first, _, rest = key.partition(".")
    below = table.get(first)
    return first in table if not rest else isinstance(below, Mapping) and is_set(below, rest)


def set_values(experiment: Experiment, point: Point) -> Experiment:
    """The experiment with its algorithm at these settings."""
    name = registry.canonical(experiment.algorithm)
    tables = dump_given(experiment).get("algorithms", {})
    own: dict[str, Any] = tables.get(name, {})
    for key, value in point.items():
        _put(own, key, value)
    return experiment.with_values(algorithm=name, algorithms={**tables, name: own} if own else tables)


def _put(table: dict[str, Any], key: str, value: Value) -> None:
    *path, last = key.split(".")
    for part in path:
        below = table.get(part, {})
        if isinstance(below, str):  # a part by its name alone
            below = {"kind": below}
        if not isinstance(below, dict):
            raise ConfigError(
                f"tune.{key}: {part} was made in Python, and can't be changed; leave the key out"
            )
        table[part] = below
        table = below
    table[last] = value


def name_trial(method: str, space: Space, point: Point, seed: int) -> str:
    """A folder's name that says what is tried: `fedprox-lr0.1-mu0.01-11`."""
    shown = shorten_keys(space)
    parts = [f"{shown[key]}{_spell(value)}" for key, value in point.items()]
    method, told = folder.to_path_part(method), "-".join(parts)
    if len(told) > LONGEST:
        told = _digest(point)
    return "-".join(part for part in (method, told, str(seed)) if part)


def shorten_keys(keys: Iterable[str]) -> dict[str, str]:
    """`lr` for `train.lr`, where no other key has that last name."""
    lasts = Counter(key.rpartition(".")[2] for key in keys)
    return {key: last if lasts[last := key.rpartition(".")[2]] == 1 else key for key in keys}


def tell_value(value: Value) -> str:
    """As people write it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return value if isinstance(value, str) else json.dumps(value)


def tell_point(point: Point, keys: Mapping[str, str] | None = None) -> str:
    """Settings in words: `lr 0.1, mu 0.01`."""
    shown = shorten_keys(point) if keys is None else keys
    return ", ".join(f"{shown[key]} {tell_value(value)}" for key, value in point.items()) or "as it is"


def _spell(value: Value) -> str:
    """A value as a part of a path; texts that can't be one are told apart by a digest."""
    if isinstance(value, bool | int | float):
        return tell_value(value)
    text = tell_value(value)
    plain = text.replace("_", "a").isalnum() and text.isascii() and len(text) <= 20
    return f"_{text}" if plain else f"_{_digest(text)}"


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
