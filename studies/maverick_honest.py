"""The six systems of Maverick's Table 1 among honest devices, without a judge.

`potluck study maverick_honest --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import TRUSTED, among
from maverick import STUDY as POISONED

STUDY = among(
    POISONED,
    title="Maverick: the paper's six systems among honest devices",
    question="Nobody poisons, and no edge judges: what do local rounds and the contrast do alone?",
    quick=TRUSTED,
    paper=TRUSTED,
)
