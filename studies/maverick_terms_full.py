"""Maverick's contrastive terms at the full size of its Table 1: all 60,000 images, 1,200 a device.

`potluck study maverick_terms_full --scale paper --set run.device=cuda` takes Fashion-MNIST, a GPU and 18 runs
of a minute or two, at 0.03: what both FedEdge and Maverick chose in `maverick_full`.
"""

from dataclasses import replace

from maverick_terms import STUDY as SMALLER

from potluck.experiment.study import laid_over

STUDY = replace(
    SMALLER,
    title="Maverick: what the contrastive terms do at the full size",
    question="All 60,000 images, labels by Dirichlet(0.5), 3 of 10 poisoned, every edge judging.",
    paper=replace(
        SMALLER.paper,
        experiment=laid_over(SMALLER.paper.experiment, {"data": {"limit": 60_000}, "train": {"lr": 0.03}}),
        tune=None,
    ),
)
