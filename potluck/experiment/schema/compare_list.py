"""The list `compare` of an experiment: algorithms by name, or as tables with what they have otherwise."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from potluck.core.errors import show_short
from potluck.experiment.schema.settings import name_algorithm

Entry: TypeAlias = str | dict[str, Any]  # { algorithm = "fedprox", mu = 1.0, name = "a strong pull" }
LABEL = re.compile(r"\w[\w .+=%()-]{0,79}")  # no commas: labels are listed with these between them


def check_entry(entry: object) -> Entry:
    """An entry with its algorithm as the registry spells it."""
    if isinstance(entry, str):
        return name_algorithm(entry, entry)
    if not isinstance(entry, Mapping):
        raise ValueError(f"{show_short(entry)}: write an algorithm's name, or a table that names one")
    shown = show_short(dict(entry))
    algorithm, label = entry.get("algorithm"), entry.get("name", "it")
    if not isinstance(algorithm, str):
        raise ValueError(f"{shown}: names no algorithm; write {{ algorithm = 'fedavg', ... }}")
    if not isinstance(label, str) or not LABEL.fullmatch(label):
        fix = "use letters, digits, spaces and .+=%()-, at most 80; tables and folders are named after it"
        raise ValueError(f"name = {show_short(label)}: {fix}")
    return {**entry, "algorithm": name_algorithm(algorithm, algorithm)}
