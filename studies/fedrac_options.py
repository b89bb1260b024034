"""Fed-RAC's options that no study has tried, one by one: does any of them do anything?

`potluck study fedrac_options --scale paper` takes UCI HAR and 18 runs of about 15 s of one core, 3 minutes
with `--jobs 2`; with the arms that are deleted now it was 36.

The design, written down before the first run:
- Fed-RAC as published on the 40 phones with a quarter of HAR's rows, where there is something to learn from a
  teacher, IID and Dirichlet(0.5); labels at 0.5 and temperature 1, since followers lose by the authors' (see
  fedrac_teach). Adam at 0.01, 40 rounds, seeds 1, 2 and 3; nothing is tuned.
- One arm for each: hints of features at 0.5, tiers in a chain, followers that begin at half of the leader's
  rounds, half of the leader's members, and learning rates by the leader's confidence.
- An option shows something if the mean over phones, or the smallest tier, is better by 0.5 point in one of
  the two crowds and by more than its paired standard error. One that shows nothing in either is deleted.
- The paper's rounds by a goal of precision aren't tried: they follow from constants that nobody can measure.

What came of it: a chain and a head start show something (Dirichlet: 5.4 and 2.5 points over all phones, by
more than their standard errors). Hints of features, half of the leader's members and rates by its confidence
show nothing in either crowd and are deleted, by the rule above; the study with all arms can be run at commit
60846a8.
"""

from _fedrac import HAR, QUARTER, QUICK, SERVED, SMALLEST, UNEVEN, fedrac

from potluck.experiment.study import Arm, Scale, Study, overlay

ROUNDS = 40
HEEDED = {"a": 0.5, "temperature": 1.0}


def alter(name: str, **schedule: float) -> Arm:
    """Fed-RAC as published but for this."""
    return fedrac(name, distillation=HEEDED, schedule=schedule)


STUDY = Study(
    title="Fed-RAC: options one by one",
    question="What do a chain and a head start change?",
    arms=[
        alter("as it is"),
        alter("chained", chained=True),
        alter("head start of half", head_start=ROUNDS // 2),
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
