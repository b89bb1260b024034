"""Maverick's contrastive terms where labels differ more, all at one rate.

`potluck study maverick_terms_rates --scale paper` takes Fashion-MNIST and 6 runs at a rate of 0.1.
"""

from dataclasses import replace

from _maverick import fededge
from maverick_terms import FAINT
from maverick_terms_uneven import STUDY as TUNED

STUDY = replace(
    TUNED,
    title="Maverick: the terms, or the rate?",
    question="Labels by Dirichlet(0.1). FedEdge had chosen 0.03 by 0.2 points, and the arm that was ahead of "
    "it 0.1; here both train at 0.1.",
    arms=[fededge(), FAINT],
    paper=replace(TUNED.paper, tune=None),
)
