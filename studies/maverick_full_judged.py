"""Maverick's Table 1 at its full size, among honest devices that are judged all the same.

`potluck study maverick_full_judged --scale paper --set run.device=cuda` takes Fashion-MNIST, a GPU and
36 runs of a minute or two.
"""

from _maverick import full
from maverick_judged import STUDY as SMALLER

STUDY = full(
    SMALLER,
    title="Maverick at full size: honest devices, judged",
    question="All 60,000 images. Nobody poisons, but every edge judges by Adaptive-Krum.",
)
