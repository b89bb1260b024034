"""Fed-RAC's followers who heed labels more than their teacher, with a quarter of the data.

`potluck study fedrac_teach_labels --scale paper` takes UCI HAR and 30 runs of about 20 s of one core each,
five minutes with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import ALONE, fedrac
from fedrac_teach_long_few import STUDY as TUNED

from potluck.experiment.study import laid_over
from potluck.report.reproduction import tables

RATE = {"train": {"lr": 0.01}}  # that all arms chose there

STUDY = replace(
    TUNED,
    title="Fed-RAC: labels or the teacher, with a quarter of the data",
    question="Labels are true, and the teacher errs on what it hasn't seen. As above on IID data, 46 rows "
    "a phone, at the rate that was chosen there: what if labels count for more than the authors' 0.1?",
    arms=[
        fedrac(ALONE, teach=False),
        *(
            fedrac(f"labels {a:g}, temperature {t:g}", a=a, temperature=t)
            for t, a in ((3.0, 0.1), (3.0, 0.5), (3.0, 0.9), (1.0, 0.5), (1.0, 0.9))
        ),
    ],
    page=tables,
    paper=replace(
        TUNED.paper, experiment=laid_over(TUNED.paper.experiment, RATE), tune=None, tune_each=False
    ),
)
