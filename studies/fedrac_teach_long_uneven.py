"""Fed-RAC with and without distillation in longer training, where phones' labels differ.

`potluck study fedrac_teach_long_uneven --scale paper` takes UCI HAR and 24 runs of about a minute of one core
each, 12 minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import UNEVEN
from fedrac_teach_long import STUDY as EVEN

STUDY = replace(
    EVEN,
    title="Fed-RAC: what followers learn from the leader in longer training, where labels differ",
    question="As above on Dirichlet(0.5).",
    scenarios={"Dirichlet 0.5": UNEVEN},
)
