"""Maverick's contrastive terms (Figure 9 and Table 3), over partitions, at the full size and at one rate.

`potluck study maverick_terms --scale paper` takes Fashion-MNIST and 36 runs, as do `maverick_terms_uneven`
and `_two`; `_rates` takes 6. `maverick_terms_full --set run.device=cuda` takes 18 of a minute or two on a
GPU, at 0.03: what both FedEdge and Maverick chose in `maverick_full`.
"""

from dataclasses import replace

from _maverick import POISON, QUICK, QUICK_POISON, TABLE, VIEWS, fededge, maverick, with_data
from _tuning import try_rates

from potluck.experiment.study import Scale, Study, overlay

FAINT = maverick("mu_p 0.1, mu_a 0.01", mu_p=0.1, mu_a=0.01)

STUDY = Study(
    title="Maverick: what the contrastive terms do",
    question="FedEdge has none of them. With mu_p of the personal and mu_a of the anomalous term, 3 of 10 "
    "poisoned, every edge judging: does any of them help, under any view?",
    arms=[
        fededge(),
        maverick("mu_p 10, mu_a 1"),
        maverick("only personal (10, 0)", mu_a=0.0),
        maverick("mu_p 1, mu_a 0.1", mu_p=1.0, mu_a=0.1),
        FAINT,
        maverick("only anomalous (0, 1)", mu_p=0.0),
    ],
    measures=VIEWS,
    quick=Scale(overlay(QUICK, QUICK_POISON), seeds=(1,)),
    paper=Scale(
        overlay(TABLE, POISON),
        seeds=(1, 2, 3),
        tune=try_rates([0.01, 0.03, 0.1], 0.5),  # lower than FedEdge's best: strong terms ask for it
    ),
)

UNEVEN = with_data(
    STUDY,
    title="Maverick: what the contrastive terms do where labels differ more",
    question="The same with labels dealt by Dirichlet(0.1).",
    data={"alpha": 0.1},
)

STUDIES = {
    "uneven": UNEVEN,
    "two": with_data(
        STUDY,
        title="Maverick: what the contrastive terms do where devices know two classes",
        question="The same with two classes a device.",
        data={"partition": "shards", "classes_per_client": 2},
    ),
    "rates": replace(
        UNEVEN,
        title="Maverick: the terms, or the rate?",
        question="Labels by Dirichlet(0.1). FedEdge had chosen 0.03 by 0.2 points, and the arm that was "
        "ahead of it 0.1; here both train at 0.1.",
        arms=[fededge(), FAINT],
        paper=replace(UNEVEN.paper, tune=None),
    ),
    "full": replace(
        STUDY,
        title="Maverick: what the contrastive terms do at the full size",
        question="All 60,000 images, labels by Dirichlet(0.5), 3 of 10 poisoned, every edge judging.",
        paper=replace(
            STUDY.paper,
            experiment=overlay(STUDY.paper.experiment, {"data": {"limit": 60_000}, "train": {"lr": 0.03}}),
            tune=None,
        ),
    ),
}
