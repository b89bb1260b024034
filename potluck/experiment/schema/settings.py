"""The tables of an experiment: every key, its type, its bounds and its default.

Tables are frozen and refuse keys that they don't know. What depends on other keys (how many clients, when to
evaluate) stays unset here; `Experiment.resolve` writes it out.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from potluck.core.errors import nearest
from potluck.data import PARTITIONS, list_stocks
from potluck.data import SOURCES as DATA_SOURCES

_RECORDED: ContextVar[bool] = ContextVar("recorded", default=False)
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


class Table(BaseModel):
    """One table of an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Groups(Table):
    """[data.groups]: hidden groups of clients, each of which sees the data in its own way."""

    kind: Literal["rotation", "permutation", "affine"]  # of images, of labels, of features
    count: Annotated[int, Field(ge=2)]  # of groups
    degrees: float | None = None  # of rotation, from one group to the next; even turns unless said


class Flip(Table):
    """[data.flip]: devices whose training labels are wrong; what they are tested on stays right."""

    share: Annotated[float, Field(gt=0, le=1)]  # of the devices
    kind: Literal["random", "next"] = "random"  # another class by chance for each row, or the next class


class Change(Table):
    """[[data.changes]]: what happens to the data of some clients in mid-run."""

    at: Positive  # virtual seconds
    kind: Literal["labels", "rotation"]  # rows are dealt anew, or images are turned
    degrees: float | None = None  # of rotation, counter-clockwise
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the clients; of users, where there are some

    @model_validator(mode="after")
    def _turns(self) -> Self:
        if self.kind == "rotation" and not (self.degrees or 0) % 360:
            raise ValueError(f"degrees = {self.degrees}: say how far images are turned, such as 90")
        if self.kind == "labels" and self.degrees is not None:
            raise ValueError(f"degrees = {self.degrees}: is of kind = 'rotation'; leave it out for 'labels'")
        return self


class Data(Table):
    """What there is to learn from, and who holds it."""

    source: str = "digits"  # of the rows
    root: str | None = None  # folder of the files; else $POTLUCK_DATA, ./data, here and the user's cache
    path: str | None = None  # of npz and idx
    limit: Count | None = None  # at most so many rows, beside the test set and users who validate
    without: Annotated[int, Field(ge=0)] | None = None  # a class that is in the global test set only
    rows: Count | None = None  # of synthetic
    dimension: Count | None = None  # of synthetic: numbers of a row
    classes: Count | None = None  # of synthetic: 10; of npz and idx: as many as the labels say
    normalise: bool | None = None  # of npz: features to mean 0 and deviation 1
    length: Count | None = None  # of shakespeare: characters of a row
    stride: Count | None = None  # of shakespeare: characters from one row to the next
    coarse: bool | None = None  # of cifar-100: 20 classes instead of 100
    partition: str = "dirichlet"  # how rows are dealt to clients
    clients: Count | None = None  # 20; by_user, split_users: everybody; user_devices: all their devices
    alpha: Positive = 0.5  # of dirichlet and user_devices
    classes_per_client: Count | None = None  # of shards and procedural
    law: Literal["lognormal", "powerlaw"] = "lognormal"  # of quantity: how many rows clients hold
    skew: Annotated[float, Field(ge=0, le=10)] = 1.0  # of quantity: deviation of log sizes, or exponent
    rows_per_client: Count = 28  # of split_users, about
    users: Count | None = None  # of user_devices; all there are, where the data know users
    devices_per_user: list[int] = Field(default=[2, 6])  # of user_devices: fewest and most
    smallest: Annotated[int, Field(ge=3)] = 5  # rows of a client
    largest: Count = 50  # of procedural
    validation: Share = 0.1  # share of a client's rows, or of the users
    # Whose validation rows are: the client's own, or users' on whose rows nobody trains, in even shares.
    validation_from: Literal["rows", "users"] = "rows"
    test: Share = 0.2  # share of a client's rows
    server: Share | None = None  # share of the rows that the server has for itself, and no client
    server_from: str | None = None  # what they are made of: data (as they are), noise, or another source
    groups: Groups | None = None
    shift: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of test rows whose classes aren't trained on
    changes: list[Change] = Field(default=[])  # by time
    flip: Flip | None = None

    @field_validator("source")
    @classmethod
    def _known_source(cls, name: str) -> str:
        return _known("source", name, DATA_SOURCES)

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, name: str) -> str:
        return _known("partition", name, PARTITIONS)

    @field_validator("server_from")
    @classmethod
    def _known_stock(cls, name: str | None) -> str | None:
        return name if name is None else _known("stock", name, list_stocks())

    @model_validator(mode="after")
    def _check_stock(self) -> Self:
        if self.server_from is not None and self.server is None:
            raise ValueError(
                f"server_from = {self.server_from!r}: the server has no rows; set server, such as 0.05"
            )
        if self.server_from == self.source:
            raise ValueError(
                f"server_from = {self.server_from!r}: is the source itself; 'data' sets its rows aside"
            )
        return self

    @model_validator(mode="after")
    def _rows_to_train(self) -> Self:
        if self.validation_from == "rows" and self.validation + self.test >= 1:
            raise ValueError(
                f"validation = {self.validation} and test = {self.test} leave no rows to train on; lower one"
            )
        return self


class Model(Table):
    """Which model is trained."""

    name: str = "mlp"  # one of the zoo, or one that was registered
    width: Positive = 1.0  # factor on layers' widths, of models that can
    depth: Positive = 1.0  # factor on the number of layers, of models that can


class Privacy(Table):
    """[train.privacy]: local differential privacy; devices clip their updates and add noise to them."""

    clip: Positive = 1.0  # the longest that a whole update may be (L2 norm)
    sigma: Positive = 0.6  # deviation of the noise on every number, in clips
    delta: Share = 1e-6  # chance for which the reported epsilon need not hold


class Training(Table):
    """What a device does with its rows."""

    lr: Positive | None = None  # 0.1; adam: 0.001
    batch: Count = 10  # rows of a step
    epochs: Count | None = None  # 1
    steps: Count | None = None  # a number of batches instead of epochs
    optimizer: Literal["sgd", "adam"] = "sgd"  # of local steps; anew in every task
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of sgd
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # of sgd
    privacy: Privacy | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs = {self.epochs} and steps = {self.steps}: give one of them")
        if self.optimizer == "adam" and (self.momentum or self.weight_decay):
            raise ValueError("momentum and weight_decay are of optimizer = 'sgd'; leave them out for 'adam'")
        return self


class Stop(Table):
    """When a run ends: at the first of these."""

    rounds: Count | None = None  # as the algorithm counts them
    seconds: Positive | None = None  # on the virtual clock
    device_seconds: Positive | None = None  # of all devices' work together
    target: Share | None = None  # mean accuracy over devices

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not any((self.rounds, self.seconds, self.device_seconds)):
            raise ValueError("give rounds, seconds or device_seconds (a target alone may never be reached)")
        return self


class Evaluation(Table):
    """When models are evaluated, and on how many devices."""

    rounds: Count | None = None  # every so many; unless told, 20 times a run
    seconds: Positive | None = None  # every so many, on the virtual clock
    panel: Count = 200  # devices; all of them where there are fewer
    on: Literal["test", "validation"] = "test"  # devices' rows; on validation, no test row is touched
    target: Share | None = None  # time to this accuracy is reported; the run goes on
    # At the end also at these shares of shift, whatever data.shift is; not on validation rows.
    shifts: list[Annotated[float, Field(ge=0, le=1)]] = Field(default=[])

    @field_validator("shifts")
    @classmethod
    def _once(cls, shares: list[float]) -> list[float]:
        if len(set(shares)) < len(shares):
            raise ValueError("name each share once")
        return shares


class Tune(Table):
    """Which learning rates are tried, the same ones for every algorithm."""

    lr: Annotated[list[Positive], Field(min_length=1)] = Field(default=[0.01, 0.03, 0.1, 0.3])  # the grid
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[])  # the first of the experiment's
    length: Annotated[float, Field(gt=0, le=1)] = 1.0  # of a trial, as a share of a whole run

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for key, values in (("lr", self.lr), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ValueError(f"{key} = {values}: name each once")
        return self


class Execution(Table):
    """How a run is computed."""

    executor: Literal["auto", "loop", "workers", "stacked"] = "auto"  # auto: what measures fastest here
    device: Literal["cpu", "cuda"] = "cpu"  # cuda: rows and models on a GPU, with loop or stacked
    workers: Count | None = None  # processes: at most one a core, unless told
    chunk: Count | None = None  # clients in one stack; as many as fit into a share of free memory
    graphs: bool | None = None  # stacks' steps captured and replayed; what is faster, unless told
    dtype: Literal["float32", "float64"] = "float32"  # of rows and models
    snapshot_every: Positive = 30.0  # seconds of real time


def dump_given(table: Table) -> dict[str, Any]:
    """What was said, without defaults; nested tables as dicts that may be changed."""
    return {
        name: _dump_value(getattr(table, name), dump_given)
        for name in type(table).model_fields
        if name in table.model_fields_set
    }


def dump_all(table: Table) -> dict[str, Any]:
    """What was said and all defaults, but for tables and lists that are empty."""
    found = {name: _dump_value(getattr(table, name), dump_all) for name in type(table).model_fields}
    return {name: value for name, value in found.items() if value not in ([], {})}


def _dump_value(value: Any, how: Any) -> Any:
    if isinstance(value, Table):
        return how(value)
    if isinstance(value, dict):  # not by pydantic, which would take parts made in Python to pieces
        return {key: _dump_value(inner, how) for key, inner in value.items()}
    return [_dump_value(inner, how) for inner in value] if isinstance(value, list) else value


@contextmanager
def as_recorded(recorded: bool = True) -> Iterator[None]:
    """Within, names of algorithms, sources and partitions count as known: they were when written down."""
    before = _RECORDED.set(recorded)
    try:
        yield
    finally:
        _RECORDED.reset(before)


def is_recorded() -> bool:
    """Whether names are taken as they are."""
    return _RECORDED.get()


def _known(noun: str, name: str, among: Iterable[str]) -> str:
    if not is_recorded() and name not in among:
        raise ValueError(f"no such {noun}; {nearest(name, list(among))}")
    return name
