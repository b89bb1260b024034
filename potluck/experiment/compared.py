"""What a comparison came to: its runs, and a row for each algorithm."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from potluck import metrics
from potluck.core.units import NONE, duration, percent
from potluck.experiment import notebook
from potluck.experiment.runs import Run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.summary import tell_tested
from potluck.experiment.tuning import Tuning
from potluck.metrics import FEWEST_SEEDS, Estimate

Shown = Literal[
    "accuracy_mean", "accuracy_worst10", "accuracy_best10", "global_accuracy", "rounds", "device_seconds"
]


@dataclass(frozen=True)
class Row:
    """What one algorithm came to, over its seeds."""

    algorithm: str
    accuracy: Estimate
    difference: Estimate | None  # in accuracy, against the first algorithm, over two seeds or more
    worst: Estimate
    best: Estimate
    everywhere: Estimate  # accuracy on the global test set
    tested: str  # which models that is of
    seconds_to_target: Estimate  # virtual
    speed_up: float | None  # against the first algorithm
    rounds: Estimate
    bytes: Estimate
    device_seconds: Estimate


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs that differ in algorithm and seed only."""

    experiment: Experiment
    runs: list[Run]
    path: Path | None = None
    tuning: Tuning | None = None  # where their settings come from

    def __repr__(self) -> str:
        told = (f"{row.algorithm} {percent(row.accuracy.mean)}" for row in self.rows)
        return f"<Comparison {self.experiment.name}: {', '.join(told)}{notebook.tell_place(self.path)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a table, and accuracy over virtual time."""
        several = len(self.experiment.seeds) >= FEWEST_SEEDS
        heads = ["accuracy", *(["± (95 %)"] if several else []), "worst 10 %", "time to target"]
        rows = []
        for row in self.rows:
            half = NONE if row.accuracy.half is None else f"{100 * row.accuracy.half:.1f}"
            texts = [percent(row.accuracy.mean), *([half] if several else []), percent(row.worst.mean)]
            rows.append([row.algorithm, *texts, duration(row.seconds_to_target.mean)])
        curves = [
            (run.summary["algorithm"], metrics.series(run.lines, "accuracy_mean", run.summary["view"]))
            for run in self.runs
        ]
        target = f"mean over devices; the target is {percent(self.target)}; times are virtual"
        table = notebook.make_table(["algorithm", *heads], rows)
        return notebook.make_page(self.experiment.name, table, notebook.draw_curves(curves), target)

    @property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.summary["algorithm"] for run in self.runs))

    @property
    def failed(self) -> dict[str, str]:
        """Runs that couldn't go on, and why; their rows are of how far they came."""
        return {run.name: run.failed for run in self.runs if run.failed is not None}

    def of(self, algorithm: str) -> list[Run]:
        """An algorithm's runs, a seed each. `algorithm`: its name, as the table shows it."""
        return [run for run in self.runs if run.summary["algorithm"] == algorithm]

    def time(self, run: Run) -> float | None:
        """Virtual seconds until one of the runs was first seen at the target; None if it never was."""
        return metrics.time_to(metrics.series(run.lines, "accuracy_mean", run.summary["view"]), self.target)

    @cached_property
    def target(self) -> float | None:
        """The accuracy that algorithms race to: the experiment's, or what the first one ends with."""
        wanted = self.experiment.stop.target or self.experiment.evaluate.target
        return (
            wanted or Estimate.of([run.summary["accuracy_mean"] for run in self.of(self.algorithms[0])]).mean
        )

    @property
    def tested(self) -> dict[str, str]:
        """Which models the global test is of, by algorithm."""
        return {row.algorithm: row.tested for row in self.rows}

    @cached_property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for name in self.algorithms:
            taken = [self.time(run) for run in self.of(name)]
            base = rows[0].seconds_to_target.mean if rows else Estimate.of(taken).mean
            own = Estimate.of(taken).mean
            rows.append(
                Row(
                    algorithm=name,
                    accuracy=self._estimate(name, "accuracy_mean"),
                    difference=self._difference(name) if rows else None,
                    worst=self._estimate(name, "accuracy_worst10"),
                    best=self._estimate(name, "accuracy_best10"),
                    everywhere=self._estimate(name, "global_accuracy"),
                    tested=tell_tested(run.summary for run in self.of(name)),
                    seconds_to_target=Estimate.of(taken),
                    speed_up=base / own if base is not None and own else None,
                    rounds=self._estimate(name, "rounds"),
                    bytes=Estimate.of(
                        [r.summary["bytes_up"] + r.summary["bytes_down"] for r in self.of(name)]
                    ),
                    device_seconds=self._estimate(name, "device_seconds"),
                )
            )
        return rows

    def _estimate(self, algorithm: str, key: Shown) -> Estimate:
        return Estimate.of([run.summary[key] for run in self.of(algorithm)])

    def _difference(self, algorithm: str) -> Estimate | None:
        base, own = (
            {run.summary["seed"]: run.summary["accuracy_mean"] for run in self.of(name)}
            for name in (self.algorithms[0], algorithm)
        )
        common = [seed for seed in base if seed in own]  # a comparison that is under way may lack some
        if len(common) < 2:
            return None
        return metrics.paired_difference([own[seed] for seed in common], [base[seed] for seed in common])
