"""30 % of the devices attack harder: flipped signs three times as long, and crafted updates.

`potluck study robust_strong --scale paper` takes Fashion-MNIST and 32 runs, all at one rate.
"""

from _robust import ARMS, MEASURES, QUICK, TABLE, attacked

from potluck.experiment.study import Scale, Study

STUDY = Study(
    title="Robust aggregation: 30 % strong attackers",
    question="The same crowd; attackers flip signs and triple the length, or send what Fang et al. craft.",
    arms=ARMS,
    scenarios={"sign flip x 3": attacked("sign_flip", scale=3.0), "Fang": attacked("fang")},
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2)),
)
