"""Fed-RAC with and without distillation in longer training, with a quarter of the data.

`potluck study fedrac_teach_long_few --scale paper` takes UCI HAR and 24 runs of about 20 s of one core
each, 5 minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import QUARTER
from fedrac_teach_long import STUDY as ALL_ROWS

from potluck.experiment.study import laid_over

STUDY = replace(
    ALL_ROWS,
    title="Fed-RAC: what followers learn from the leader in longer training, with a quarter of the data",
    question="As above on IID data with 46 rows a phone instead of 184.",
    paper=replace(ALL_ROWS.paper, experiment=laid_over(ALL_ROWS.paper.experiment, QUARTER)),
)
