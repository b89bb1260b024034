"""What sharing work is worth, beside other ways to give a small model what the large ones learn.

`potluck study fedrac_shared --scale paper` takes MNIST and 18 runs of 5 to 30 s of one core each, 4 minutes
with `--jobs 2`.

The design, written down before the first run:
- The crowd of fedrac_promise: 40 phones (the paper's Table III), 4,000 digits, Dirichlet(0.5), 14 phones
  that can't hold the full model; the same seconds for all, 30 rounds, Adam at 0.003, nothing tuned, seeds 1,
  2 and 3.
- Arms: Fed-RAC by default (`share = "down"`: richer devices train poorer tiers' models, too); nothing shared;
  shared and layers averaged across tiers after every round (`mixing.back = 1`); shared and taught besides
  (distillation at labels .5 and temperature 1; leader and followers take turns, in the same time together);
  HeteroFL with these tiers' widths, as it is and with in-place distillation (`inplace`), which is the
  published way to train the narrow models of one nest on every device that can hold them.
- What counts is the mean over phones of the model that each is served, on the test set, and the poorest
  model.
- Each question is answered by one paired difference: sharing (default against nothing shared), feeding back
  and being taught (against default), in-place distillation (against HeteroFL as it is, and against default).
- Expected: sharing gains 2 points or more in the mean; being taught on top of it adds less than half a point;
  feeding back adds less than 1 point either way; HeteroFL in place is above HeteroFL as it is, and not
  above the default by more than half a point. Published whichever way it comes out.
"""

from _fedrac import KAPPA, LATE, MNIST, QUICK, SHARES, TIERS, UNEVEN, level, phones, tiered, viewed
from fedrac_promise import TURNS, UNSHARED, on_phones, used, within

from potluck.algorithms.fedrac.results import find_members, trace_tier
from potluck.experiment.runs import Run
from potluck.experiment.study import TRAFFIC, Arm, Measure, Scale, Study, overlay

FOUR = {"clustering": {"k": TIERS}}
TAUGHT = {"distillation": {"enabled": True, "a": 0.5, "temperature": 1.0}, "time": {"kappa": KAPPA}}
RATES = {"rates": list(SHARES)}


def poorest(run: Run) -> float | None:
    """The poorest tier that has members, or the narrowest level, by its own model."""
    if not tiered(run):
        return viewed(run, f"rate {SHARES[-1]:g}")
    return level(trace_tier(run, max(find_members(run).values())))


STUDY = Study(
    title="Fed-RAC: shared work, layers fed back, lessons, and nested models",
    question="40 phones, of which a third can't hold the full model: what does each way to help the small "
    "models bring?",
    arms=[
        Arm("Fed-RAC", "fedrac", FOUR),
        Arm("nothing shared", "fedrac", {**FOUR, **UNSHARED}, TURNS),
        Arm("shared, fed back", "fedrac", {**FOUR, "mixing": {"back": 1.0}}),
        Arm("shared, taught", "fedrac", {**FOUR, **TAUGHT}, TURNS),
        Arm("HeteroFL", "heterofl", RATES),
        Arm("HeteroFL, in place", "heterofl", {**RATES, "inplace": True}),
    ],
    measures=(
        Measure("mean over phones", used, "share", "more", paired=True),
        Measure("poorest model", poorest, "share", "more", paired=True),
        LATE,
        TRAFFIC,
    ),
    quick=Scale(
        overlay(QUICK, {"model": {"width": 1.0}, "fleet": phones(1 / 30_000)}, within(3, 0.6)), seeds=(1,)
    ),
    paper=Scale(overlay(on_phones(MNIST, 4000, 1 / 1750), UNEVEN), seeds=(1, 2, 3), limit=18),
)
