"""The tables of an experiment: every key, its type, its bounds and its default.

Tables are frozen and refuse keys that they don't know. What depends on other keys (how many clients, when to
evaluate) stays unset here; `Experiment.resolve` writes it out.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from potluck import algorithms
from potluck.core.errors import ConfigError, nearest_or_own
from potluck.core.ranges import (
    Count,
    Few,
    LearningRate,
    Many,
    Momentum,
    Natural,
    Often,
    Positive,
    Seconds,
    Share,
)
from potluck.data import PARTITIONS, list_stocks
from potluck.data import SOURCES as DATA_SOURCES
from potluck.experiment.schema.data_tables import Change, Flip, Groups, Shift, ShiftLevel
from potluck.experiment.schema.own_options import check_options, find_options
from potluck.experiment.schema.table import Table
from potluck.models.registry import MOST

_RECORDED: ContextVar[bool] = ContextVar("recorded", default=False)
Width = Annotated[float, Field(gt=0, le=MOST["width"])]
Depth = Annotated[float, Field(gt=0, le=MOST["depth"])]
Noise = Annotated[float, Field(ge=1e-3, le=1e6)]  # as far as epsilon can be counted
Decay = Annotated[float, Field(ge=0, le=1000)]
Length = Annotated[float, Field(gt=0, le=1e6)]  # of a gradient


SOURCE_KEYS = ("path", "rows", "dimension", "classes", "normalise", "length", "stride", "coarse")


class Data(Table):
    """What there is to learn from, and who holds it."""

    source: Annotated[str, "where rows come from: a data source, see below"] = "digits"
    root: Annotated[
        str | None, "the folder of data files; else $POTLUCK_DATA, ./data, here and the user's cache"
    ] = None
    path: Annotated[str | None, "of npz and idx: the file, or the folder"] = None
    limit: Annotated[Count | None, "the most rows used, beside the test set and users who validate"] = None
    without: Annotated[Natural | None, "a class of the global test set that nobody trains on"] = None
    rows: Annotated[Count | None, "of synthetic: how many rows there are"] = None
    dimension: Annotated[Count | None, "of synthetic: how many numbers a row has"] = None
    classes: Annotated[Many | None, "of synthetic: 10; of npz and idx: as many as the labels say"] = None
    normalise: Annotated[bool | None, "of npz: features are scaled to mean 0 and deviation 1"] = None
    length: Annotated[Many | None, "of shakespeare: how many characters a row has"] = None
    stride: Annotated[Count | None, "of shakespeare: characters from one row's beginning to the next's"] = (
        None
    )
    coarse: Annotated[bool | None, "of cifar-100: 20 classes instead of 100"] = None
    partition: Annotated[str, "how rows are dealt to clients, see below"] = "dirichlet"
    clients: Annotated[
        Count | None, "devices: 20; by_user, split_users: everybody; user_devices: all their devices"
    ] = None
    alpha: Annotated[
        Positive, "of dirichlet and user_devices: evenness of labels; 0.1: few classes a device"
    ] = 0.5
    classes_per_client: Annotated[Count | None, "of shards and procedural: classes that a client holds"] = (
        None
    )
    law: Annotated[Literal["lognormal", "powerlaw"], "of quantity: how many rows clients hold"] = "lognormal"
    skew: Annotated[float, Field(ge=0, le=10), "of quantity: deviation of log sizes, or exponent"] = 1.0
    rows_per_client: Annotated[Count, "of split_users: about how many rows a client gets"] = 28
    users: Annotated[Count | None, "of user_devices: how many; all there are, where data know users"] = None
    devices_per_user: Annotated[list[Count], "of user_devices: fewest and most"] = Field(default=[2, 6])
    smallest: Annotated[int, Field(ge=3, le=1_000_000_000), "the fewest rows that a client may hold"] = 5
    largest: Annotated[Count, "of procedural: the most rows that a client holds"] = 50
    validation: Annotated[Share, "share of a client's rows to choose settings on; or of the users"] = 0.1
    validation_from: Annotated[
        Literal["rows", "users"],
        "whose rows settings are chosen on: rows: each client's own; users: those of users on "
        "whose rows nobody trains, in even shares",
    ] = "rows"
    test: Annotated[Share, "share of a client's rows that it is tested on"] = 0.2
    test_from: Annotated[
        Literal["rows", "users", "time"],
        "which rows are tested on: rows: drawn by chance; users: all rows of some users, as the "
        "global test set; time: the last rows of each user and of each client",
    ] = "rows"
    server: Annotated[Share | None, "share of the rows that the server has for itself, and no client"] = None
    server_from: Annotated[
        str | None,
        "what the server's rows are made of: data (rows that are set aside), noise, or another source",
    ] = None
    groups: Groups | None = None
    shift: Annotated[
        ShiftLevel,
        "share of test rows whose class the device doesn't train on; or a table with another kind of shift",
    ] = 0.0
    changes: Annotated[list[Change], "what happens to the data in mid-run"] = Field(default=[])
    flip: Flip | None = None

    # Other keys are options of a source or of a partition that was registered with them.
    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _own_options(cls, table: object) -> object:
        return check_options(table, cls.model_fields, is_recorded()) if isinstance(table, dict) else table

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

    def read(self, key: str) -> object:
        """A key of its own, or an option of its source or partition; None if nobody set it."""
        return dict(self).get(key)

    def with_option_defaults(self) -> Self:
        """With the defaults of the source's and the partition's options, as far as a file can hold them."""
        found = {name: option.default for name, option in find_options(dict(self)).items()}
        missing = {name: v for name, v in found.items() if v is not None and self.read(name) is None}
        return self.model_copy(update=missing)


class Model(Table):
    """Which model is trained."""

    name: Annotated[str, "which model: one of the zoo, see below, or one that you registered"] = "mlp"
    width: Annotated[Width, "factor on the widths of layers, of models that have it"] = 1.0
    depth: Annotated[Depth, "factor on the number of layers, of models that have it"] = 1.0


class Privacy(Table):
    """[train.privacy]: local differential privacy; devices clip their updates and add noise to them."""

    clip: Annotated[Noise, "the longest that a whole update may be (L2 norm); longer ones are cut"] = 1.0
    # Has no default: how much is needed follows from how often a device takes part.
    sigma: Annotated[
        Noise,
        "deviation of the noise on every number, in clips, such as 10: then a device's ten updates come to "
        "epsilon 2.9 at delta 1e-6; with 0.6 it would be 105, which protects nobody",
    ]
    delta: Annotated[Share, "chance for which the reported epsilon need not hold"] = 1e-6


class Training(Table):
    """What a device does with its rows."""

    lr: Annotated[LearningRate | None, "learning rate; 0.1, with adam 0.001"] = None
    batch: Annotated[Many, "how many rows a step of training takes"] = 10
    epochs: Annotated[
        Many | None, "how often a device goes over its rows in a task; 1, unless steps are given"
    ] = None
    steps: Annotated[Many | None, "how many steps a task has, instead of epochs"] = None
    optimizer: Annotated[
        Literal["sgd", "adam"], "how a device takes its steps; it begins anew in every task"
    ] = "sgd"
    momentum: Annotated[Momentum, "of sgd: how much of the last step is taken again"] = 0.0
    weight_decay: Annotated[Decay, "of sgd: how strongly weights are pulled to 0"] = 0.0
    clip: Annotated[
        Length | None, "the longest that a step's gradient may be (L2 norm); left out: as long as it is"
    ] = None
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

    rounds: Annotated[Count | None, "after so many rounds, as the algorithm counts them"] = None
    seconds: Annotated[Seconds | None, "after so many seconds on the virtual clock"] = None
    device_seconds: Annotated[Seconds | None, "when devices have worked so many seconds, all together"] = None
    target: Annotated[Share | None, "when the mean accuracy over devices is there"] = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not any((self.rounds, self.seconds, self.device_seconds)):
            raise ValueError("give rounds, seconds or device_seconds (a target alone may never be reached)")
        return self


class Evaluation(Table):
    """When models are evaluated, and on how many devices."""

    rounds: Annotated[Count | None, "every so many rounds; unless told, 20 times a run"] = None
    seconds: Annotated[Often | None, "every so many seconds on the virtual clock"] = None
    panel: Annotated[
        Count, "how many devices are evaluated, always the same ones; all, where there are fewer"
    ] = 200
    on: Annotated[
        Literal["test", "validation"], "on which of devices' rows; with validation no test row is touched"
    ] = "test"
    target: Annotated[Share | None, "a mean accuracy: the time until it is reported, and the run goes on"] = (
        None
    )
    shifts: Annotated[
        list[ShiftLevel],
        "shifts at which models are tested at the end too, whatever data.shift is; not with validation rows",
    ] = Field(default=[])

    @field_validator("shifts")
    @classmethod
    def _once(cls, shifts: list[float | Shift]) -> list[float | Shift]:
        if len(set(shifts)) < len(shifts):
            raise ValueError("name each shift once")
        return shifts


class Execution(Table):
    """How a run is computed."""

    executor: Annotated[
        Literal["auto", "loop", "workers", "stacked"],
        "how devices' training is computed: one by one (loop), in processes (workers), many in "
        "one (stacked), or by what measures fastest here (auto)",
    ] = "auto"
    device: Annotated[
        Literal["cpu", "cuda"], "where: with cuda, rows and models are on a GPU, with loop or stacked"
    ] = "cpu"
    workers: Annotated[Few | None, "how many processes; unless told, at most one for each core"] = None
    chunk: Annotated[
        Count | None,
        "how many clients one stack holds; unless told, as many as fit into a share of free memory",
    ] = None
    graphs: Annotated[
        bool | None, "whether steps of stacks are recorded and replayed; unless told, what is faster"
    ] = None
    dtype: Annotated[Literal["float32", "float64"], "how rows and models are stored"] = "float32"
    snapshot_every: Annotated[
        Positive, "seconds of real time between two snapshots, from which a run can go on"
    ] = 30.0


class Deploy(Table):
    """Of `potluck deploy`; no part of a simulated run."""

    start_with: Annotated[
        Count | None, "how many devices it waits for; unless told, all that the federation names"
    ] = None
    patience: Annotated[Positive, "how many seconds a device may be away before its work is given up"] = 60.0
    timeout: Annotated[Positive, "how many seconds a device that is there may take for one piece of work"] = (
        3600.0
    )
    largest: Annotated[Count, "how many bytes a device may send at once"] = 512 << 20


def dump_given(table: Table) -> dict[str, Any]:
    """What was said, without defaults; nested tables as dicts that may be changed."""
    return {name: _dump_value(value, dump_given) for name, value in table if name in table.model_fields_set}


def dump_all(table: Table) -> dict[str, Any]:
    """What was said and all defaults, but for tables and lists that are empty."""
    found = {name: _dump_value(value, dump_all) for name, value in table}
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


def name_algorithm(name: str, shown: str) -> str:
    """An algorithm as the registry spells it; `shown` is what an error calls it."""
    if is_recorded():
        return name
    try:
        return algorithms.canonical(name)
    except ConfigError as error:
        raise ValueError(f"{shown}: {str(error).partition(': ')[2]}") from None


def _known(noun: str, name: str, among: Iterable[str]) -> str:
    if not is_recorded() and name not in among:
        raise ValueError(f"no such {noun}; {nearest_or_own(name, list(among))}")
    return name
