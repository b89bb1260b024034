"""Tools that follow runs, by [log]: each is a callback that writes what it hears into one of them.

They write into the folder `log` of a run's own folder, but for MLflow, which has its store where it is told.
A run that is resumed is told with all evaluations up to there: each tool sees to it that none is there twice.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path

from potluck.core.errors import ConfigError
from potluck.experiment.run_events import Callback
from potluck.experiment.schema.log_table import Log, Tool
from potluck.experiment.sinks.to_csv import CsvLog
from potluck.experiment.sinks.to_mlflow import MlflowLog
from potluck.experiment.sinks.to_tensorboard import TensorBoardLog
from potluck.experiment.sinks.to_wandb import WandbLog

SINKS: dict[Tool, Callable[[Path], Callback]] = {
    "tensorboard": TensorBoardLog,
    "mlflow": MlflowLog,
    "wandb": WandbLog,
    "csv": CsvLog,
}


def check_log(log: Log, path: Path | None) -> None:
    """Refuse tools that aren't installed, and a run that has no folder for what they write."""
    for name in log.to:
        found = None if name == "csv" else importlib.util.find_spec(name)
        if name != "csv" and (found is None or found.origin is None):  # a folder here may have that name
            raise ConfigError(f'log.to = {log.to!r}: {name} isn\'t installed; pip install "potluck[{name}]"')
    if log.to and path is None:
        raise ConfigError(f"log.to = {log.to!r}: a run in memory has no folder to log in; name one with out")


def open_sinks(log: Log, path: Path | None) -> list[Callback]:
    """Those that an experiment names."""
    check_log(log, path)
    return [] if path is None else [SINKS[name](path) for name in log.to]
