"""Studies: one Python file for each table or figure, which says what is run and what is told of it.

    STUDY = Study(
        title="FedProx's pull",
        question="How much does the proximal term help when labels are skewed?",
        arms=[Arm("FedAvg", "fedavg"), Arm("mu 0.1", "fedprox", {"mu": 0.1})],
        scenarios={"alpha 1": {"data": {"alpha": 1.0}}, "alpha 0.1": {"data": {"alpha": 0.1}}},
        quick=Scale({"data": {"source": "digits"}, "stop": {"rounds": 20}}),
        paper=Scale(
            {"data": {"source": "mnist"}, "stop": {"rounds": 200}},
            tune={"trials": 4, "grid": {"train": {"lr": [0.03, 0.1, 0.3]}}},
        ),
    )

Runs are arms x scenarios x seeds, and trials of settings before them. An ablation is some arms that
share an algorithm; a curve over a parameter is one scenario for each of its values. A file may hold variants
of its study, too: `STUDIES = {"long": replace(STUDY, ...)}` in fedprox.py is known as `fedprox_long`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from potluck import algorithms as registry
from potluck import metrics
from potluck.core.errors import ConfigError, nearest
from potluck.experiment import folder
from potluck.experiment.methods import overlay
from potluck.experiment.runs import Run
from potluck.experiment.schema import config_errors
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.tune_table import Tune
from potluck.experiment.tune import fill_tune
from potluck.experiment.tune_stages import count_trials
from potluck.experiment.tuned_keys import has_key, is_set, set_values
from potluck.experiment.tuning import Tuning
from potluck.metrics import Estimate

LIMIT = 40  # runs of a study, trials included, unless its scale says otherwise
SCALES = ("quick", "paper")

Tables = Mapping[str, Any]  # as in an experiment's file: {"data": {"clients": 50}}


@dataclass(frozen=True)
class Arm:
    """One line of a study's table: an algorithm with its parameters."""

    name: str
    algorithm: str
    parameters: Tables = field(default_factory=dict)
    changes: Tables = field(default_factory=dict)  # laid over the experiment
    tuned_as: str | None = None  # the arm whose chosen settings it takes over, instead of being tuned


@dataclass(frozen=True)
class Scale:
    """How large a study is: `quick` shows in seconds that it works, `paper` is to be believed."""

    experiment: Tables
    seeds: Sequence[int] = (1, 2, 3)
    tune: Tables | None = None  # [tune], by algorithms in `own`; None: at the experiment's settings
    tune_each: bool = False  # in every scenario; else in the first one, for all
    arms: Sequence[str] | None = None  # only these
    scenarios: Sequence[str] | None = None
    limit: int = LIMIT  # runs, trials included: what a study costs is stated before it is begun


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
    results: str | None = None  # the page of docs/results; else what its name begins with, auxo for auxo_yogi

    def plan(self, scale: str, settings: Sequence[str] = ()) -> "StudyPlan":
        """What is to be run at a scale; a setting such as `run.workers=4` is laid over everything."""
        if scale not in SCALES:
            raise ConfigError(f"scale {scale!r}: no such scale; {nearest(scale, SCALES)}")
        wanted: Scale = getattr(self, scale)
        arms = {arm.name: arm for arm in self.arms}
        config_errors.check_distinct("arms", [folder.to_path_part(arm.name) for arm in self.arms])
        config_errors.check_distinct("seeds", list(wanted.seeds))
        chosen = [arms[_known("arm", name, arms)] for name in wanted.arms or arms]
        tuned = [arm.name for arm in chosen if arm.tuned_as is None]
        for arm in chosen:
            _known(f"arm {arm.name!r}: tuned_as", arm.tuned_as or tuned[0], tuned)
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
        """One run, at the settings that stand in the tables."""
        own = {"algorithm": arm.algorithm, "algorithms": {arm.algorithm: arm.parameters}, "seed": seed}
        tables = overlay(self.scale.experiment, self.study.scenarios[scenario], arm.changes, own)
        tables |= {"name": folder.to_path_part(arm.name), "compare": [], "seeds": []}
        return Experiment(**tables, _source=f"{arm.name}, {self.name}").with_overrides(self.settings)

    @cached_property
    def tune(self) -> Tune | None:
        """What every arm may try."""
        if self.scale.tune is None:
            return None
        wanted = Experiment(tune=dict(self.scale.tune), seeds=list(self.scale.seeds), _source=self.name)
        return fill_tune(wanted, [registry.canonical(arm.algorithm) for arm in self.tuned])

    @property
    def tuned(self) -> list[Arm]:
        """Arms that are tuned themselves."""
        return [arm for arm in self.arms if arm.tuned_as is None]

    @property
    def searches(self) -> dict[str, dict[str, Experiment]]:
        """What is tuned, by scenario and arm."""
        if self.tune is None:
            return {}
        return {
            scenario: {arm.name: self.experiment(arm, scenario, self.tune.seeds[0]) for arm in self.tuned}
            for scenario in (self.scenarios if self.scale.tune_each else self.scenarios[:1])
        }

    @cached_property
    def trials(self) -> int:
        """Runs that tune, at most."""
        if self.tune is None:
            return 0
        return sum(count_trials(methods, self.tune) for methods in self.searches.values())

    @property
    def total(self) -> int:
        """How many runs, trials included; too many are refused."""
        runs, limit = len(self.arms) * len(self.scenarios) * len(self.scale.seeds), self.scale.limit
        if self.trials + runs > limit:
            raise ConfigError(
                f"{self.name}: {self.trials + runs} runs ({self.trials} to tune, {runs} to compare), at most "
                f"{limit} are allowed; take fewer arms, scenarios, seeds or trials, or raise its limit"
            )
        return self.trials + runs

    def with_choice(self, experiment: Experiment, arm: Arm, tuning: Tuning | None) -> Experiment:
        """With the chosen settings; of another arm's, with those that it has and doesn't set itself."""
        if tuning is None:
            return experiment
        chosen, name = tuning.choice(arm.tuned_as or arm.name), registry.canonical(arm.algorithm)
        if arm.tuned_as is not None:
            chosen = {
                key: value
                for key, value in chosen.items()
                if has_key(name, key) and not is_set(arm.parameters, key)
            }
        return set_values(experiment, chosen)


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
