"""The paper's own rewards, once a split is forced upon them: do devices find their cohorts?

A cohort is split once, into as many parts as there are groups, so that an index of 1 can be reached: with
more cohorts than groups a perfect refinement scores less (four cohorts of two groups: 0.5). Guesses about
cohorts never tried add up, replace each other, or aren't made at all (rewards of cohorts that were tried are
then all there is); a cohort's learning rate follows its share of clients, or stays. What counts is the Rand
index over devices ever seen, then that over the whole panel, then accuracy beside one model for all.

`potluck study auxo_faithful --scale paper` takes MNIST with its writers and 24 runs: two seeds, for want of
time, so that there are no intervals.
"""

from typing import Any

from _cohorts import MEASURES, QUICK, TABLE, TURNS, auxo, plain

from potluck.experiment.study import Arm, Scale, Study, overlay

GUESSES = {"guesses add up": "adds", "guesses replace": "sets", "no guesses": "told"}
SCALINGS = {"rate by share": 1.0, "one rate": 0.0}


def faithful(guesses: str, scaling: str) -> Arm:
    """The paper's rules; `told` without anything told leaves rewards of cohorts that were tried."""
    criterion = {"kind": "Faithful", "explore": GUESSES[guesses], "scaling": SCALINGS[scaling]}
    return auxo(f"{guesses}, {scaling}", criterion=criterion, force=(15,))


def split_into(count: int) -> dict[str, Any]:
    """As many groups as parts."""
    parts = {"algorithms": {"auxo": {"criterion": {"kind": "Faithful", "sides": count}}}}
    return overlay(TURNS[f"{count} groups"], parts)


STUDY = Study(
    title="Auxo: the paper's rewards after a forced split",
    question="The paper's criterion never fires here. If the crowd is split all the same, at round 15 and "
    "into as many cohorts as there are groups, do the paper's rewards lead devices to their cohorts? Does it "
    "matter whether guesses about cohorts never tried add up (the paper), replace each other or aren't made, "
    "and whether a cohort's learning rate follows its share of clients (the paper) or stays?",
    arms=[
        plain("no cohorts"),
        faithful("guesses add up", "rate by share"),
        faithful("guesses add up", "one rate"),
        faithful("guesses replace", "rate by share"),
        faithful("guesses replace", "one rate"),
        faithful("no guesses", "rate by share"),
    ],
    scenarios={f"{count} groups": split_into(count) for count in (2, 4)},
    measures=MEASURES,
    quick=Scale(overlay(QUICK, {"stop": {"rounds": 18}}), seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2)),
)
