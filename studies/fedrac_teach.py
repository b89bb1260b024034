"""Fed-RAC with and without distillation, tier by tier (its Figure 2 and Table VII), and 19 variants of it.

`potluck study fedrac_teach --scale paper`, or `fedrac_teach_few` and so on, takes UCI HAR and 16 to 32 runs
of 15 s to two minutes of one core: 4 minutes (`few`) to a quarter of an hour (`long`, `wide`) with
`--jobs 2`.
"""

from dataclasses import replace
from typing import Any

from _fedrac import (
    GRID,
    HAR,
    QUARTER,
    QUARTER_WITHOUT,
    QUICK,
    STRANGERS,
    TAUGHT,
    TEACH,
    TEACHING,
    UNEVEN,
    fedrac,
    phones,
)
from _fedrac_pages import lessons

from potluck.experiment.study import Arm, Scale, Study, overlay
from potluck.report.reproduction import make_tables

BRIEF = {
    "evaluate": {"rounds": 2},
    "run": {"executor": "stacked"},
    "algorithms": {"fedrac": {"rounds": 40}},
}
LONG = {"train": {"epochs": 2}, "evaluate": {"rounds": 4}, "algorithms": {"fedrac": {"rounds": 60}}}
# 65,350 parameters; the tiers' least: 1,454. Memory grows with them, so that tiers are as wide as before.
WIDE = {"model": {"width": 1.0}, "fleet": phones(1 / 800)}
CHOSEN = {"train": {"lr": 0.01}}  # by all arms of `long_few`
EVEN_ONLY, UNEVEN_ONLY = {"IID": {}}, {"Dirichlet 0.5": UNEVEN}
BOTH = {**EVEN_ONLY, **UNEVEN_ONLY}


def vary(study: Study, *experiment: dict[str, Any], tuned: bool = True, **changes: Any) -> Study:
    """A study with tables laid over its experiment at paper scale, and with other fields."""
    paper = replace(study.paper, experiment=overlay(study.paper.experiment, *experiment))
    if not tuned:
        paper = replace(paper, tune=None, tune_each=False)
    return replace(study, paper=paper, **changes)


def weigh_labels(share: float, temperature: float = 1.0, name: str = TAUGHT) -> Arm:
    """Followers for whom labels count so much, and their teacher's answers the rest."""
    return fedrac(name, distillation={"a": share, "temperature": temperature})


def fix_rates(study: Study) -> list[Arm]:
    """Every arm at both rates that were chosen."""
    return [
        replace(arm, name=f"{arm.name}, {lr:g}", changes=overlay(arm.changes, {"train": {"lr": lr}}))
        for lr in (0.03, 0.01)
        for arm in study.arms
    ]


STUDY = Study(
    title="Fed-RAC: what followers learn from the leader",
    question="Does a smaller tier's model become better if the leader's teaches it? "
    "Both are tuned, each in every scenario, and seeds are paired.",
    arms=TEACHING,
    scenarios=BOTH,
    measures=TEACH,
    page=lessons,
    notes="The paper has about +8 points for the smallest tier on this data and +2 for the second; "
    "and 92 % after 77 rounds in all with distillation and 83 without it, where the two smallest tiers never "
    "got there and aren't counted.",
    quick=Scale(overlay(QUICK, {"algorithms": {"fedrac": {"rounds": 3}}}), seeds=(1,)),
    paper=Scale(overlay(HAR, BRIEF), seeds=(1, 2, 3, 4, 5), tune=GRID, tune_each=True),
)

# Those on which others are built; the table below has all.
LONGER = vary(
    STUDY,
    LONG,
    title="Fed-RAC: what followers learn from the leader in longer training",
    question="As above with 60 rounds of two epochs in place of 40 of one: is it the temperature that costs "
    "small models so much, or the lack of time?",
    arms=[*TEACHING, fedrac("at temperature 1", distillation={"temperature": 1.0})],
    scenarios=EVEN_ONLY,
    notes="",
)
LONGER_FEW = vary(
    LONGER,
    QUARTER,
    title="Fed-RAC: what followers learn from the leader in longer training, with a quarter of the data",
    question="As above on IID data with 46 rows a phone instead of 184.",
)
LONGER_UNEVEN = vary(
    LONGER,
    title="Fed-RAC: what followers learn from the leader in longer training, where labels differ",
    question="As above on Dirichlet(0.5).",
    scenarios=UNEVEN_ONLY,
)
KIND = vary(
    LONGER,
    title="Fed-RAC: what followers learn from a teacher beside labels",
    question="60 rounds of two epochs, labels at 0.5 and temperature 1 in place of the authors' 0.1 and 3. "
    "Both arms are tuned, each in every scenario, and seeds are paired.",
    arms=[TEACHING[0], weigh_labels(0.5)],
    scenarios=BOTH,
)
KIND_WIDE = vary(
    KIND,
    WIDE,
    STRANGERS,
    title="Fed-RAC: what wider followers learn from a teacher beside labels",
    question="As above on Dirichlet(0.5), all rows, models twice as wide: the smallest has 1,454 parameters. "
    "Rates are chosen on four of the 21 people, on whose rows nobody trains.",
    scenarios=UNEVEN_ONLY,
)
KIND_WIDE_FEW = vary(
    KIND,
    WIDE,
    STRANGERS,
    QUARTER_WITHOUT,
    title="Fed-RAC: what wider followers learn from a teacher beside labels, with a quarter of the data",
    question="As above with 37 rows a phone in place of 148, IID and on Dirichlet(0.5).",
)
LABELS_FIRST = vary(
    KIND,
    title="Fed-RAC: what followers learn from a teacher after labels",
    question="60 rounds of two epochs, labels at 0.8 and temperature 1. Both arms are tuned, each in every "
    "scenario, and seeds are paired.",
    arms=[TEACHING[0], weigh_labels(0.8)],
)

STUDIES = {
    "mild": vary(
        STUDY,
        title="Fed-RAC: what followers learn from a leader at temperature 1",
        question="As above, but the teacher's answers aren't softened: small models have few rounds to come "
        "near logits at a third of their size.",
        arms=[TEACHING[0], fedrac(TAUGHT, distillation={"temperature": 1.0})],
        notes="Temperature 1 was chosen among four settings by one seed's validation rows.",
    ),
    "few": vary(
        STUDY,
        QUARTER,
        title="Fed-RAC: what followers learn from the leader, with a quarter of the data",
        question="As above with 46 rows a phone instead of 184: is there more to learn from a teacher "
        "where there is less to learn from?",
        notes="",
    ),
    "long": LONGER,
    "long_uneven": LONGER_UNEVEN,
    "long_few": LONGER_FEW,
    "long_few_uneven": vary(
        LONGER_FEW,
        title="Fed-RAC: what followers learn from the leader in longer training, "
        "with a quarter of uneven data",
        question="As above on Dirichlet(0.5) with 46 rows a phone.",
        scenarios=UNEVEN_ONLY,
    ),
    "rates": vary(
        LONGER_UNEVEN,
        tuned=False,
        title="Fed-RAC: distillation, or the rate?",
        question="The rate of all tiers is chosen by everybody's validation rows; the smallest tier is a "
        "part of them. As above on Dirichlet(0.5), every arm at both rates that were chosen: 0.01 and 0.03.",
        arms=fix_rates(LONGER_UNEVEN),
        page=make_tables,
    ),
    "wide": vary(
        LONGER_FEW,
        WIDE,
        title="Fed-RAC: what wider followers learn from the leader, with a quarter of the data",
        question="As above on IID data with models twice as wide: is it that the smallest, of 490 "
        "parameters, can't do as its teacher does?",
    ),
    "labels": vary(
        LONGER_FEW,
        CHOSEN,
        tuned=False,
        title="Fed-RAC: labels or the teacher, with a quarter of the data",
        question="Labels are true, and the teacher errs on what it hasn't seen. As above on IID data, 46 "
        "rows a phone, at the rate that was chosen there: what if labels count for more than the authors' "
        "0.1?",
        arms=[
            TEACHING[0],
            *(
                weigh_labels(a, t, f"labels {a:g}, temperature {t:g}")
                for t, a in ((3.0, 0.1), (3.0, 0.5), (3.0, 0.9), (1.0, 0.5), (1.0, 0.9))
            ),
        ],
        page=make_tables,
    ),
    "kind": KIND,
    "kind_few": vary(
        KIND,
        QUARTER,
        title="Fed-RAC: what followers learn from a teacher beside labels, with a quarter of the data",
        question="As above with 46 rows a phone instead of 184.",
    ),
    "kind_rates": vary(
        KIND,
        tuned=False,
        title="Fed-RAC: a teacher beside labels, or the rate?",
        question="Labels at 0.5, temperature 1, Dirichlet(0.5), all rows. Both arms at both rates chosen.",
        arms=fix_rates(KIND),
        scenarios=UNEVEN_ONLY,
        page=make_tables,
    ),
    "kind_wide": KIND_WIDE,
    "kind_wide_even": vary(
        KIND_WIDE,
        title="Fed-RAC: what wider followers learn from a teacher beside labels, where data are even",
        question="As above on IID data.",
        scenarios=EVEN_ONLY,
    ),
    "kind_wide_few": KIND_WIDE_FEW,
    "labels_first": LABELS_FIRST,
    "labels_first_few": vary(
        LABELS_FIRST,
        QUARTER,
        title="Fed-RAC: what followers learn from a teacher after labels, with a quarter of the data",
        question="As above with 46 rows a phone instead of 184.",
    ),
    "people": vary(
        KIND_WIDE,
        title="Fed-RAC: what wider followers learn from the leader as the authors have it",
        question="Models twice as wide, 60 rounds of two epochs, the authors' 0.1 for labels and temperature "
        "3. Rates are chosen on four of the 21 people, on whose rows nobody trains.",
        arms=TEACHING,
        scenarios=BOTH,
    ),
    "people_few": vary(
        KIND_WIDE_FEW,
        title="Fed-RAC: what wider followers learn as the authors have it, with a quarter of the data",
        question="As above with 37 rows a phone in place of 148, IID and on Dirichlet(0.5).",
        arms=TEACHING,
    ),
}
