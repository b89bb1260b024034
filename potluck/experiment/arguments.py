"""What is handed over in Python, refused in a line before anything is done with it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from potluck.core.errors import ConfigError, nearest, require, show_short
from potluck.experiment.run_events import Callback
from potluck.experiment.schema.experiment import Experiment

METHODS = [name for name in vars(Callback) if name.startswith("on_")]


def read_out(experiment: object, out: str | Path | None, callbacks: object = ()) -> Path | None:
    """The folder of a call whose experiment and callbacks are what they should be."""
    if not isinstance(experiment, Experiment):
        fix = "make it by potluck.Experiment(...)"
        if isinstance(experiment, str | Path):
            fix = f"read the file, by potluck.Experiment.from_file({str(experiment)!r})"
        elif isinstance(experiment, Mapping):
            fix = "make one of these tables, by potluck.Experiment(**tables)"
        raise ConfigError(f"experiment = {show_short(experiment)}: {fix}")
    check_callbacks(callbacks)
    require(out is None or isinstance(out, str | Path), "out", out, "write the path of a folder")
    return None if out is None else Path(out)


def check_callbacks(callbacks: object) -> None:
    """Refuse what has no methods to call, and methods that nobody would call."""
    require(isinstance(callbacks, Sequence), "callbacks", callbacks, "write a list of them")
    assert isinstance(callbacks, Iterable)
    for i, each in enumerate(callbacks):
        if not isinstance(each, Callback):
            made = "give an object of the class, not the class; " if isinstance(each, type) else ""
            raise ConfigError(f"callbacks[{i}] = {show_short(each)}: {made}derive it from potluck.Callback")
        for name in dir(each):
            if name.startswith("on_") and name not in METHODS and callable(getattr(each, name)):
                raise ConfigError(
                    f"callbacks[{i}].{name}: nothing calls such a method; {nearest(name, METHODS)}"
                )
