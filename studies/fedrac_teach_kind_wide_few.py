"""Fed-RAC whose followers heed labels as much as their teacher, models twice as wide, a quarter of the data.

`potluck study fedrac_teach_kind_wide_few --scale paper` takes UCI HAR and 32 runs of about 45 s of one core
each, a quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import QUARTER_WITHOUT, STRANGERS
from fedrac_teach_kind import STUDY as NARROW
from fedrac_teach_wide import WIDE

from potluck.experiment.study import laid_over

STUDY = replace(
    NARROW,
    title="Fed-RAC: what wider followers learn from a teacher beside labels, with a quarter of the data",
    question="As above with 37 rows a phone in place of 148, IID and on Dirichlet(0.5).",
    paper=replace(
        NARROW.paper, experiment=laid_over(NARROW.paper.experiment, WIDE, STRANGERS, QUARTER_WITHOUT)
    ),
)
