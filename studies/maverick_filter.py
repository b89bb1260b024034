"""The same six with honest devices, and poisoned without a judge.

`potluck study maverick_filter --scale paper` takes Fashion-MNIST and 36 runs of 40 rounds
at a rate of 0.1.
"""

from _maverick import POISON, QUICK, SHORT, TABLE, VIEWS, columns

from potluck.experiment.study import Scale, Study, laid_over

JUDGED = {"robust": {"kind": "adaptive_krum"}}
TRUSTED = {"robust": {"kind": "adaptive_krum", "attackers": 0}}  # everybody is let through

STUDY = Study(
    title="Maverick: with and without poison, with and without a judge",
    question="Honest devices without a judge, honest devices with one, and 3 of 10 poisoned without one.",
    arms=columns(),
    scenarios={
        "honest, no judge": TRUSTED,
        "honest, judged": JUDGED,
        "poisoned, no judge": {**TRUSTED, **POISON},
    },
    measures=VIEWS,
    quick=Scale(QUICK, seeds=(1,), scenarios=("honest, no judge", "honest, judged")),
    paper=Scale(laid_over(TABLE, SHORT), seeds=(1, 2)),
)
