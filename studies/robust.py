"""30 % of the devices flip the signs of their updates: every robust aggregation, around FedAvg.

`potluck study robust --scale paper` takes Fashion-MNIST and 32 runs, all at one rate.
"""

from _robust import ARMS, MEASURES, QUICK, TABLE, attacked

from potluck.experiment.study import Scale, Study

STUDY = Study(
    title="Robust aggregation: 30 % sign-flippers",
    question="FedAvg with 20 of 50 devices a round, labels dealt by Dirichlet(0.5). Whose mean survives "
    "flipped signs, and what does judging cost when nobody attacks?",
    arms=ARMS,
    scenarios={"honest": {}, "sign flip": attacked("sign_flip")},
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2)),
)
