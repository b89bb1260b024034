"""Folders of the user's that the package reads and writes."""

import os
from pathlib import Path


def find_cache_folder() -> Path:
    """The user's cache: `potluck` in $XDG_CACHE_HOME, else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "potluck"
