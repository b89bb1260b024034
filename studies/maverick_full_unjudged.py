"""Maverick's Table 1 at its full size, poisoned, without a judge.

`potluck study maverick_full_unjudged --scale paper --set run.device=cuda` takes Fashion-MNIST, a GPU and
36 runs of a minute or two.
"""

from _maverick import full
from maverick_unjudged import STUDY as SMALLER

STUDY = full(
    SMALLER,
    title="Maverick at full size: poisoned, without a judge",
    question="All 60,000 images. 3 of every 10 devices send crafted updates (Fang et al.), and "
    "everybody is let through.",
)
