"""The paper's own rewards, once a split is forced upon them: do devices find their cohorts?

`potluck study auxo_faithful --scale paper` takes MNIST with its writers and 12 runs.
"""

from _cohorts import MEASURES, QUICK, TABLE, TURNS, auxo, plain

from potluck.experiment.study import Scale, Study

SPLITS = {"force": (15, 25, 35)}  # one cohort each time: up to four

STUDY = Study(
    title="Auxo: the paper's rewards after a forced split",
    question="The paper's criterion never fires here. If a cohort is split in two all the same, at rounds "
    "15, 25 and 35, do the paper's rewards lead devices to their cohorts, and does it matter whether guesses "
    "about cohorts never tried add up (the paper) or replace each other?",
    arms=[
        plain("no cohorts"),
        auxo("guesses add up", mode="faithful", **SPLITS),
        auxo("guesses replace", mode={"kind": "Faithful", "explore": "sets"}, **SPLITS),
    ],
    scenarios={name: TURNS[name] for name in ("2 groups", "4 groups")},
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2)),
)
