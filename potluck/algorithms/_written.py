"""Parameters as TOML can hold them, to the last default."""

import dataclasses
import math

from potluck.algorithms._parameters import Call, is_table
from potluck.core.codec import Json
from potluck.jobs import Train


def list_settings(call: Call) -> dict[str, Json]:
    """What `[algorithms.NAME]` would have to say; a table of settings goes without its kind: there is one."""
    settings = _list_settings(call)
    for key, value in settings.items():
        if key in call.known and is_table(call.known[key]) and isinstance(value, dict):
            settings[key] = {name: each for name, each in value.items() if name != "kind"}
    return settings


def plain(value: object) -> Json:
    """A value as TOML can hold it; None where it can't."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # a file may not say so: a default that isn't written stays one
    if isinstance(value, bool | int | float | str | dict):
        return value
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Call):
        return {"kind": value.kind, **_list_settings(value)}
    if isinstance(value, type | Train) or not dataclasses.is_dataclass(value):
        return None
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if any(isinstance(v, Train) for v in fields.values()):
        return None  # its training comes from elsewhere
    settings = {name: plain(v) for name, v in fields.items()}
    return {"kind": type(value).__name__, **{k: v for k, v in settings.items() if v is not None}}


def _list_settings(call: Call) -> dict[str, Json]:
    """The mode, if there is one, and all parameters: what was given, else their defaults."""
    defaults = {key: p.default for key, p in call.known.items() if p.default is not p.empty}
    found = {key: plain(value) for key, value in (defaults | call.given).items() if key != "local"}
    mode: dict[str, Json] = {} if call.mode is None else {"mode": call.mode}
    return mode | {key: value for key, value in found.items() if value is not None}
