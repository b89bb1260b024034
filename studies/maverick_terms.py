"""Maverick's contrastive terms (Figure 9 and Table 3).

`potluck study maverick_terms --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import POISON, QUICK, QUICK_POISON, TABLE, VIEWS, fededge, maverick

from potluck.experiment.study import Scale, Study, laid_over

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
    quick=Scale(laid_over(QUICK, QUICK_POISON), seeds=(1,)),
    paper=Scale(
        laid_over(TABLE, POISON),
        seeds=(1, 2, 3),
        tune={"lr": [0.01, 0.03, 0.1], "length": 0.5},  # lower than FedEdge's best: strong terms ask for it
    ),
)
