"""The [log] table of an experiment: which tools follow a run."""

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from potluck.experiment.schema.table import Table

Tool = Literal["tensorboard", "mlflow", "wandb", "csv"]
TOOLS: tuple[Tool, ...] = get_args(Tool)


class Log(Table):
    """What follows a run while it goes on; no part of the run, which may be resumed with another."""

    to: Annotated[
        list[Tool],
        "Tools that get settings and every evaluation; all but csv need `pip install potluck[NAME]`.",
    ] = Field(default=[])

    @field_validator("to")
    @classmethod
    def _once(cls, names: list[Tool]) -> list[Tool]:
        if len(set(names)) < len(names):
            raise ValueError("name each tool once")
        return names
