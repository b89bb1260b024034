"""Fed-RAC's options that no study has tried, one by one: does any of them do anything?

`potluck study fedrac_options --scale paper` takes UCI HAR and 36 runs of about 15 s of one core, 5 minutes
with `--jobs 2`.

The design, written down before the first run:
- Fed-RAC as published on the 40 phones with a quarter of HAR's rows, where there is something to learn from a
  teacher, IID and Dirichlet(0.5); labels at 0.5 and temperature 1, since followers lose by the authors' (see
  fedrac_teach). Adam at 0.01, 40 rounds, seeds 1, 2 and 3; nothing is tuned.
- One arm for each: hints of features at 0.5, tiers in a chain, followers that begin at half of the leader's
  rounds, half of the leader's members, and learning rates by the leader's confidence.
- An option shows something if the mean over phones, or the smallest tier, is better by 0.5 point in one of
  the two crowds and by more than its paired standard error. One that shows nothing in either is deleted.
- The paper's rounds by a goal of precision aren't tried: they follow from constants that nobody can measure.
"""

from collections.abc import Mapping
from types import MappingProxyType

from _fedrac import HAR, QUARTER, QUICK, SERVED, SMALLEST, UNEVEN, fedrac

from potluck.experiment.study import Arm, Scale, Study, overlay

ROUNDS = 40
HEEDED = {"a": 0.5, "temperature": 1.0}


def alter(name: str, lesson: Mapping[str, float] = MappingProxyType({}), **schedule: float) -> Arm:
    """Fed-RAC as published but for this."""
    return fedrac(name, distillation={**HEEDED, **lesson}, schedule=schedule)


STUDY = Study(
    title="Fed-RAC: options one by one",
    question="What do hints, a chain, a head start, fewer leaders and confident rates change?",
    arms=[
        alter("as it is"),
        alter("hints", lesson={"hint": 0.5}),
        alter("chained", chained=True),
        alter("head start of half", head_start=ROUNDS // 2),
        alter("half of the leaders", competent=0.5),
        alter("confident rates", lesson={"confident_rate": True}),
    ],
    scenarios={"IID": {}, "Dirichlet 0.5": UNEVEN},
    measures=(SERVED, SMALLEST),
    quick=Scale(overlay(QUICK, {"algorithms": {"fedrac": {"rounds": 2}}}), seeds=(1,), scenarios=("IID",)),
    paper=Scale(
        overlay(
            HAR,
            QUARTER,
            {"run": {"executor": "stacked"}, "algorithms": {"fedrac": {"rounds": ROUNDS}}},
        ),
        seeds=(1, 2, 3),
    ),
)
