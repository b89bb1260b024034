"""The [serve] table of an experiment: how what was trained is used."""

from typing import Annotated, Literal

from potluck.experiment.schema.table import Table


class Serve(Table):
    """How what was trained is used, whatever the algorithm."""

    prior: Annotated[
        bool,
        "Each view also with devices' own priors, as VIEW+prior, and these lead: how common classes are "
        "among the rows that a device meets, read without their labels; fitted on validation rows.",
    ] = False
    form: Annotated[
        Literal["causal", "batch"],
        "Which of the two leads: each row by those before it, or all rows before any is answered.",
    ] = "causal"
