"""An experiment: read from a file or made in Python, changed by settings, resolved to the last default."""

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, PrivateAttr, ValidationError, field_validator

from potluck.core.errors import ConfigError, error_context, require, show_short
from potluck.core.ranges import Seed
from potluck.core.rule import Runnable
from potluck.data import PARTITIONS
from potluck.experiment import toml
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.compare_list import Entry, check_entry
from potluck.experiment.schema.fleet import Devices
from potluck.experiment.schema.log_table import Log
from potluck.experiment.schema.old_keys import take_serve
from potluck.experiment.schema.raw_values import check_values
from potluck.experiment.schema.robust_table import Robustness
from potluck.experiment.schema.settings import (
    Data,
    Deploy,
    Evaluation,
    Execution,
    Model,
    Stop,
    Training,
    as_recorded,
    dump_all,
    dump_given,
    is_recorded,
    name_algorithm,
)
from potluck.experiment.schema.table import Table
from potluck.experiment.schema.tune_table import Tune
from potluck.fleet.builder import SOURCES as FLEET_SOURCES
from potluck.layers import check_layer, sort_layers

T = TypeVar("T", bound=Table)
Parameters = dict[str, dict[str, Any]]  # by algorithm; a parameter may be a part that was made in Python
POINTS = 20  # evaluations of a run, unless told
LOOKS = 100_000  # at most


class Experiment(Table):
    """One experiment: `Experiment.from_file(path)`, or `Experiment(seed=2, data={"clients": 50})`.

    Arguments are the keys of an experiment's file; its tables are dictionaries.
    """

    name: Annotated[str, "what the experiment is called; folders and reports are named after it"] = (
        "experiment"
    )
    algorithm: Annotated[str, "the algorithm that `potluck run` runs"] = "fedavg"
    layers: Annotated[
        list[str],
        "What stands around the algorithm, in whatever order: users, edges, cohorts, sizes, tuned, switch, "
        "prior.",
    ] = Field(default=[])
    layer: Annotated[Parameters, "[layer.NAME]: what may be set of a layer"] = Field(default={})
    compare: Annotated[
        list[Entry],
        "the algorithms that `potluck compare` runs; unless told, the one above. A table, "
        "`{ algorithm, mode, name }`, has what differs from `[algorithms.NAME]`, and a name for tables and "
        "folders.",
    ] = Field(default=[])
    seed: Annotated[
        Seed, "the number that all chance follows from: who holds what, who is fast, who is asked"
    ] = 1
    seeds: Annotated[
        list[Seed],
        "the seeds of a comparison, each of which every algorithm runs with; unless told, the one seed",
    ] = Field(default=[])
    data: Data = Data()
    model: Model = Model()
    fleet: Devices = Devices()
    train: Training = Training()
    robust: Annotated[Robustness | None, "how updates are judged before any algorithm merges them"] = None
    stop: Stop = Stop(rounds=50)
    evaluate: Evaluation = Evaluation()
    tune: Annotated[Tune | None, "what `potluck tune` and `compare --tune` try; no part of a run"] = None
    run: Execution = Execution()
    log: Log = Log()
    deploy: Deploy = Deploy()
    algorithms: Annotated[Parameters, "[algorithms.NAME]: an algorithm's own settings"] = Field(default={})

    _source: str = PrivateAttr(default="experiment")
    _recorded: bool = PrivateAttr(default=False)

    def __init__(self, **tables: Any) -> None:
        where = tables.pop("_source", "experiment")
        with error_context(where):
            check_values(tables)
            take_serve(tables)
        try:
            super().__init__(**tables)
        except ValidationError as error:
            raise config_errors.explain_error(error, type(self), where) from None
        self._source, self._recorded = where, is_recorded()

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The experiment that a TOML file describes."""
        return cls(**toml.read(Path(path)), _source=str(path))

    def with_overrides(self, settings: Iterable[str]) -> Self:
        """A copy with settings such as `data.clients=50`; values are read as TOML, else as text."""
        tables = dump_given(self)
        for setting in settings:
            key, equals, text = setting.partition("=")
            path = [part.strip() for part in key.split(".")]
            if not equals or not all(path):
                raise ConfigError(f"--set {show_short(setting)}: write key=value, such as data.clients=50")
            at = tables
            for i, part in enumerate(path[:-1]):
                at = at.setdefault(part, {})
                if not isinstance(at, dict):
                    whole = ".".join(path[: i + 1])
                    raise ConfigError(f"--set {show_short(setting)}: {whole} is a value, not a table")
            at[path[-1]] = toml.parse_literal(text.strip())
        made = type(self)(**tables, _source="--set")  # it was right before, so what is wrong now was set
        made._source = self._source
        return made

    def with_values(self, **changes: Any) -> Self:
        """A copy with other top-level values."""
        with as_recorded(self._recorded):
            return type(self)(**{**dump_given(self), **changes}, _source=self._source)

    def training(self, algorithm: str) -> Training:
        """[train] with what `algorithms.NAME.train` says instead, all defaults written out."""
        override = self.algorithms.get(algorithm, {}).get("train", {})
        path = f"algorithms.{algorithm}.train"
        if not isinstance(override, dict):
            raise ConfigError(f"{self._source}: {path} = {show_short(override)}: should be a table")
        tables = dump_given(self.train)
        if "steps" in override or "epochs" in override:
            tables.pop("steps", None), tables.pop("epochs", None)
        try:
            mixed = Training(**{**tables, **override})
        except ValidationError as error:
            raise config_errors.explain_error(error, Training, self._source, path) from None
        lr = mixed.lr if mixed.lr is not None else (0.1 if mixed.optimizer == "sgd" else 0.001)
        epochs = 1 if mixed.epochs is None and mixed.steps is None else mixed.epochs
        return mixed.model_copy(update={"lr": lr, "epochs": epochs})

    def resolve(self) -> Self:
        """A copy in which everything that depends on other keys is written out; the same run again."""
        stop, evaluate = self.stop, self.evaluate
        data, partition = self.data, PARTITIONS.get(self.data.partition)
        data = data.with_option_defaults()
        fleet = _with_options(self.fleet, FLEET_SOURCES[self.fleet.source])
        if data.clients is None and partition is not None and not partition.counts_clients:
            data = data.model_copy(update={"clients": 20})
        if evaluate.rounds is None and evaluate.seconds is None:
            rounds = None if stop.rounds is None else max(1, stop.rounds // POINTS)
            seconds = None if stop.seconds is None else stop.seconds / POINTS
            rounds = 5 if rounds is None and seconds is None else rounds  # no end is known
            evaluate = evaluate.model_copy(update={"rounds": rounds, "seconds": seconds})
        if stop.seconds is not None and evaluate.seconds is not None:
            looks = stop.seconds / evaluate.seconds
            fix = f"raise it: there would be {looks:,.0f} evaluations until stop.seconds = {stop.seconds:g}"
            require(looks <= LOOKS, "evaluate.seconds", evaluate.seconds, fix)
        train = self.training("")
        robust = None if self.robust is None else self.robust.with_defaults()
        found = {"data": data, "fleet": fleet, "evaluate": evaluate, "train": train, "robust": robust}
        return self.model_copy(update=found)  # all of it was validated: a file is parsed once

    def check_layers(self) -> None:
        """Refuse a table of a layer that neither this experiment nor an entry of `compare` asks for."""
        asked = {*self.layers, *(n for e in self.compare if isinstance(e, dict) for n in e.get("layers", []))}
        for name in sorted({*self.layer} - asked):
            fix = f"write layers = {sort_layers([*self.layers, name])}, or leave it out"
            raise ConfigError(f"layer.{name} = {self.layer[name]}: layers doesn't name it; {fix}")

    def to_toml(self) -> str:
        """The experiment as a file, defaults included."""
        return toml.write({key: value for key, value in dump_all(self).items() if value not in ([], {})})

    def without_log(self) -> Self:
        """A copy that nothing follows: what runs are told apart by."""
        return self.model_copy(update={"log": Log()})

    @property
    def source(self) -> str:
        """The file that it came from, for error messages."""
        return self._source

    @field_validator("name")
    @classmethod
    def _folder_name(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError("use letters, digits, '.', '_' and '-': folders are named after it")
        return name

    @field_validator("algorithm", mode="before")
    @classmethod
    def _named(cls, algorithm: object) -> object:
        if isinstance(algorithm, Runnable):
            raise ValueError("a rule made in Python; leave it out, and write potluck.run(e, algorithm=rule)")
        return algorithm

    @field_validator("layers", mode="before")
    @classmethod
    def _known_layers(cls, names: object) -> object:
        if isinstance(names, dict):
            raise ValueError(
                "a list of names, such as ['users', 'cohorts']; their settings are in [layer.NAME]"
            )
        return sort_layers(names) if isinstance(names, list) and all(map(_is_text, names)) else names

    @field_validator("layer")
    @classmethod
    def _known_layer_tables(cls, tables: Parameters) -> Parameters:
        for name in tables:
            check_layer(name, f"layer.{name}")
        return tables

    @field_validator("compare", mode="before")
    @classmethod
    def _known_algorithms(cls, entries: object) -> object:
        return [check_entry(entry) for entry in entries] if isinstance(entries, list) else entries

    @field_validator("algorithms")
    @classmethod
    def _known_tables(cls, tables: Parameters) -> Parameters:
        return {name_algorithm(name, f"[algorithms.{name}]"): table for name, table in tables.items()}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _with_options(table: T, source: Callable[..., object]) -> T:
    """A table with the defaults of the source that it names."""
    missing = {
        name: list(p.default) if isinstance(p.default, tuple) else p.default
        for name, p in inspect.signature(source).parameters.items()
        if p.default is not p.empty and getattr(table, name, 0) is None
    }
    return table.model_copy(update=missing)
