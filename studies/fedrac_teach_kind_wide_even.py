"""Fed-RAC whose followers heed labels as much as their teacher, models twice as wide, IID.

`potluck study fedrac_teach_kind_wide_even --scale paper` takes UCI HAR and 16 runs of two minutes of one
core, a quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from fedrac_teach_kind_wide import STUDY as UNEVEN

STUDY = replace(
    UNEVEN,
    title="Fed-RAC: what wider followers learn from a teacher beside labels, where data are even",
    question="As above on IID data.",
    scenarios={"IID": {}},
)
