"""The tables of an experiment: every key, its type, its bounds and its default.

Tables are frozen and refuse keys that they don't know. What depends on other keys (how many clients, when to
evaluate) stays unset here; `Experiment.resolved` writes it out.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from potluck.data import KINDS
from potluck.data import SOURCES as DATA_SOURCES
from potluck.errors import nearest
from potluck.fleet.sources import SOURCES as FLEET_SOURCES

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Table(BaseModel):
    """One table of an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(Table):
    """What there is to learn from, and who holds it."""

    source: str = "digits"
    root: str | None = None  # folder of the files; else $POTLUCK_DATA, ./data and here
    path: str | None = None  # of npz and idx
    limit: Count | None = None  # at most so many rows, beside the test set
    rows: Count | None = None  # of synthetic
    dimension: Count | None = None
    classes: Count | None = None
    normalise: bool | None = None
    partition: str = "dirichlet"
    clients: Count | None = None  # 20; by_user: everybody
    alpha: Positive = 0.5  # of dirichlet
    classes_per_client: Count | None = None  # of shards and procedural
    smallest: Annotated[int, Field(ge=3)] = 5  # rows of a client
    largest: Count = 50  # of procedural
    validation: Share = 0.1  # share of a client's rows
    test: Share = 0.2
    server: Share | None = None  # share of the rows that the server has for itself, and no client

    @field_validator("source")
    @classmethod
    def _known_source(cls, name: str) -> str:
        return _known("source", name, DATA_SOURCES)

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, name: str) -> str:
        return _known("partition", name, KINDS)

    @model_validator(mode="after")
    def _rows_to_train(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation = {self.validation} and test = {self.test} leave no rows to train on; lower one"
            )
        return self


class Model(Table):
    """Which model is trained."""

    name: str = "mlp"
    width: Positive = 1.0
    depth: Positive = 1.0


class Devices(Table):
    """How fast devices and links are, and when they are there."""

    source: str = "mobile"
    compute: Positive | None = None  # ms per sample; mobile: the median
    compute_spread: float | None = None  # slowest over fastest
    down: Positive | None = None  # bits per second; mobile: the median
    up: Positive | None = None
    up_share: Positive | None = None  # of down
    link_spread: float | None = None
    latency: float | list[float] | None = None  # seconds; mobile: between two ends
    memory: float | list[float] | None = None  # bytes; mobile: between two ends
    users: Count | None = None
    edges: Count | None = None
    availability: Literal["always", "on_off"] = "always"
    period: Positive = 86_400.0  # seconds, of on_off
    share: Annotated[float, Field(gt=0, le=1)] = 0.5  # mean share of time online, of on_off

    @field_validator("source")
    @classmethod
    def _known_source(cls, name: str) -> str:
        return _known("source", name, FLEET_SOURCES)


class Training(Table):
    """What a device does with its rows."""

    lr: Positive | None = None  # 0.1; adam: 0.001
    batch: Count = 10
    epochs: Count | None = None  # 1
    steps: Count | None = None  # a number of batches instead of epochs
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs = {self.epochs} and steps = {self.steps}: give one of them")
        if self.optimizer == "adam" and (self.momentum or self.weight_decay):
            raise ValueError("momentum and weight_decay are of optimizer = 'sgd'; leave them out for 'adam'")
        return self


class Stop(Table):
    """When a run ends: at the first of these."""

    rounds: Count | None = None
    seconds: Positive | None = None  # on the virtual clock
    device_seconds: Positive | None = None
    target: Share | None = None  # mean accuracy over devices

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not any((self.rounds, self.seconds, self.device_seconds)):
            raise ValueError("give rounds, seconds or device_seconds (a target alone may never be reached)")
        return self


class Evaluation(Table):
    """When models are evaluated, and on how many devices."""

    rounds: Count | None = None
    seconds: Positive | None = None
    panel: Count = 200  # devices; all of them where there are fewer
    target: Share | None = None  # time to this accuracy is reported; the run goes on


class Execution(Table):
    """How a run is computed."""

    executor: Literal["auto", "loop", "workers", "stacked"] = "auto"
    workers: Count | None = None  # one a core
    chunk: Count = 64  # clients in one stack
    dtype: Literal["float32", "float64"] = "float32"
    snapshot_every: Positive = 30.0  # seconds of real time


def given(table: Table) -> dict[str, Any]:
    """What was said, without defaults; nested tables as dicts that may be changed."""
    return {
        name: _opened(getattr(table, name), given)
        for name in type(table).model_fields
        if name in table.model_fields_set
    }


def every(table: Table) -> dict[str, Any]:
    """What was said and all defaults."""
    return {name: _opened(getattr(table, name), every) for name in type(table).model_fields}


def _opened(value: Any, how: Any) -> Any:
    if isinstance(value, Table):
        return how(value)
    if isinstance(value, dict):  # not by pydantic, which would take parts made in Python to pieces
        return {key: _opened(inner, how) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value


def _known(noun: str, name: str, among: Iterable[str]) -> str:
    if name not in among:
        raise ValueError(f"no such {noun}; {nearest(name, list(among))}")
    return name
