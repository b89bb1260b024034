"""Options that several commands share, lists written with commas, and help whose lines fit the terminal."""

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.core.errors import ConfigError

if TYPE_CHECKING:
    from potluck.experiment.schema.log_table import Tool

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.", show_default=False)
]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a run or a comparison.", show_default=False)
]


def _load(path: Path | None) -> Path | None:
    if path is not None:
        from potluck.experiment.code import load_code

        load_code(path)
    return path


Code = Annotated[
    Path | None,
    typer.Option(
        "--code",
        metavar="FILE",
        help="A Python file that registers algorithms, models, sources or partitions of your own.",
        callback=_load,
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting of the file, e.g. data.clients=100. Repeatable."
    ),
]
LogSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar='log.to=["csv"]', help="Let other tools follow it; its other settings can't change."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="A new folder for the results.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a folder that Potluck made.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Jobs = Annotated[
    str,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N|auto",
        help="How many runs to compute at a time; auto: one for each core, or for each GPU. "
        "N runs take N times the memory.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ray[:HOST:PORT]",
        help="Compute the runs on the machines of a Ray cluster: ray (that of RAY_ADDRESS, else this "
        "machine's, else one of the command's own), ray:10.0.0.1:6379, "
        "ray:10.0.0.1:6379?gpus=0.5&cpus=2 (half a GPU and 2 cores a run).",
        show_default=False,
    ),
]
PartOf = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Compute the I-th of N parts, such as 2/8, into an --out that all parts share, and print no "
        "table: the same command without --part does, once all parts are there.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def split_names(option: str, text: str) -> list[str]:
    """Names with commas between them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigError(f"{option} {text!r}: write names with commas between them, such as fedavg,fedbuff")
    return parts


def read_jobs(jobs: str) -> int:
    """How many runs at a time; 0: one a core, where that helps."""
    if jobs == "auto":
        return 0
    if not (jobs.isascii() and jobs.isdigit()):
        raise ConfigError(f"--jobs {jobs!r}: write how many runs are computed at a time, such as 4, or auto")
    return int(jobs)


def check_part(part: str, out: Path | None, force: bool, on: str | None) -> Path:
    """The folder that all parts write into."""
    if on is not None:
        raise ConfigError(f"--part {part}: --on {on} deals the runs to its machines; leave one of them out")
    if out is None:
        raise ConfigError(f"--part {part}: all parts write into one folder; name it with --out")
    if force:
        raise ConfigError(f"--part {part}: parts go on with what is there; leave --force out")
    return out


def read_log(settings: list[str] | None) -> "list[Tool] | None":
    """The tools that are to follow a run which is resumed; None: those that did."""
    if not settings:
        return None
    from potluck.experiment import Experiment

    for setting in settings:
        if setting.partition("=")[0].strip() != "log.to":
            raise ConfigError(f"--set {setting}: a run goes on with its own settings; only log.to can change")
    return Experiment().with_overrides(settings).log.to


def read_seeds(text: str) -> list[int]:
    """Seeds with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: write whole numbers with commas, such as 1,2,3") from None


def join_lines(app: typer.Typer) -> None:
    """Let the terminal break the lines of help: those of docstrings are as long as the code's are."""
    for command in app.registered_commands:
        told = inspect.cleandoc(command.help or getattr(command.callback, "__doc__", None) or "")
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", told)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            join_lines(group.typer_instance)
