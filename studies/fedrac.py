"""Fed-RAC beside FedAvg, HeteroFL, TiFL and SHARE on 40 phones (its Table VIII and Figure 3).

`potluck study fedrac --scale paper` takes UCI HAR and 36 runs of 20 to 60 s of one core, 12 minutes
with `--jobs 2`.
"""

from _fedrac import GRID, HAR, HAR_TIME, MEASURES, QUICK, QUICK_TIME, columns
from _fedrac_pages import headline

from potluck.experiment.study import Scale, Study, overlay

STUDY = Study(
    title="Fed-RAC: 40 phones, activities of people",
    question="All training must be done within MAR, 32 minutes. The full model is too slow or too big for 8 "
    "of the paper's 40 phones. How many take part, how good are the models, how long does it take?",
    arms=columns(small=0.0625, clouds=12),
    measures=MEASURES,
    page=headline((0.8, 0.85, 0.9)),
    notes="Performance is the paper's: the plain mean over tiers' models for Fed-RAC, the global model for "
    "others; the other mean is over devices, of the model that each is served. Both are on the test set, 9 "
    "people whom nobody has seen. Data are IID over the phones. Fed-RAC's rounds are the leader's and then "
    "the followers', 60 each. The paper has 40, 32, 36, 40 and 34 of 40 phones in training and 93.5, 89.9, "
    "90.8, 91.4 and 90.9 % for Fed-RAC, FedAvg, HeteroFL, TiFL and SHARE, and durations on one machine, "
    "which aren't these.",
    quick=Scale(overlay(QUICK, QUICK_TIME), seeds=(1,)),
    paper=Scale(overlay(HAR, HAR_TIME), seeds=(1, 2, 3), tune=GRID),
)
