"""How many anomalous models are shown, and how they are weighed (Figures 10 and 11).

`potluck study maverick_odd --scale paper` takes Fashion-MNIST and 30 runs of 40 rounds at a rate of 0.1.
The personal term is off: at the paper's weight it decides everything, and what the other does isn't seen.
"""

from _maverick import POISON, PRECISION, QUICK, QUICK_POISON, RECALL, SHORT, TABLE, VIEWS, fededge, maverick

from potluck.experiment.study import Scale, Study, overlay

STUDY = Study(
    title="Maverick: the anomalous models that devices are shown",
    question="3 of 10 poisoned; only the anomalous term, with mu_a 1. Devices are shown up to 3 models "
    "that their edge judged odd, weighed by distance or alike; or all of the worst that there may be, odd or "
    "not.",
    arms=[
        fededge(),
        maverick("3, by distance", mu_p=0.0),
        maverick("3, alike", mu_p=0.0, alike=True),
        maverick("2, by distance", mu_p=0.0, top=2),
        maverick("1", mu_p=0.0, top=1),
        maverick("3, the worst odd", mu_p=0.0, robust={"kind": "AdaptiveKrum", "mode": "fixed_f"}),
    ],
    measures=(*VIEWS, PRECISION, RECALL),
    quick=Scale(overlay(QUICK, QUICK_POISON), seeds=(1,)),
    paper=Scale(overlay(TABLE, SHORT, POISON), seeds=(1, 2, 3, 4, 5)),
)
