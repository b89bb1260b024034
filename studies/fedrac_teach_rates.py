"""Fed-RAC with and without distillation in longer training, both at the same rates.

`potluck study fedrac_teach_rates --scale paper` takes UCI HAR and 30 runs of about 40 s of one core each, ten
minutes with `--jobs 2`.
"""

from dataclasses import replace

from fedrac_teach_long_uneven import STUDY as TUNED

from potluck.experiment.study import Arm, laid_over
from potluck.report.reproduction import tables


def at(rate: float, arm: Arm) -> Arm:
    return replace(arm, name=f"{arm.name}, {rate:g}", changes=laid_over(arm.changes, {"train": {"lr": rate}}))


STUDY = replace(
    TUNED,
    title="Fed-RAC: distillation, or the rate?",
    question="The rate of all tiers is chosen by everybody's validation rows; the smallest tier is a part "
    "of them. As above on Dirichlet(0.5), every arm at both rates that were chosen: 0.01 and 0.03.",
    arms=[at(rate, arm) for rate in (0.03, 0.01) for arm in TUNED.arms],
    page=tables,
    paper=replace(TUNED.paper, tune=None, tune_each=False),
)
