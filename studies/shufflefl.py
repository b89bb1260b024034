"""ShuffleFL beside six others on activities of people (its Table 3).

`potluck study shufflefl --scale paper` takes UCI HAR and 35 runs of 40 to 90 s of one core, a quarter of an
hour with `--jobs 2`.
"""

from _shufflefl import GRID, HAR, HAR_SIZES, MEASURES, QUICK, QUICK_SIZES, columns, page

from potluck.experiment.study import Scale, Study, overlay

STUDY = Study(
    title="ShuffleFL: activities of people with several devices",
    question="21 people with 2 to 5 devices each, tested on 9 others. Devices of a person may exchange rows "
    "before they train. Is that more accurate, and how much sooner is FedAvg's final accuracy reached? 14 "
    "devices train a round: those of 4 people (ShuffleFL), the best or any 14 (Oort, FLAME, PyramidFL, "
    "FedAvg), or 7 below each of two edges (HierFL, FedGS).",
    arms=columns(),
    measures=MEASURES,
    page=page,
    notes="A target is reached when the mean of three evaluations is there. Rates are chosen by the mean "
    "accuracy of the first view on devices' validation rows; for HierFL that is the devices' own models.",
    quick=Scale(overlay(QUICK, QUICK_SIZES), seeds=(1,)),
    paper=Scale(overlay(HAR, HAR_SIZES), seeds=(1, 2, 3), tune=GRID),
)
