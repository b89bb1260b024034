"""What is said between who asks for runs and who computes them elsewhere: an order, then a stream of words.

All of it is plain values, and an experiment travels as the text of its file.
"""

import hashlib
import platform
from pathlib import Path
from typing import NamedTuple

import torch

from potluck.core import entry_points
from potluck.core.errors import ConfigError
from potluck.engine.schedule import Progress
from potluck.execute.process import Failure
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import code, packages
from potluck.experiment.launch.folder_changes import Changes
from potluck.experiment.launch.follower import Done
from potluck.experiment.run_events import Event


class UserCode(NamedTuple):
    """Files of the user's own, which are read there as they were here, and what has no file."""

    code: tuple[str, bytes] | None = None  # of --code
    study: str = ""  # a study's file, one of these
    beside: tuple[tuple[str, bytes], ...] = ()
    registered: bytes = b""  # a pickled `Registered`; machines that compute are trusted, as Ray trusts them


class Order(NamedTuple):
    """A run that is to be computed."""

    name: str
    text: str  # the experiment's file
    source: str  # what errors call it
    there: Changes | None  # what the folder has of it; None: it is to begin
    choice: PlanChoice | None  # how it is computed, where that was measured
    user: UserCode
    cpus: int
    sharing: int  # runs that share a GPU
    wants_events: bool


class Here(NamedTuple):
    """The first word: who is about to compute."""

    host: str
    kind: str  # of machine: last digits may differ between two
    versions: dict[str, str]


class Begun(NamedTuple):
    """A run is about to begin, or goes on."""

    round: int
    resumed: bool


class Chosen(NamedTuple):
    """How the runs of several orders are computed."""

    choices: list[PlanChoice]


class Failed(NamedTuple):
    """What went wrong there; another attempt would come to the same."""

    failure: Failure


class Broken(NamedTuple):
    """Who computed has died; another attempt may get further."""

    how: str  # in a word
    text: str  # for people


Word = Here | Begun | Progress | Event | Changes | Chosen | Done | Failed | Broken


class LostError(Exception):
    """A stream has ended before its last word: what people are told, and `how` in a word."""

    def __init__(self, text: str, how: str) -> None:
        super().__init__(text)
        self.how = how


def list_versions() -> dict[str, str]:
    """What must be the same wherever a run is computed."""
    return {
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "Potluck": packages.find_version("potluck") or "of unknown version",
        **entry_points.list_versions(),
    }


def read_user_code(study: Path | None) -> UserCode:
    """The files that this process has loaded, as they are now."""
    path, loaded, own = code.find_path(), code.find_loaded(), None
    if path is not None and loaded is not None:
        own = loaded.file, path.read_bytes()
        if hashlib.sha256(own[1]).hexdigest() != loaded.sha256:
            raise ConfigError(f"--code {path}: has changed since it was loaded; run the command again")
    if study is None:
        return UserCode(own)
    beside = sorted(study.parent.glob("*.py"))
    return UserCode(own, study.name, tuple((each.name, each.read_bytes()) for each in beside))
