"""Plans that were measured before, in a file of the user's cache: the same shape isn't measured again.

The file is a help and no more. If it can't be read, holds nonsense or can't be written, runs go on without.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import torch

from potluck.core.folders import find_cache_folder

FILE = "plans.json"
VERSION = 4  # another one when executors have changed so much that old measurements mislead
MOST = 1000  # plans that are kept; the oldest go first

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"


def find_path() -> Path:
    """plans.json in $POTLUCK_CACHE, else in the user's cache."""
    chosen = os.environ.get("POTLUCK_CACHE", "")
    return (Path(chosen).expanduser() if chosen else find_cache_folder()) / FILE


class Plans:
    """What was measured on a machine with this torch, by what it was measured of."""

    def __init__(self, path: Path, machine: str = "") -> None:
        self.path = path
        self.here = {"version": VERSION, "machine": machine, "torch": str(torch.__version__)}

    def find(self, about: Mapping[str, JSON]) -> dict[str, JSON] | None:
        """What is known of this very case."""
        found = self._read().get(self._key(about))
        return found if isinstance(found, dict) else None

    def add(self, about: Mapping[str, JSON], entry: Mapping[str, JSON]) -> None:
        """Remember a case; the file is replaced whole, so that nobody reads half of it."""
        known = {**self._read(), self._key(about): {**entry, "about": {**self.here, **about}}}
        text = json.dumps(dict(list(known.items())[-MOST:]), indent=1) + "\n"
        partial = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path.parent, prefix=f".{FILE}.", delete=False
            ) as file:
                partial = file.name
                file.write(text)
            os.replace(partial, self.path)
        except OSError:
            if partial is not None:
                with contextlib.suppress(OSError):
                    os.unlink(partial)

    def _read(self) -> dict[str, JSON]:
        try:
            known: JSON = json.loads(self.path.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}

    def _key(self, about: Mapping[str, JSON]) -> str:
        text = json.dumps({**self.here, **about}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]
