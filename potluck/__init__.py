"""Potluck: federated learning for crowds whose members differ.

    import potluck
    run = potluck.run(potluck.Experiment(algorithm="fedavg"))
    run.summary["accuracy_mean"], run.records, run.models["global"]

Names are looked up when they are first used, so that importing Potluck is quick.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potluck.advice import Advised, advise
    from potluck.algorithms import register as register_algorithm
    from potluck.core.errors import ConfigError, PotluckError
    from potluck.data import register_partition, register_source
    from potluck.experiment import (
        Comparison,
        Experiment,
        Run,
        compare,
        load,
        resume,
        resume_comparison,
        run,
    )
    from potluck.experiment.run_events import Callback
    from potluck.experiment.tune import tune
    from potluck.experiment.tuning import Tuning
    from potluck.models import register as register_model
    from potluck.report import write_report

__version__ = "0.1.0"

logging.getLogger("potluck").addHandler(logging.NullHandler())  # quiet, unless somebody configures logging

_WHERE = {
    "Advised": ("potluck.advice", "Advised"),
    "Callback": ("potluck.experiment.run_events", "Callback"),
    "Comparison": ("potluck.experiment", "Comparison"),
    "ConfigError": ("potluck.core.errors", "ConfigError"),
    "Experiment": ("potluck.experiment", "Experiment"),
    "PotluckError": ("potluck.core.errors", "PotluckError"),
    "Run": ("potluck.experiment", "Run"),
    "Tuning": ("potluck.experiment", "Tuning"),
    "advise": ("potluck.advice", "advise"),
    "compare": ("potluck.experiment", "compare"),
    "load": ("potluck.experiment", "load"),
    "register_algorithm": ("potluck.algorithms", "register"),
    "register_model": ("potluck.models", "register"),
    "register_partition": ("potluck.data", "register_partition"),
    "register_source": ("potluck.data", "register_source"),
    "resume": ("potluck.experiment", "resume"),
    "resume_comparison": ("potluck.experiment", "resume_comparison"),
    "run": ("potluck.experiment", "run"),
    "tune": ("potluck.experiment", "tune"),
    "write_report": ("potluck.report", "write_report"),
}

__all__ = [
    "Advised",
    "Callback",
    "Comparison",
    "ConfigError",
    "Experiment",
    "PotluckError",
    "Run",
    "Tuning",
    "__version__",
    "advise",
    "compare",
    "load",
    "register_algorithm",
    "register_model",
    "register_partition",
    "register_source",
    "resume",
    "resume_comparison",
    "run",
    "tune",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "layers":  # a module, whose `stacked` is called by its whole name
        return importlib.import_module("potluck.layers")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
