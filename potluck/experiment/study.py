"""Studies: one Python file for each table or figure, which says what is run and what is told of it.

    STUDY = Study(
        title="FedProx's pull",
        question="How much does the proximal term help when labels are skewed?",
        arms=[Arm("FedAvg", "fedavg"), Arm("mu 0.1", "fedprox", {"mu": 0.1})],
        scenarios={"alpha 1": {"data": {"alpha": 1.0}}, "alpha 0.1": {"data": {"alpha": 0.1}}},
        quick=Scale({"data": {"source": "digits"}, "stop": {"rounds": 20}}),
        paper=Scale({"data": {"source": "mnist"}, "stop": {"rounds": 200}}, tune={"lr": [0.03, 0.1, 0.3]}),
    )

Runs are arms x scenarios x seeds, and trials of learning rates before them. An ablation is some arms that
share an algorithm; a curve over a parameter is one scenario for each of its values. A file may hold variants
of its study, too: `STUDIES = {"long": replace(STUDY, ...)}` in fedprox.py is known as `fedprox_long`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from potluck import metrics
from potluck.core.errors import ConfigError, nearest
from potluck.experiment import folder
from potluck.experiment.runs import Run
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import Tune
from potluck.experiment.tune import Tuning, count_trials, fill_tune, set_rate
from potluck.metrics import Estimate

LIMIT = 40  # runs of a study, trials included
SCALES = ("quick", "paper")

Tables = Mapping[str, Any]  # as in an experiment's file: {"data": {"clients": 50}}


@dataclass(frozen=True)
class Arm:
    """One line of a study's table: an algorithm with its parameters."""

    name: str
    algorithm: str
    parameters: Tables = field(default_factory=dict)
    changes: Tables = field(default_factory=dict)  # laid over the experiment
    rate_of: str | None = None  # the arm whose learning rate it takes over, instead of being tuned


@dataclass(frozen=True)
class Scale:
    """How large a study is: `quick` shows in seconds that it works, `paper` is to be believed."""

    experiment: Tables
    seeds: Sequence[int] = (1, 2, 3)
    tune: Tables | None = None  # [tune]; None: at the experiment's rate
    tune_each: bool = False  # in every scenario; else in the first one, for all
    arms: Sequence[str] | None = None  # only these
    scenarios: Sequence[str] | None = None


@dataclass(frozen=True)
class Measure:
    """Something that is told of every arm: a key of runs' summaries, or any function of a finished run."""

    name: str
    of: str | Callable[[Run], float | None]
    unit: Literal["share", "seconds", "bytes", "number"] = "number"
    better: Literal["more", "less"] | None = None
    paired: bool = False  # whether differences to the first arm are told, seed by seed

    def value(self, run: Run) -> float | None:
        if callable(self.of):
            return self.of(run)
        numbers = {key: value for key, value in run.summary.items() if isinstance(value, float | int | None)}
        if self.of not in numbers:
            hint = nearest(self.of, list(numbers))
            raise ConfigError(f"measure {self.name!r}: summaries have no {self.of!r}; {hint}")
        return numbers[self.of]


def traffic(run: Run) -> float:
    """Bytes, up and down."""
    return float(run.summary["bytes_up"] + run.summary["bytes_down"])


ACCURACY = Measure("accuracy", "accuracy_mean", "share", "more", paired=True)
WORST = Measure("worst 10 %", "accuracy_worst10", "share", "more")
TIME = Measure("time to target", "time_to_target", "seconds", "less")
TRAFFIC = Measure("traffic", traffic, "bytes", "less")


@dataclass(frozen=True)
class Study:
    """What is run, at two scales, and what is told of it."""

    title: str
    question: str
    arms: Sequence[Arm]
    quick: Scale
    paper: Scale
    scenarios: Mapping[str, Tables] = field(default_factory=lambda: {"": {}})  # laid over the experiment
    measures: Sequence[Measure] = (ACCURACY, WORST, TIME, TRAFFIC)
    notes: str = ""  # Markdown: what a paper says, what to make of the numbers
    page: "Callable[[Results], str] | None" = None  # Markdown, instead of tables of all measures

    def plan(self, scale: str, settings: Sequence[str] = ()) -> "StudyPlan":
        """What is to be run at a scale; a setting such as `run.workers=4` is laid over everything."""
        if scale not in SCALES:
            raise ConfigError(f"scale {scale!r}: no such scale; {nearest(scale, SCALES)}")
        wanted: Scale = getattr(self, scale)
        arms = {arm.name: arm for arm in self.arms}
        config_errors.check_distinct("arms", [folder.to_path_part(arm.name) for arm in self.arms])
        config_errors.check_distinct("seeds", list(wanted.seeds))
        chosen = [arms[_known("arm", name, arms)] for name in wanted.arms or arms]
        tuned = [arm.name for arm in chosen if arm.rate_of is None]
        for arm in chosen:
            _known(f"arm {arm.name!r}: rate_of", arm.rate_of or tuned[0], tuned)
        places = [_known("scenario", name, self.scenarios) for name in wanted.scenarios or self.scenarios]
        return StudyPlan(self, scale, wanted, chosen, places, tuple(settings))


@dataclass(frozen=True)
class StudyPlan:
    """A study at one scale: which runs there are."""

    study: Study
    name: str
    scale: Scale
    arms: list[Arm]
    scenarios: list[str]
    settings: tuple[str, ...] = ()

    def experiment(self, arm: Arm, scenario: str, seed: int) -> Experiment:
        """One run, at the rate that stands in the tables."""
        own = {"algorithm": arm.algorithm, "algorithms": {arm.algorithm: arm.parameters}, "seed": seed}
        tables = overlay(self.scale.experiment, self.study.scenarios[scenario], arm.changes, own)
        tables |= {"name": folder.to_path_part(arm.name), "compare": [], "seeds": []}
        return Experiment(**tables, _source=f"{arm.name}, {self.name}").with_overrides(self.settings)

    @property
    def tune(self) -> Tune | None:
        """The grid that all arms share."""
        if self.scale.tune is None:
            return None
        return fill_tune(
            Experiment(tune=dict(self.scale.tune), seeds=list(self.scale.seeds), _source=self.name)
        )

    @property
    def searches(self) -> list[tuple[str, list[Arm]]]:
        """Which arms are tuned in which scenarios."""
        if self.scale.tune is None:
            return []
        arms = [arm for arm in self.arms if arm.rate_of is None]
        return [(s, arms) for s in (self.scenarios if self.scale.tune_each else self.scenarios[:1])]

    @property
    def trials(self) -> int:
        return (
            0 if self.tune is None else sum(count_trials(len(arms), self.tune) for _, arms in self.searches)
        )

    @property
    def total(self) -> int:
        """How many runs, trials included; too many are refused."""
        runs = len(self.arms) * len(self.scenarios) * len(self.scale.seeds)
        if self.trials + runs > LIMIT:
            raise ConfigError(
                f"{self.name}: {self.trials + runs} runs ({self.trials} to tune, {runs} to compare), at most "
                f"{LIMIT} are allowed; take fewer arms, scenarios, seeds or rates"
            )
        return self.trials + runs

    def with_rate(self, experiment: Experiment, arm: Arm, tuning: Tuning | None) -> Experiment:
        if tuning is None:
            return experiment
        return set_rate(experiment, tuning.choice(arm.rate_of or arm.name))


@dataclass(frozen=True, eq=False)
class Results:
    """What came of a study; `page` makes Markdown of it."""

    name: str  # as the command names it
    plan: StudyPlan
    runs: dict[tuple[str, str], list[Run]]  # by scenario and arm: one for each seed
    tunings: dict[str, Tuning]  # by scenario
    machines: list[str]
    path: Path

    def values(self, measure: Measure, arm: str, scenario: str = "") -> list[float | None]:
        """One for each seed."""
        return [measure.value(run) for run in self.runs[scenario, arm]]

    def estimate(self, measure: Measure, arm: str, scenario: str = "") -> Estimate:
        """Over seeds."""
        return Estimate.of(self.values(measure, arm, scenario))

    def difference(self, measure: Measure, arm: str, scenario: str = "") -> Estimate:
        """Against the first arm."""
        first = self.plan.arms[0].name
        return metrics.paired_difference(
            self.values(measure, arm, scenario), self.values(measure, first, scenario)
        )


def _known(noun: str, name: str, among: Iterable[str]) -> str:
    if name not in (known := list(among)):
        raise ConfigError(f"{noun} {name!r}: no such {noun.split()[0]}; {nearest(name, known)}")
    return name


def overlay(base: Tables, *changes: Tables) -> dict[str, Any]:
    """Tables with others laid over them, key by key; nothing is changed in place."""
    laid = {key: overlay(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for change in changes:
        for key, value in change.items():
            below = laid.get(key, {})
            if isinstance(value, Mapping):
                value = overlay(below if isinstance(below, Mapping) else {}, value)
            laid[key] = value
    return laid
