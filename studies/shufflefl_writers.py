"""ShuffleFL beside six others on digits of writers (its Table 3).

`potluck study shufflefl_writers --scale paper` takes MNIST with its writers and 35 runs of 40 to 90 s of
one core, a quarter of an hour with `--jobs 2`.
"""

from _shufflefl import MEASURES, QUICK, QUICK_SIZES, WRITERS, WRITERS_SIZES, columns, page
from _tuning import try_rates

from potluck.experiment.study import Scale, Study, overlay

STUDY = Study(
    title="ShuffleFL: digits of writers with several devices",
    question="50 writers with 2 to 5 devices each, tested on others. Devices of a writer may exchange rows "
    "before they train. Is that more accurate, and how much sooner is FedAvg's final accuracy reached? 35 "
    "devices train a round: those of 10 writers (ShuffleFL), the best or any 35 (Oort, FLAME, PyramidFL, "
    "FedAvg), or 7 below each of five edges (HierFL, FedGS).",
    arms=columns(),
    measures=MEASURES,
    page=page,
    notes="A target is reached when the mean of three evaluations, two rounds apart, is there. Rates are "
    "chosen by the mean accuracy of the first view on devices' validation rows; for HierFL that is the "
    "devices' own models.",
    quick=Scale(overlay(QUICK, QUICK_SIZES), seeds=(1,), arms=("FedAvg", "HierFL", "ShuffleFL")),
    paper=Scale(overlay(WRITERS, WRITERS_SIZES), seeds=(1, 2, 3), tune=try_rates([0.001, 0.003], 0.5)),
)
