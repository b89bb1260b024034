"""Fed-RAC whose followers heed labels more than their teacher, with a quarter of the data.

`potluck study fedrac_teach_labels_first_few --scale paper` takes UCI HAR and 32 runs of about 20 s of one
core each, five minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import QUARTER
from fedrac_teach_labels_first import STUDY as ALL_ROWS

from potluck.experiment.study import laid_over

STUDY = replace(
    ALL_ROWS,
    title="Fed-RAC: what followers learn from a teacher after labels, with a quarter of the data",
    question="As above with 46 rows a phone instead of 184.",
    paper=replace(ALL_ROWS.paper, experiment=laid_over(ALL_ROWS.paper.experiment, QUARTER)),
)
