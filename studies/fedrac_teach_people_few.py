"""Fed-RAC with the authors' distillation, models twice as wide, a quarter of the data.

`potluck study fedrac_teach_people_few --scale paper` takes UCI HAR and 32 runs of about half a minute of one
core, 8 minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import TEACHING
from fedrac_teach_kind_wide_few import STUDY as KIND

STUDY = replace(
    KIND,
    title="Fed-RAC: what wider followers learn as the authors have it, with a quarter of the data",
    question="As above with 37 rows a phone in place of 148, IID and on Dirichlet(0.5).",
    arms=TEACHING,
)
