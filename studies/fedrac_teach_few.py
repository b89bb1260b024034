"""Fed-RAC with and without distillation, with a quarter of the data.

`potluck study fedrac_teach_few --scale paper` takes UCI HAR and 32 runs of about 15 s of one core, 4 minutes
with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import QUARTER
from fedrac_teach import STUDY as ALL_ROWS

from potluck.experiment.study import laid_over

STUDY = replace(
    ALL_ROWS,
    title="Fed-RAC: what followers learn from the leader, with a quarter of the data",
    question="As above with 46 rows a phone instead of 184: is there more to learn from a teacher "
    "where there is less to learn from?",
    notes="",
    paper=replace(ALL_ROWS.paper, experiment=laid_over(ALL_ROWS.paper.experiment, QUARTER)),
)
