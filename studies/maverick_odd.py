"""How many anomalous models are shown, and how they are weighed (Figures 10 and 11).

`potluck study maverick_odd --scale paper` takes Fashion-MNIST and 18 runs of 40 rounds
at a rate of 0.1.
"""

from _maverick import POISON, PRECISION, QUICK, QUICK_POISON, RECALL, SHORT, TABLE, VIEWS, fededge, maverick

from potluck.experiment.study import Scale, Study, laid_over

STUDY = Study(
    title="Maverick: the anomalous models that devices are shown",
    question="3 of 10 poisoned. Devices are shown 0 to 3 of the models that their edge judged odd, weighed "
    "by distance or alike; or all of the worst that there may be, odd or not.",
    arms=[
        fededge(),
        maverick("3, by distance"),
        maverick("3, alike", alike=True),
        maverick("1", top=1),
        maverick("none", top=0),
        maverick("3, all of the worst odd", robust={"kind": "AdaptiveKrum", "mode": "fixed_f"}),
    ],
    measures=(*VIEWS, PRECISION, RECALL),
    quick=Scale(laid_over(QUICK, QUICK_POISON), seeds=(1,)),
    paper=Scale(laid_over(TABLE, SHORT, POISON), seeds=(1, 2, 3)),
)
