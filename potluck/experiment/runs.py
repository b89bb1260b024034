"""Runs: started, resumed, loaded."""

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from potluck import metrics
from potluck.core import safe_files
from potluck.core.errors import ClaimError, ConfigError, PotluckError, RunError, StorageError
from potluck.core.records import Record
from potluck.core.rule import Runnable
from potluck.core.trees import finite
from potluck.core.units import duration, percent, size
from potluck.data import Pool
from potluck.engine import snapshot
from potluck.engine.acceptance import find_doubt
from potluck.execute.tune.autotune import PlanChoice, describe
from potluck.experiment import code, folder, json_files, model_files, notebook, packages
from potluck.experiment.arguments import check_callbacks, read_out
from potluck.experiment.claimed_run import find_patience
from potluck.experiment.device_summary import DeviceSummary, summarise_devices
from potluck.experiment.judged import find_judged
from potluck.experiment.launch import execution_plan
from potluck.experiment.prepare import Setting, parameter_context, prepare, resolve_run
from potluck.experiment.pulse import keep_pulse
from potluck.experiment.run_events import Callback
from potluck.experiment.run_lock import lock_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.log_table import Tool
from potluck.experiment.sinks import check_log, open_sinks
from potluck.experiment.summary import Summary, summarise_run
from potluck.experiment.telling import Teller, Watch, follow
from potluck.federation import Federation
from potluck.models import Models
from potluck.simulate import Simulation
from potluck.simulate.run_state import RECORDS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Run:
    """The results of a run, from its folder or from memory.

    `summary` has the last accuracies, time and traffic, `records` all that was measured, as a table, `models`
    the trained models by view, and `devices` who took part.
    """

    experiment: Experiment
    summary: Summary
    path: Path | None = None
    notices: list[str] = field(default_factory=list)  # for people: how it is computed, what was resumed
    failed: str | None = None  # why it couldn't go on; then this is how far it came
    _lines: list[Record] | None = None
    _modules: dict[str, nn.Module] | None = None
    _devices: DeviceSummary | None = None

    def __repr__(self) -> str:
        s = self.summary
        state = f"failed: {self.failed}" if self.failed else "finished" if self.finished else "unfinished"
        told = f"accuracy {percent(s['accuracy_mean'])} after {s['rounds']} rounds, {state}"
        return f"<Run {self.name}: {told}{notebook.tell_place(self.path)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a table, and accuracy over virtual time."""
        s = self.summary
        rows = [
            ["accuracy", percent(s["accuracy_mean"])],
            ["worst 10 %", percent(s["accuracy_worst10"])],
            ["global test", percent(s["global_accuracy"])],
            ["rounds", f"{s['rounds']:,}"],
            ["virtual time", duration(s["virtual_seconds"])],
            ["traffic", size(s["bytes_up"] + s["bytes_down"])],
        ]
        curve = (self.name, metrics.series(self.lines, "accuracy_mean", s["view"]))
        notes = [*(remark["text"] for remark in s["remarks"]), *([self.failed] if self.failed else [])]
        table, drawn = notebook.make_table(["", ""], rows), notebook.draw_curves([curve])
        return notebook.make_page(self.name, table, drawn, "; ".join(notes) or "accuracy: mean over devices")

    @property
    def name(self) -> str:
        return f"{self.summary['algorithm']}-{self.summary['seed']}"

    @property
    def deployed(self) -> bool:
        """Whether real devices did it: its times were measured."""
        return self.path is not None and safe_files.has_file(self.path, folder.DEPLOYED[0])

    @property
    def finished(self) -> bool:
        return self.summary["finished"] is not None

    @cached_property
    def lines(self) -> list[Record]:
        """The records as they were written, one dict each."""
        if self._lines is not None:
            return self._lines
        return folder.read_records(self.path) if self.path else []

    @cached_property
    def devices(self) -> DeviceSummary | None:
        """Who took part (see `summarise_devices`); None if the run isn't finished."""
        if self._devices is not None:
            return self._devices
        return folder.read_devices(self.path) if self.path else None

    @cached_property
    def records(self) -> "pd.DataFrame":
        """The records as a table in long format: run, round, time, metric, value, node, group, view."""
        import pandas as pd

        columns = ["round", "time", "metric", "value", "node", "group", "view"]
        table = pd.DataFrame(self.lines, columns=columns)
        table.insert(0, "run", self.name)
        return table

    @cached_property
    def models(self) -> dict[str, nn.Module]:
        """The trained models by view: ordinary modules in evaluation mode."""
        if self._modules is not None:
            return self._modules
        return model_files.read_models(self.path) if self.path else {}


def run(
    experiment: Experiment,
    out: str | Path | None = None,
    progress: Watch | bool | None = None,
    *,
    algorithm: Runnable | None = None,
    force: bool = False,
    federation: Federation | None = None,
    pool: Pool | None = None,
    callbacks: Sequence[Callback] = (),
    name: str | None = None,
    choose: Callable[[Setting], PlanChoice] = execution_plan.choose_plan,
    lenient: bool = False,
) -> Run:
    """Run an experiment and return its results.

    `experiment`: what to run. `out`: a folder for the run; without one it stays in memory.
    `progress`: True shows how far it is; a function is called with a `Progress` as the run advances.
    `algorithm`: a rule made in Python, in place of the experiment's.
    `force`: replace the folder `out`, if Potluck made it.
    `federation`: the one that another run of the same data, fleet and seed has built; saves building it.
    `pool`: your own data (`potluck.data.from_dataset`), divided as the experiment says.
    `callbacks` follow the run and can't change it; they know it by `name`, else by that of its folder, else
    by algorithm and seed.
    `choose`: a function that decides how the run is computed; by default `run.executor` does.
    `lenient`: if the run can't go on, return it as far as it came, with `failed`, instead of an error.
    """
    path = read_out(experiment, out, callbacks)
    check_log(experiment.log, path)
    if path is not None:
        folder.claim(path, force, None if pool is not None else lambda: resolve_run(experiment, algorithm))
    setting = prepare(experiment, algorithm, federation, pool)
    e = setting.experiment
    name = name or (f"{e.algorithm}-{e.seed}" if path is None else path.resolve().name)
    chosen = choose(setting)
    if path is not None:
        files = {
            folder.EXPERIMENT: setting.experiment.to_toml(),
            folder.PLAN: execution_plan.dump_plan(chosen.plan, chosen.reason),
            **code.record(),
            **packages.record([setting]),
        }
        folder.create(path, files, force)
    try:
        with nullcontext() if path is None else lock_run(path, find_patience(e)) as claim:
            note = None if path is None else partial(execution_plan.note_chunk, path)
            sim = setting.start(chosen.plan, path, note).keep_to(claim)
            if isinstance(models := setting.federation.models, Models):
                sim.notices += [models[spec].remark for spec in models if models[spec].remark]
            if chosen.fresh:
                how = chosen.reason.partition(":")[0]  # the plan in its folder has all times
                sim.notices.append(f"computed by {describe(chosen.plan)}, the fastest way here ({how})")
                if doubt := find_doubt(setting.federation, setting.algorithm):
                    sim.notices.append(doubt)
            return _follow(setting, sim, path, name, progress, callbacks, lenient)
    except (StorageError, RunError, ClaimError):
        raise  # it goes on when there is room, or elsewhere; or its records say how it came to this
    except Exception:  # whatever it is goes on: here only a folder that holds nothing is taken away
        if path is not None and not snapshot.list_all(path):
            shutil.rmtree(path)  # it never began
        raise


def resume(
    out: str | Path,
    progress: Watch | bool | None = None,
    *,
    algorithm: Runnable | None = None,
    federation: Federation | None = None,
    pool: Pool | None = None,
    callbacks: Sequence[Callback] = (),
    name: str | None = None,
    log: Sequence[Tool] | None = None,
    lenient: bool = False,
) -> Run:
    """Go on with a run where its newest snapshot left it; a finished run is only loaded.

    `out`: the run's folder. `progress`, `federation`, `callbacks`, `name` and `lenient`: as for `run`;
    callbacks are told what comes, and at the start what was.
    `algorithm`, `pool`: those that the run was started with, if it was started with any.
    `log`: tools that follow it from now on, in place of those of [log].
    """
    path = Path(out)
    check_callbacks(callbacks)
    folder.check_run(path)
    if folder.is_finished(path):
        return load(path)
    code.check_same(path)
    packages.check_same(path)
    experiment = folder.experiment(path)
    if log is not None:
        experiment = experiment.with_values(log={"to": list(log)})
    check_log(experiment.log, path)
    if algorithm is None and not _by_name(experiment):
        fix = f"resume it there: potluck.resume({str(path)!r}, algorithm=...)"
        raise ConfigError(f"{path}: was run with a {experiment.algorithm} made in Python; {fix}")
    setting = prepare(experiment, algorithm, federation, pool)
    with lock_run(path, find_patience(experiment)) as claim:
        safe_files.remove_file(path, folder.FAILED)  # it may come to another end
        if log is not None:
            folder.change_log(path, experiment.log)
        plan = execution_plan.read_plan(path)
        sim = setting.resume(plan, path, partial(execution_plan.note_chunk, path)).keep_to(claim)
        if plan.torch != torch.__version__:
            sim.notices.append(
                f"begun with torch {plan.torch}, resumed with {torch.__version__}: numbers may differ"
            )
        return _follow(setting, sim, path, name or path.resolve().name, progress, callbacks, lenient)


def load(out: str | Path) -> Run:
    """Load a run from its folder `out`, whether it is finished or not."""
    path = Path(out)
    folder.check_run(path)
    experiment = folder.experiment(path)
    if folder.is_finished(path):
        folder.check_records(path)
        return Run(experiment, folder.read_summary(path), path, folder.list_lost(path))
    lines = folder.read_records(path)
    try:
        summary = summarise_run(experiment, lines, folder.wall_seconds(path), None)
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # it isn't known who wrote them
        raise json_files.damaged(path / RECORDS, str(error), "run it again") from None
    return Run(experiment, summary, path, _lines=lines)


def _follow(
    setting: Setting,
    sim: Simulation,
    path: Path | None,
    name: str,
    progress: Watch | bool | None,
    callbacks: Sequence[Callback],
    lenient: bool,
) -> Run:
    """Compute it to its end, and tell who follows it."""
    everyone = [*callbacks, *open_sinks(setting.experiment.log, path)]
    with follow(progress, name) as watch:
        teller = Teller(name, setting.experiment, sim, path, everyone, watch)
        try:
            done = _finish(setting, sim, path, teller, lenient)
        except BaseException as error:
            teller.end(None, "interrupted" if isinstance(error, KeyboardInterrupt) else str(error))
            raise
    teller.end(done.summary, done.failed)
    return done


def _finish(setting: Setting, sim: Simulation, path: Path | None, teller: Teller, lenient: bool) -> Run:
    began = time.monotonic()
    try:
        with parameter_context(setting), keep_pulse(path, sim, teller.watch) as teller.watch:
            teller.start()
            sim.run(teller.look)
    except RunError as error:
        seconds = time.monotonic() - began
        left = _keep_failed(setting, sim, path, seconds, str(error))
        if not lenient:
            teller.end(left.summary, str(error))
            raise _say_where(error, path) from None
        return left
    except ClaimError:
        raise  # the folder is somebody else's now
    except BaseException as error:
        if path is not None:
            with contextlib.suppress(PotluckError):  # what went wrong first is told
                folder.add_session(path, time.monotonic() - began)
        if isinstance(error, PotluckError) and not isinstance(error, StorageError):
            raise _say_where(error, path) from error.__cause__
        raise
    seconds = time.monotonic() - began
    if path is not None:
        folder.add_session(path, seconds)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    models, served, devices = setting.models, sim.find_models(), summarise_devices(sim)
    judged = find_judged(sim)
    if path is None:
        modules = {view: models[spec].module(params) for view, (spec, params) in served.items()}
        lines = sim.records
        summary = summarise_run(setting.experiment, lines, seconds, now, judged)
        return Run(setting.experiment, summary, None, sim.notices, None, lines, modules, devices)
    model_files.write_models(path, served, models)
    folder.write_devices(path, devices)
    lines = folder.read_records(path)
    summary = summarise_run(setting.experiment, lines, folder.wall_seconds(path), now, judged)
    json_files.write_json(path, folder.SUMMARY, summary)
    return Run(setting.experiment, summary, path, sim.notices, _lines=lines)


def _keep_failed(setting: Setting, sim: Simulation, path: Path | None, seconds: float, why: str) -> Run:
    """How far a run came that can't go on: its records, and the last models that were any good."""
    models = setting.models
    good = {view: (spec, params) for view, (spec, params) in sim.find_models().items() if finite(params)}
    if path is not None:
        folder.add_session(path, seconds)
        model_files.write_models(path, good, models)
        left = replace(load(path), notices=sim.notices, failed=why)
        json_files.write_json(path, folder.FAILED, {"failed": why})  # last: other parts go by it
        return left
    modules = {view: models[spec].module(params) for view, (spec, params) in good.items()}
    summary = summarise_run(setting.experiment, sim.records, seconds, None)
    return Run(setting.experiment, summary, None, sim.notices, why, sim.records, modules)


def _say_where(error: PotluckError, path: Path | None) -> PotluckError:
    """The same error, and where the records of a run that had begun are."""
    if path is None or not snapshot.list_all(path):
        return error
    return error.retell(f"{error}; its records are in {path}")


def _by_name(experiment: Experiment) -> bool:
    from potluck.algorithms import names

    return experiment.algorithm in names()
