"""Fed-RAC with and without distillation, a quarter of the data, models twice as wide.

`potluck study fedrac_teach_wide --scale paper` takes UCI HAR and 24 runs of about a minute of one core each,
a quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import phones
from fedrac_teach_long_few import STUDY as NARROW

from potluck.experiment.study import laid_over

# 65,350 parameters; the tiers' least: 1,454. Memory grows with them, so that tiers are as wide as before.
WIDE = {"model": {"width": 1.0}, "fleet": phones(1 / 800)}

STUDY = replace(
    NARROW,
    title="Fed-RAC: what wider followers learn from the leader, with a quarter of the data",
    question="As above on IID data with models twice as wide: is it that the smallest, of 490 parameters, "
    "can't do as its teacher does?",
    paper=replace(NARROW.paper, experiment=laid_over(NARROW.paper.experiment, WIDE)),
)
