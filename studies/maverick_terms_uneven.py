"""Maverick's contrastive terms where labels differ more.

`potluck study maverick_terms_uneven --scale paper` takes Fashion-MNIST and 36 runs.
"""

from dataclasses import replace

from maverick_terms import STUDY as EVENER

from potluck.experiment.study import laid_over

DEALT = {"data": {"alpha": 0.1}}

STUDY = replace(
    EVENER,
    title="Maverick: what the contrastive terms do where labels differ more",
    question="The same with labels dealt by Dirichlet(0.1).",
    quick=replace(EVENER.quick, experiment=laid_over(EVENER.quick.experiment, DEALT)),
    paper=replace(EVENER.paper, experiment=laid_over(EVENER.paper.experiment, DEALT)),
)
