"""Fed-RAC with and without distillation in longer training, with a quarter of uneven data.

`potluck study fedrac_teach_long_few_uneven --scale paper` takes UCI HAR and 24 runs of about 20 s of one core
each, 5 minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import UNEVEN
from fedrac_teach_long_few import STUDY as EVEN

STUDY = replace(
    EVEN,
    title="Fed-RAC: what followers learn from the leader in longer training, with a quarter of uneven data",
    question="As above on Dirichlet(0.5) with 46 rows a phone.",
    scenarios={"Dirichlet 0.5": UNEVEN},
)
