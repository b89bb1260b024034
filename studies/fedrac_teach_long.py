"""Fed-RAC with and without distillation, trained three times as long, at the authors' temperature and at 1.

`potluck study fedrac_teach_long --scale paper` takes UCI HAR and 24 runs of about a minute of one core, a
quarter of an hour with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import ALONE, TAUGHT, fedrac
from fedrac_teach import STUDY as SHORTER

from potluck.experiment.study import laid_over

LONG = {"train": {"epochs": 2}, "evaluate": {"rounds": 4}, "algorithms": {"fedrac": {"rounds": 60}}}

STUDY = replace(
    SHORTER,
    title="Fed-RAC: what followers learn from the leader in longer training",
    question="As above with 60 rounds of two epochs in place of 40 of one: is it the temperature that costs "
    "small models so much, or the lack of time?",
    arms=[
        fedrac(ALONE, teach=False),
        fedrac(TAUGHT),
        fedrac("at temperature 1", temperature=1.0),
    ],
    scenarios={"IID": {}},
    notes="",
    paper=replace(SHORTER.paper, experiment=laid_over(SHORTER.paper.experiment, LONG)),
)
