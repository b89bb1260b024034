"""Fed-RAC whose followers heed labels more than their teacher.

`potluck study fedrac_teach_labels_first --scale paper` takes UCI HAR and 32 runs of about 40 s of one core
each, ten minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import ALONE, TAUGHT, fedrac
from fedrac_teach_kind import STUDY as HALF

STUDY = replace(
    HALF,
    title="Fed-RAC: what followers learn from a teacher after labels",
    question="60 rounds of two epochs, labels at 0.8 and temperature 1. Both arms are tuned, each in every "
    "scenario, and seeds are paired.",
    arms=[fedrac(ALONE, teach=False), fedrac(TAUGHT, a=0.8, temperature=1.0)],
)
