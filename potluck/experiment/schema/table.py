"""What all tables of an experiment have in common."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """One table of an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
