"""Code of the user's own: a file that registers algorithms, models, sources or partitions by name.

An experiment names what was registered, never code: whoever runs it says which file to load (`--code`). The
folder of a run holds the name and the digest of that file, and goes on with the same one only. Runs side by
side and their workers are forked, so they know what their parent has loaded.
"""

import hashlib
import importlib.util
import json
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from potluck import algorithms
from potluck.core import safe_files
from potluck.core.errors import ConfigError, PotluckError, nearest
from potluck.core.parts import parts_of, roles
from potluck.core.registry import Registry
from potluck.experiment import json_files

RECORD = "code.json"


class Code(NamedTuple):
    """A file as a run's folder records it."""

    file: str
    sha256: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), indent=2) + "\n"


_loaded: tuple[Path, Code] | None = None


def load_code(path: Path) -> None:
    """Execute a file, once a process; it calls `potluck.register_algorithm` and its like."""
    global _loaded
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--code {path}: can't be read ({error.strerror})") from None
    code = Code(path.name, hashlib.sha256(content).hexdigest())
    if _loaded is None or _loaded[1] != code:
        before = Registry.added
        module = execute_file(path, "potluck_code_" + re.sub(r"\W", "_", path.stem))
        _check_parts(path, parts := parts_of(module.__name__))
        if Registry.added == before and not parts:
            raise ConfigError(
                f"--code {path}: registers nothing; call potluck.register_algorithm, register_model, "
                f"register_source or register_partition in it"
            )
    _loaded = path, code


def _check_parts(path: Path, parts: dict[str, str]) -> None:
    """Refuse parts for a role that nothing has: no file could ever name them."""
    for name, role in parts.items():
        if role not in roles():
            for algorithm in algorithms.names():  # some roles are an algorithm's own
                algorithms.find(algorithm)
        if role not in roles():
            raise ConfigError(
                f"--code {path}: @part({role!r}) of {name}: no such role; {nearest(role, [*roles()])}"
            )


def execute_file(path: Path, name: str) -> ModuleType:
    """The module that a file of the user's makes; what goes wrong there is told in a line."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # values that it defines are looked up there
    try:
        spec.loader.exec_module(module)
    except PotluckError as error:
        raise error.retell(f"{path}: {error}") from error.__cause__
    except (Exception, SystemExit) as error:  # the user's own file: its line is named, its traceback shown
        frames = traceback.extract_tb(error.__traceback__)
        here = [frame.lineno for frame in frames if frame.filename == spec.origin]
        line = f", line {here[-1]}" if here else ""
        told = ConfigError(f"{path}{line}: {type(error).__name__}: {error}")
        raise (told if isinstance(error, SystemExit) else told.blame(error, (SyntaxError,))) from error
    return module


def find_loaded() -> Code | None:
    """The file that this process has loaded."""
    return None if _loaded is None else _loaded[1]


def find_path() -> Path | None:
    """Where it was loaded from."""
    return None if _loaded is None else _loaded[0]


def record() -> dict[str, str]:
    """What a folder keeps of it, as the text of a file by name."""
    code = find_loaded()
    return {} if code is None else {RECORD: code.to_json()}


def read_record(folder: Path) -> Code | None:
    """The file that the runs of a folder are computed with."""
    if not safe_files.has_file(folder, RECORD):
        return None
    return json_files.read_json(folder, RECORD, Code, "put it back, or run it again")


def check_same(folder: Path) -> None:
    """Refuse to go on with a folder by other code than it was begun with."""
    begun, now = read_record(folder), find_loaded()
    if begun == now:
        return
    if begun is None:
        raise ConfigError(f"--code {find_path()}: {folder} was begun without; leave it out")
    wanted = f"{folder} was begun with --code {begun.file} of sha256 {begun.sha256}"
    if now is None:
        raise ConfigError(f"--code is missing: {wanted}; name that file")
    raise ConfigError(f"--code {find_path()}: is of sha256 {now.sha256}, but {wanted}; name that file")
