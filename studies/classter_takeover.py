"""Whether asynchronous ClassTer loses what its detectors knew when the distilled model takes over.

`potluck study classter_takeover --scale paper` takes Fashion-MNIST and 6 runs: about 40 minutes of one core.

The design, written down before the first run:

- Why: as published, accuracy at full shift passes 50 % within minutes and ends at 37 %, since the distilled
  model and the entropy rule answer from the first distillation on. Potluck's mode serves the detectors until
  devices find the general model to be the better one on rows kept back, and then weighs it by a prior.
- Arms: asynchronous ClassTer as published (its distillations as short as in the older studies), with ten
  devices at work, as many as there are classes, and in Potluck's mode, as it comes, with thirty. Curves are
  compared within each; FedAsync beside them is in `classter_fleet`.
- Crowd: that of the other studies (`_classter`), Fashion-MNIST by Dirichlet(0.1) among 100 devices, half of
  them 20 times slower (D4); 12,000 s of virtual time, looked at every 400 s, each time on classes that a
  device doesn't hold. Seeds 1, 2 and 3.
- Rates: 0.01 for both, which `classter_fleet` chose on validation rows for ClassTer as published. Nothing is
  tuned anew, for Potluck's mode neither.
- What counts: the curve at full shift. `change` is the mean of all looks from the take-over on, less the best
  look before it. The take-over is the first judgement by which the general model is served or, as published,
  the first distillation; a run without one has no such number. `largest fall` is how far any look is below
  the best one before it. Accuracy no longer falls if, in Potluck's mode, `change` is -2 points or better in
  the mean, and `largest fall` at most 5 in each seed. Beside these: the end, with and without shift, times to
  30, 50 and 70 %, and the share of the time that is left at the take-over. Published whichever way.
"""

from _classter import (
    FULL_SHIFT,
    NO_SHIFT,
    QUICK,
    TABLE,
    change_at_takeover,
    find_takeover,
    largest_fall,
    streaming,
    time_to,
)

from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Measure, Scale, Study, overlay

SECONDS = 12_000.0
D4 = {"fleet": {"preset": "d4"}, "train": {"lr": 0.01}}


def share_after(run: Run) -> float | None:
    """Of the virtual time."""
    when = find_takeover(run)
    return None if when is None else 1 - when / run.summary["virtual_seconds"]


STUDY = Study(
    title="ClassTer, asynchronous: what the take-over by the distilled model costs",
    question="Half of the devices take 20 times as long (D4). As published, devices use the distilled model "
    "from the first distillation on; in Potluck's mode, from when it is the better one. Does accuracy on "
    "classes that they don't hold still fall then?",
    arms=[
        streaming("ClassTer async, published"),
        Arm("ClassTer async", "classter_async"),
    ],
    measures=(
        Measure("change", change_at_takeover, "share", "more"),
        Measure("largest fall", largest_fall, "share", "less"),
        Measure("time after the take-over", share_after, "share"),
        FULL_SHIFT,
        NO_SHIFT,
        *(
            Measure(f"time to {100 * goal:.0f} %", time_to(goal), "seconds", "less")
            for goal in (0.3, 0.5, 0.7)
        ),
    ),
    quick=Scale(
        overlay(
            QUICK,
            D4,
            {"stop": {"rounds": None, "seconds": 6.0}},
            {"evaluate": {"rounds": None, "seconds": 1.0}},
        ),
        seeds=(1,),
    ),
    paper=Scale(
        overlay(
            TABLE,
            D4,
            {"stop": {"rounds": None, "seconds": SECONDS}},
            {"evaluate": {"rounds": None, "seconds": SECONDS / 30}},
        ),
        seeds=(1, 2, 3),
        limit=6,
    ),
)
