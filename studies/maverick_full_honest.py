"""Maverick's Table 1 at its full size, among honest devices, without a judge.

`potluck study maverick_full_honest --scale paper --set run.device=cuda` takes Fashion-MNIST, a GPU and
36 runs of a minute or two.
"""

from _maverick import full
from maverick_honest import STUDY as SMALLER

STUDY = full(
    SMALLER,
    title="Maverick at full size: honest devices, no judge",
    question="All 60,000 images. Nobody poisons, and no edge judges.",
)
