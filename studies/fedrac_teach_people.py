"""Fed-RAC with the authors' distillation, models twice as wide, rates chosen on people whom nobody trains on.

`potluck study fedrac_teach_people --scale paper` takes UCI HAR and 32 runs of about a minute of one core, a
quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import TEACHING
from fedrac_teach import STUDY as SHORTER
from fedrac_teach_kind_wide import STUDY as KIND

STUDY = replace(
    KIND,
    title="Fed-RAC: what wider followers learn from the leader as the authors have it",
    question="Models twice as wide, 60 rounds of two epochs, the authors' 0.1 for labels and temperature 3. "
    "Rates are chosen on four of the 21 people, on whose rows nobody trains.",
    arms=TEACHING,
    scenarios=SHORTER.scenarios,
)
