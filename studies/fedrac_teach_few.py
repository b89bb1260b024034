"""Fed-RAC with and without distillation, with a quarter of the data.

`potluck study fedrac_teach_few --scale paper` takes UCI HAR and 32 runs of about 15 s of one core, 4 minutes
with `--jobs 2`.
"""

from _fedrac import GRID, HAR, QUICK, TEACH, TEACHING, lessons

from potluck.experiment.study import Scale, Study, laid_over

STUDY = Study(
    title="Fed-RAC: what followers learn from the leader, with a quarter of the data",
    question="As above with 46 rows a phone instead of 184: is there more to learn from a teacher "
    "where there is less to learn from?",
    arms=TEACHING,
    scenarios={"IID": {}, "Dirichlet 0.5": {"data": {"partition": "dirichlet", "alpha": 0.5}}},
    measures=TEACH,
    page=lessons,
    notes="",
    quick=Scale(laid_over(QUICK, {"algorithms": {"fedrac": {"rounds": 3}}}), seeds=(1,)),
    paper=Scale(
        laid_over(
            HAR,
            {
                "data": {"limit": 1838},
                "evaluate": {"rounds": 2},
                "run": {"executor": "stacked"},
                "algorithms": {"fedrac": {"rounds": 40}},
            },
        ),
        seeds=(1, 2, 3, 4, 5),
        tune=GRID,
        tune_each=True,
    ),
)
