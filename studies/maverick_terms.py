"""Maverick's contrastive terms, over how labels are dealt (Figure 9 and Table 3).

`potluck study maverick_terms --scale paper` takes Fashion-MNIST and 36 runs of 40 rounds
at a rate of 0.1.
"""

from _maverick import POISON, QUICK, QUICK_POISON, SHORT, TABLE, VIEWS, fededge, maverick, partitions

from potluck.experiment.study import Scale, Study, laid_over

STUDY = Study(
    title="Maverick: what the contrastive terms do",
    question="FedEdge has none of them. With mu_p of the personal and mu_a of the anomalous term, 3 of 10 "
    "poisoned, every edge judging: does any of them help, under any view, however labels are dealt?",
    arms=[
        fededge(),
        maverick("mu_p 10, mu_a 1"),
        maverick("mu_p 1, mu_a 0.1", mu_p=1.0, mu_a=0.1),
        maverick("mu_p 0.1, mu_a 0.01", mu_p=0.1, mu_a=0.01),
        maverick("only personal (10, 0)", mu_a=0.0),
        maverick("only anomalous (0, 1)", mu_p=0.0),
    ],
    scenarios=partitions(),
    measures=VIEWS,
    quick=Scale(laid_over(QUICK, QUICK_POISON), seeds=(1,), scenarios=("Dirichlet(0.5)",)),
    paper=Scale(laid_over(TABLE, SHORT, POISON), seeds=(1, 2)),
)
