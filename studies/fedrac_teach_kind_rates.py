"""Fed-RAC whose followers heed labels as much as their teacher, where labels differ, at the same rates.

`potluck study fedrac_teach_kind_rates --scale paper` takes UCI HAR and 20 runs of about 40 s of one core,
seven minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import UNEVEN
from fedrac_teach_kind import STUDY as TUNED
from fedrac_teach_rates import at

from potluck.report.reproduction import tables

STUDY = replace(
    TUNED,
    title="Fed-RAC: a teacher beside labels, or the rate?",
    question="Labels at 0.5, temperature 1, Dirichlet(0.5), all rows. Both arms at both rates chosen.",
    arms=[at(rate, arm) for rate in (0.03, 0.01) for arm in TUNED.arms],
    scenarios={"Dirichlet 0.5": UNEVEN},
    page=tables,
    paper=replace(TUNED.paper, tune=None, tune_each=False),
)
