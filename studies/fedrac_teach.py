"""Fed-RAC with and without distillation, tier by tier (its Figure 2 and Table VII).

`potluck study fedrac_teach --scale paper` takes UCI HAR and 32 runs of about 20 s of one core, 6 minutes with
`--jobs 2`.
"""

from _fedrac import GRID, HAR, QUICK, TEACH, TEACHING, UNEVEN, lessons

from potluck.experiment.study import Scale, Study, laid_over

STUDY = Study(
    title="Fed-RAC: what followers learn from the leader",
    question="Does a smaller tier's model become better if the leader's teaches it? "
    "Both are tuned, each in every scenario, and seeds are paired.",
    arms=TEACHING,
    scenarios={"IID": {}, "Dirichlet 0.5": UNEVEN},
    measures=TEACH,
    page=lessons,
    notes="The paper has about +8 points for the smallest tier on this data and +2 for the second; "
    "and 92 % after 77 rounds in all with distillation and 83 without it, where the two smallest tiers never "
    "got there and aren't counted.",
    quick=Scale(laid_over(QUICK, {"algorithms": {"fedrac": {"rounds": 3}}}), seeds=(1,)),
    paper=Scale(
        laid_over(
            HAR,
            {
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
