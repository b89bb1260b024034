"""The folder `log` of a run, in which tools keep what they write."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from potluck.core import safe_files
from potluck.core.codec import Json
from potluck.core.errors import StorageError

LOG = "log"


def make_log_folder(run: Path) -> Path:
    """The folder, which may be there already."""
    with safe_files.naming(run / LOG, "written", StorageError):
        (run / LOG).mkdir(exist_ok=True)
    safe_files.check_entries(run, "", [LOG])
    return run / LOG


def read_id(run: Path, tool: str) -> str | None:
    """By what name a tool knows a run; None: it doesn't yet."""
    name = f"{LOG}/{tool}.id"
    return safe_files.read_file(run, name).decode().strip() if safe_files.has_file(run, name) else None


def write_id(run: Path, tool: str, name: str) -> None:
    safe_files.write_file(run, f"{LOG}/{tool}.id", f"{name}\n".encode())


def flatten(settings: Mapping[str, Json], above: str = "") -> Iterator[tuple[str, Json]]:
    """Settings by their dotted keys, as `--set` takes them."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
