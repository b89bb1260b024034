"""Maverick's Table 1 under every view, poisoned or honest, judged or not; and the same at its full size.

`potluck study maverick --scale paper`, or `maverick_honest` and so on, takes Fashion-MNIST and 36 runs. Those
of `maverick_full` and its like have all 60,000 images: with `--set run.device=cuda` a run takes a minute or
two, on one core half an hour.
"""

from _maverick import (
    EFFORT,
    JUDGED,
    POISON,
    PRECISION,
    QUICK,
    QUICK_POISON,
    RECALL,
    SOON,
    TABLE,
    TRUSTED,
    VIEWS,
    among,
    columns,
    full,
)
from _tuning import try_rates

from potluck.experiment.study import TRAFFIC, Scale, Study, overlay

STUDY = Study(
    title="Maverick: the paper's six systems under three views, poisoned and judged",
    question="3 of every 10 devices send crafted updates (Fang et al.), and all six let Adaptive-Krum judge. "
    "Is Maverick ahead when every system is looked at under the same view?",
    arms=columns(),
    measures=(*VIEWS, SOON, PRECISION, RECALL, EFFORT, TRAFFIC),
    quick=Scale(overlay(QUICK, QUICK_POISON, JUDGED), seeds=(1,)),
    paper=Scale(
        overlay(TABLE, POISON, JUDGED),
        seeds=(1, 2, 3),
        tune=try_rates([0.03, 0.1, 0.3], 0.5),
    ),
)

HONEST = among(
    STUDY,
    title="Maverick: the paper's six systems among honest devices",
    question="Nobody poisons, and no edge judges: what do local rounds and the contrast do alone?",
    quick=TRUSTED,
    paper=TRUSTED,
)
HONEST_JUDGED = among(
    STUDY,
    title="Maverick: honest devices, judged",
    question="Nobody poisons, but every edge judges by Adaptive-Krum: what does a needless judge cost?",
    quick=JUDGED,
    paper=JUDGED,
)
UNJUDGED = among(
    STUDY,
    title="Maverick: poisoned, without a judge",
    question="3 of every 10 devices send crafted updates (Fang et al.), and everybody is let through.",
    quick=overlay(QUICK_POISON, TRUSTED),
    paper=overlay(POISON, TRUSTED),
)

STUDIES = {
    "honest": HONEST,
    "judged": HONEST_JUDGED,
    "unjudged": UNJUDGED,
    "full": full(
        STUDY,
        title="Maverick: the paper's six systems at their full size",
        question="All 60,000 images, 1,200 a device. 3 of every 10 devices send crafted updates (Fang), and "
        "all six let Adaptive-Krum judge. The paper prints 85.9 % for Maverick and 80.7 % for FedEdge "
        "without saying whose models were looked at; here every system is seen under the same three views.",
    ),
    "full_honest": full(
        HONEST,
        title="Maverick at full size: honest devices, no judge",
        question="All 60,000 images. Nobody poisons, and no edge judges.",
    ),
    "full_judged": full(
        HONEST_JUDGED,
        title="Maverick at full size: honest devices, judged",
        question="All 60,000 images. Nobody poisons, but every edge judges by Adaptive-Krum.",
    ),
    "full_unjudged": full(
        UNJUDGED,
        title="Maverick at full size: poisoned, without a judge",
        question="All 60,000 images. 3 of every 10 devices send crafted updates (Fang et al.), and "
        "everybody is let through.",
    ),
}
