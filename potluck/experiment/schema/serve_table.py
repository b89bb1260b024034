"""The [serve] table of an experiment: how what was trained is used."""

from typing import Annotated

from potluck.experiment.schema.table import Table
from potluck.jobs.prior import ServedForm


class Serve(Table):
    """How what was trained is used, whatever the algorithm."""

    prior: Annotated[
        bool,
        "Each view also with devices' own priors, as VIEW+prior, and these lead: how common classes are "
        "among the rows that a device meets, read without their labels, or trains on; fitted on validation "
        "rows.",
    ] = False
    form: Annotated[
        ServedForm,
        "Which of them leads: each row by those before it (causal), by all rows before any is answered "
        "(batch), or by the labels of the rows that the device trains on (labels).",
    ] = "causal"
