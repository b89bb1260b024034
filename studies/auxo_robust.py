"""Devices that lose their memory and devices with wrong labels, as in the paper's Figure 11.

`potluck study auxo_robust --scale paper` takes MNIST with its writers and 20 runs.
"""

from _cohorts import AGREES, COHORTS, QUICK, TABLE, TURNS, auxo, plain

from potluck.experiment.study import ACCURACY, WORST, Scale, Study, overlay

STUDY = Study(
    title="Auxo: lost memories and flipped labels",
    question="Four hidden groups. At each task a share of the devices has lost all that it kept; or a share "
    "of the devices trains on labels drawn at random.",
    arms=[plain("no cohorts"), auxo("Auxo")],
    scenarios={
        "undisturbed": {},
        **{f"{share} % lost": {"fleet": {"forget": share / 100}} for share in (10, 20)},
        **{f"{share} % flip": {"data": {"flip": {"share": share / 100}}} for share in (5, 15)},
    },
    measures=(ACCURACY, WORST, *AGREES, COHORTS),
    quick=Scale(overlay(QUICK, TURNS["4 groups"]), seeds=(1,), scenarios=("20 % lost", "15 % flip")),
    paper=Scale(overlay(TABLE, TURNS["4 groups"]), seeds=(1, 2)),
)
