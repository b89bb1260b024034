"""Fed-RAC whose followers heed labels as much as their teacher, models twice as wide, where labels differ.

`potluck study fedrac_teach_kind_wide --scale paper` takes UCI HAR and 16 runs of two minutes of one core, a
quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import STRANGERS, UNEVEN
from fedrac_teach_kind import STUDY as NARROW
from fedrac_teach_wide import WIDE

from potluck.experiment.study import laid_over

STUDY = replace(
    NARROW,
    title="Fed-RAC: what wider followers learn from a teacher beside labels",
    question="As above on Dirichlet(0.5), all rows, models twice as wide: the smallest has 1,454 parameters. "
    "Rates are chosen on four of the 21 people, on whose rows nobody trains.",
    scenarios={"Dirichlet 0.5": UNEVEN},
    paper=replace(NARROW.paper, experiment=laid_over(NARROW.paper.experiment, WIDE, STRANGERS)),
)
