"""The [tune] table of an experiment: what every algorithm may try before it is compared."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from potluck.core.errors import show_short
from potluck.core.ranges import Few, Portion, Seed
from potluck.experiment.schema.settings import name_algorithm
from potluck.experiment.schema.table import Table
from potluck.experiment.search import Value

RATES = [0.01, 0.03, 0.1, 0.3]


class Tune(Table):
    """Which settings are tried: as many trials for every algorithm, judged on validation rows."""

    trials: Annotated[Few, "how many settings every algorithm may try, each with every seed"] = 6
    seeds: Annotated[
        list[Seed], "the seeds that each trial runs with; unless told, two that no result is of"
    ] = Field(default=[])
    length: Annotated[Portion, "how long a trial is, as a share of a whole run"] = 1.0
    refine: Annotated[
        Annotated[int, Field(ge=0, le=1000)] | None,
        "how many trials are kept for settings around the best so far, beyond an end of the grid "
        "or between its values; unless told, a third; 0: the grid alone",
    ] = None
    shifts: Annotated[
        bool,
        "whether trials are judged by the mean over evaluate.shifts, rehearsed with other "
        "devices' validation rows",
    ] = False
    grid: Annotated[
        dict[str, Any],
        "lists of values by key, as in [algorithms.NAME] (train.lr, clients), for all algorithms "
        "that have the key",
    ] = Field(default={"train": {"lr": RATES}})
    own: Annotated[
        dict[str, dict[str, Any]],
        "[tune.own.NAME]: lists for one algorithm alone, in place of the grid's or beside them",
    ] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, table: object) -> object:
        if isinstance(table, dict) and "lr" in table:
            fix = "is a key of the grid; write [tune.grid] train.lr = [...]"
            raise ValueError(f"lr = {show_short(table['lr'])}: {fix}")
        return table

    @field_validator("grid")
    @classmethod
    def _lists(cls, grid: dict[str, Any]) -> dict[str, Any]:
        flatten(grid)
        return grid

    @field_validator("own")
    @classmethod
    def _known(cls, own: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, grid in own.items():
            try:
                flatten(grid)
            except ValueError as error:
                raise ValueError(f"{name}.{error}") from None
        return {name_algorithm(name, name): grid for name, grid in own.items()}

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds = {show_short(self.seeds)}: name each once")
        return self


def flatten(grid: Mapping[str, Any]) -> dict[str, list[Value]]:
    """Tables of lists by dotted key: `train.lr = [0.1, 0.3]`; numbers rise, and are all whole or none."""
    found: dict[str, list[Value]] = {}
    for key, values in _list_leaves(grid, ""):
        if key in found:
            raise ValueError(f"{key}: is there twice")
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"{key} = {show_short(values)}: write a list of values to try, such as [0.1, 0.3]"
            )
        if not all(map(_is_value, values)):
            raise ValueError(
                f"{key} = {show_short(values)}: values are numbers, texts, true, false, or lists"
            )
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ValueError(f"{key} = {show_short(values)}: name each once")
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if numbers and any(isinstance(value, float) for value in values):
            values = [float(value) for value in values]
        found[key] = sorted(values) if numbers else values
    return found


def nest(grid: Mapping[str, object]) -> dict[str, Any]:
    """The same as tables, as a file has them."""
    tables: dict[str, Any] = {}
    for key, values in grid.items():
        *path, last = key.split(".")
        at = tables
        for part in path:
            at = at.setdefault(part, {})
        at[last] = values
    return tables


def _list_leaves(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _list_leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _is_value(value: object) -> bool:
    plain = bool | int | float | str
    return isinstance(value, plain) or (
        isinstance(value, list) and all(isinstance(inner, plain) for inner in value)
    )
