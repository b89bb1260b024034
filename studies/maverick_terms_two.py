"""Maverick's contrastive terms where devices know two classes.

`potluck study maverick_terms_two --scale paper` takes Fashion-MNIST and 36 runs.
"""

from dataclasses import replace

from maverick_terms import STUDY as EVENER

from potluck.experiment.study import laid_over

DEALT = {"data": {"partition": "shards", "classes_per_client": 2}}

STUDY = replace(
    EVENER,
    title="Maverick: what the contrastive terms do where devices know two classes",
    question="The same with two classes a device.",
    quick=replace(EVENER.quick, experiment=laid_over(EVENER.quick.experiment, DEALT)),
    paper=replace(EVENER.paper, experiment=laid_over(EVENER.paper.experiment, DEALT)),
)
