"""Every method with and without devices' own priors, at every kind of test-time shift.

`potluck study shift_prior --scale paper` takes Fashion-MNIST and 91 runs of about 10 s of one core;
`shift_prior_har` takes UCI HAR and 35 runs; `shift_prior_cifar` takes CIFAR-10 and 56 runs on a GPU. 182 runs
in all, trials counted.

The design, written down before the first run:

- Methods: FedAvg, FedAvg+FT (ftfa), FedProx, IFCA, DM-PFL, ClassTer as published (its distillations as
  short as in the older studies: DISTIL of _classter.py), and ClassTer in Potluck's mode, which has a prior
  inside.
- Every run is scored with and without the prior (the layer `prior`), so both rows of a method are one model.
  The prior reads a device's unlabelled test rows; the causal form, which leads, only those before the row
  that it answers; the batch form all of them. It sees no label and nothing of how a shift is made.
- Shifts: classes that aren't trained on at 0, 20, 40, 60, 80 and 100 %; all rows of one class, of the class
  least held, and of everybody's mix; unseen classes from the middle of the stream on, and gradually to one
  half. The last two are the same rows, so without a prior they come to the same.
- Crowds: Fashion-MNIST, 10,000 rows by Dirichlet(0.1) among 100 devices and 2,000, without labels, at the
  server; a perceptron; 100 rounds; 5 seeds. UCI HAR: devices of 21 people, each person's rows by
  Dirichlet(0.1) among 2 to 5; what they shift to is of nine other people; an LSTM; 60 rounds; 3 seeds. A
  device's own test rows are drawn by chance and overlap with trained ones by half, so its 0 % flatters
  everybody. CIFAR-10: the first 18,000 + 3,000 images, 100 devices of one class and of two classes each, a
  ninth of the rows at the server; ResNet-8; 100 rounds; 3 seeds.
- Settings: on Fashion-MNIST 4 trials a method (3 of its grid, one around the best), each of a whole run: the
  learning rate, and one key of its own where it has one. Elsewhere two rates, and nothing else, since all of
  ClassTer's and Auxo's studies have 400 runs together. Judged by the mean over all the shifts that are
  scored, rehearsed with validation rows (`[tune] shifts`), of the model as it comes, without the prior;
  on Fashion-MNIST with seeds 11 and 12, elsewhere with seed 11. CIFAR-10 is tuned at one class, and two
  classes take that over.
- What counts: devices' mean accuracy at each shift, by seeds, and ClassTer's differences to each method
  with and without prior, paired by seed. Where ClassTer in Potluck's mode isn't ahead, the table says so.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from _classter import DISTIL, QUICK, TABLE

from potluck import metrics
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Measure, Results, Scale, Study, overlay
from potluck.metrics import headline
from potluck.report.columns import explain_intervals, tell_percents, tell_points
from potluck.report.per_device import read_at_shift
from potluck.report.reproduction import make_markdown_table

PRIOR = "+prior"  # of a view's name
OURS = "ClassTer"
MARGIN = 0.02  # that counts as ahead
SHIFTS: list[tuple[str, float]] = [
    *(("unseen", share) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    *((kind, 1.0) for kind in ("one", "least", "global")),
    *((kind, 0.5) for kind in ("onset", "gradual")),
]
FORMS = {"": "", "causal": " + prior", "batch": " + prior, batch"}  # and what they add to a method's name


class Column(NamedTuple):
    """A shift in a form of use."""

    kind: str
    share: float
    form: str

    @property
    def name(self) -> str:
        return f"{self.kind} {100 * self.share:.0f} %{FORMS[self.form]}"


def read_column(run: Run, column: Column) -> float | None:
    """What a run came to, as it comes or with one form of the prior."""
    view = (headline(run.lines) or "").removesuffix(PRIOR)
    if column.form:
        view += PRIOR
    return read_at_shift(run, column.share, column.form or "mean", view, column.kind)


COLUMNS = [Column(*shift, form) for form in FORMS for shift in SHIFTS]
MEASURES = {each: Measure(each.name, partial(read_column, column=each), "share", "more") for each in COLUMNS}


def page(results: Results) -> str:
    """Accuracy by method and shift, and how far ClassTer is ahead of each."""
    arms, parts = [arm.name for arm in results.plan.arms], []
    rows = [(arm, form) for arm in arms for form in FORMS]
    for scenario in results.plan.scenarios:
        if scenario:
            parts.append(f"### {scenario}")
        found = {
            (arm, form, shift): results.estimate(MEASURES[Column(*shift, form)], arm, scenario)
            for arm, form in rows
            for shift in SHIFTS
        }
        columns = []
        for shift in SHIFTS:
            told = [found[arm, form, shift] for arm, form in rows]
            best = max((each.mean for each in told if each.mean is not None), default=None)
            texts = [tell_percents(each) for each in told]
            columns.append([f"**{t}**" if e.mean == best else t for t, e in zip(texts, told, strict=True)])
        names = [arm + FORMS[form] for arm, form in rows]
        parts.append(make_markdown_table(["", *map(name_shift, SHIFTS)], [names, *columns]))
        if OURS in arms:
            parts.append(make_differences(results, scenario, [row for row in rows if row != (OURS, "")]))
    seeds = len(results.plan.scale.seeds)
    told = f"Means of {seeds} seeds; {explain_intervals(seeds)}." if seeds > 1 else "One seed."
    parts.append(
        f"{told} Bold is best. With a prior, a device reads its unlabelled test rows: each row by those "
        "before it, or all of them at once (batch). Without one, onset and gradual are the same rows."
    )
    return "\n\n".join(parts)


def make_differences(results: Results, scenario: str, rows: list[tuple[str, str]]) -> str:
    """ClassTer in Potluck's mode, as it comes, less each other row, in points and paired by seed."""
    columns, least = [], dict.fromkeys(rows, float("inf"))
    for shift in SHIFTS:
        ours = results.values(MEASURES[Column(*shift, "")], OURS, scenario)
        texts = []
        for arm, form in rows:
            theirs = results.values(MEASURES[Column(*shift, form)], arm, scenario)
            apart = metrics.paired_difference(ours, theirs)
            texts.append(tell_points(apart))
            if apart.mean is not None:
                least[arm, form] = min(least[arm, form], apart.mean)
        columns.append(texts)
    names = [arm + FORMS[form] for arm, form in rows]
    ahead = [f"{name} by {100 * least[row]:.1f}" for name, row in zip(names, rows, strict=True)]
    ahead = [told for told, row in zip(ahead, rows, strict=True) if MARGIN <= least[row] < float("inf")]
    return (
        f"{OURS}, as it comes, less each of them, in percentage points:\n\n"
        f"{make_markdown_table(['', *map(name_shift, SHIFTS)], [names, *columns])}\n\n"
        f"At every shift ahead by 2 points or more in the mean of: {'; '.join(ahead) or 'nobody'}."
    )


def name_shift(shift: tuple[str, float]) -> str:
    kind, share = shift
    return f"{kind} {100 * share:.0f} %"


def arms(published: dict[str, Any]) -> list[Arm]:
    return [
        Arm("FedAvg", "fedavg"),
        Arm("FedAvg+FT", "ftfa"),
        Arm("FedProx", "fedprox"),
        Arm("IFCA", "ifca"),
        Arm("DM-PFL", "dmpfl"),
        Arm("ClassTer, published", "classter", {"mode": "published", **published}),
        Arm(OURS, "classter"),
    ]


def tune(rates: list[float], seeds: list[int]) -> dict[str, Any]:
    """Four trials a method."""
    own = {
        "ftfa": {"tune_epochs": [1, 5]},
        "fedprox": {"mu": [0.01, 0.1]},
        "ifca": {"models": [2, 3]},
        "dmpfl": {"threshold": [0.3, 0.7]},
        "classter": {"distil": {"lr": [0.0005, 0.002]}},
    }
    grid = {"train": {"lr": rates}}
    return {"trials": 4, "refine": 1, "seeds": seeds, "shifts": True, "grid": grid, "own": own}


def try_two(rates: list[float]) -> dict[str, Any]:
    """Two trials a method, of the rate alone."""
    return {"trials": 2, "refine": 0, "seeds": [11], "shifts": True, "grid": {"train": {"lr": rates}}}


LAID = {
    "data": {"shift": 0.0},
    "layers": ["prior"],
    "evaluate": {"shifts": [{"kind": kind, "share": share} for kind, share in SHIFTS]},
}
FASHION = overlay(TABLE, LAID, {"evaluate": {"rounds": 50}})
HAR = overlay(
    FASHION,
    {
        "data": {
            "source": "har",
            "limit": None,
            "partition": "user_devices",
            "clients": None,
            "devices_per_user": [2, 5],
            "smallest": 20,
        },
        "model": {"name": "har_lstm"},
        "train": {"batch": 32, "epochs": 2},
        "stop": {"rounds": 60},
        "evaluate": {"rounds": 30},
    },
)
CIFAR = overlay(
    FASHION,
    {
        "data": {
            "source": "cifar-10-first",
            "limit": None,
            "server": 1 / 9,
            "partition": "shards",
            "classes_per_client": 1,
        },
        "model": {"name": "resnet8"},
        "train": {"batch": 32, "epochs": 2},
        "run": {"executor": "stacked", "device": "cuda"},
    },
)
QUICK_TUNE = {"trials": 1, "refine": 0, "seeds": [11], "shifts": True, "grid": {"train": {"lr": [0.05]}}}

STUDY = Study(
    title="Priors at every kind of shift: Fashion-MNIST",
    question="Devices are tested on classes that they don't hold, on one class, on everybody's mix, all at "
    "once or more and more. Who is right at both ends, as methods come and with devices' own priors?",
    arms=arms({"distil": DISTIL}),
    measures=tuple(MEASURES.values()),
    page=page,
    results="classter",
    quick=Scale(
        overlay(QUICK, LAID, {"data": {"alpha": 1.0, "test": 0.1}, "stop": {"rounds": 2}}),
        seeds=(1,),
        tune=QUICK_TUNE,
        arms=("FedAvg", "ClassTer, published", OURS),
    ),
    paper=Scale(FASHION, seeds=(1, 2, 3, 4, 5), tune=tune([0.005, 0.01, 0.02], [11, 12]), limit=100),
)
STUDIES = {
    "har": replace(
        STUDY,
        title="Priors at every kind of shift: UCI HAR, by people",
        paper=Scale(HAR, seeds=(1, 2, 3), tune=try_two([0.03, 0.1]), limit=35),
    ),
    "cifar": replace(
        STUDY,
        title="Priors at every kind of shift: CIFAR-10, one and two classes a device",
        scenarios={
            "one class": {"data": {"classes_per_client": 1}},
            "two classes": {"data": {"classes_per_client": 2}},
        },
        quick=replace(STUDY.quick, scenarios=("one class",), arms=("FedAvg", OURS)),
        paper=Scale(CIFAR, seeds=(1, 2, 3), tune=try_two([0.01, 0.03]), limit=56),
    ),
}
