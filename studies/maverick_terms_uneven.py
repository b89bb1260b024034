"""Maverick's contrastive terms where labels differ more.

`potluck study maverick_terms_uneven --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import with_data
from maverick_terms import STUDY as EVENER

STUDY = with_data(
    EVENER,
    title="Maverick: what the contrastive terms do where labels differ more",
    question="The same with labels dealt by Dirichlet(0.1).",
    data={"alpha": 0.1},
)
