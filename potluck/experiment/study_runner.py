"""Studies found, run and resumed: what was finished before isn't done again."""

import sys
from collections.abc import Sequence
from pathlib import Path

from potluck.core.codec import Json
from potluck.core.errors import ConfigError, PotluckError, RunError, nearest
from potluck.experiment import folder, json_files
from potluck.experiment.code import execute_file
from potluck.experiment.launch import execution_plan
from potluck.experiment.launch.batch import RunBatch, RunRequest
from potluck.experiment.launch.follower import Show
from potluck.experiment.launch.spread import Spread, read_spread
from potluck.experiment.runs import Run
from potluck.experiment.study import Arm, Results, Study, StudyPlan
from potluck.experiment.tune_stages import count_own_trials, search
from potluck.experiment.tuning import Tuning

STUDIES, RESULTS = Path("studies"), "study.json"


def list_studies() -> dict[str, Study]:
    """The studies of this directory, by their names."""
    found = {name: study for path in _files() for name, study in read(path).items()}
    return {name: found[name] for name in sorted(found)}


def find(name: str) -> tuple[Path, Study]:
    """A study and its file: in ./studies by its name, or anywhere by its path.

    `fedrac_teach_few` (or `elsewhere/fedrac_teach_few.py`) may have a file of its own, or be `few` of the
    STUDIES of `fedrac_teach.py`.
    """
    wanted = Path(name).with_suffix("") if name.endswith(".py") else STUDIES / name
    known = [path.stem for path in _files()]
    for end in _ends(wanted.name):
        path = wanted.with_name(f"{wanted.name[:end]}.py")
        if path.is_file():
            found = read(path)
            if wanted.name in found:
                return path, found[wanted.name]
            known += found
    if name.endswith(".py"):
        raise ConfigError(f"{name}: no such file")
    hint = nearest(name, sorted(set(known))) if known else f"there are none in ./{STUDIES}; name a file"
    raise ConfigError(f"study {name!r}: no such study; {hint}")


def _files() -> list[Path]:
    return sorted(path for path in STUDIES.glob("*.py") if not path.name.startswith("_"))


def _ends(name: str) -> list[int]:
    """Where the name of a study's file may end: the whole name, then before each underscore."""
    return [len(name), *(at for at in range(len(name) - 1, 0, -1) if name[at] == "_")]


def read(path: Path) -> dict[str, Study]:
    """The studies of a file by their names: its STUDY has the file's, those of STUDIES a key behind it."""
    sys.path.insert(0, str(path.parent.resolve()))  # studies may share what lies beside them
    try:
        module = execute_file(path, f"potluck_study_{path.stem}")
    finally:
        sys.path.remove(str(path.parent.resolve()))
    names = vars(module)
    found = {path.stem: names["STUDY"]} if "STUDY" in names else {}
    if variants := names.get("STUDIES"):
        if not isinstance(variants, dict):
            raise ConfigError(f'{path}: STUDIES is no table; write STUDIES = {{"few": Study(...), ...}}')
        found |= {f"{path.stem}_{key}": study for key, study in variants.items()}
    if not found:
        raise ConfigError(f"{path}: defines no STUDY; write STUDY = Study(title=..., ...)")
    for name, study in found.items():
        if not isinstance(study, Study):
            raise ConfigError(f"{path}: {name} is {study!r}; write Study(title=..., ...)")
    return found


def run_study(
    name: str,
    scale: str = "quick",
    out: str | Path | None = None,
    show: Show | None = None,
    *,
    settings: Sequence[str] = (),
    force: bool = False,
    jobs: int | None = None,
    on: str | None = None,
) -> Results:
    """Run a study, or what is missing of it; `out`: runs/studies/NAME-SCALE unless told.

    `jobs`: runs that are computed at a time, in processes of their own; 0: one a core, where that helps.
    `on`: other machines that compute them, such as 'ray:HOST:6379'.
    """
    place = default_folder(name, scale) if out is None else Path(out)
    spread = read_spread(jobs, place, on)
    plan, tunings, asked, batch = _ask(name, scale, place, show, settings, force, spread)
    batch.compute_ahead(run for _, _, run in asked)
    runs: dict[tuple[str, str], list[Run]] = {}
    for scenario, arm, run in asked:
        done = batch.run(*run)
        if done.failed is not None:  # half a run belongs into no table
            raise RunError(f"{run.name}: {done.failed}")
        runs.setdefault((scenario, arm.name), []).append(done)
    results = Results(Path(name).stem, plan, runs, tunings, _machines(runs), place)
    json_files.write_json(place, RESULTS, summarise(results))
    return results


def run_study_part(
    name: str,
    scale: str,
    out: Path,
    show: Show,
    *,
    part: str,
    settings: Sequence[str] = (),
    jobs: int = 1,
) -> RunBatch:
    """Compute one part of a study's trials and runs; others compute the rest."""
    *_, asked, batch = _ask(name, scale, out, show, settings, False, read_spread(jobs, out, part=part))
    batch.compute_part(run for _, _, run in asked)
    return batch


def _ask(
    name: str,
    scale: str,
    place: Path,
    show: Show | None,
    settings: Sequence[str],
    force: bool,
    spread: Spread,
) -> tuple[StudyPlan, dict[str, Tuning], list[tuple[str, Arm, RunRequest]], RunBatch]:
    """The runs of a study at their settings, after everything was checked and tuned."""
    path, study = find(name)
    spread = spread.for_study(path)
    try:
        plan = study.plan(scale, settings)
        total, grid = plan.total, plan.tune
        wanted = [
            (scenario, arm, plan.experiment(arm, scenario, seed), _place(place, scenario, arm, seed))
            for scenario in plan.scenarios
            for seed in plan.scale.seeds
            for arm in plan.arms
        ]
        trials, runs = plan.trials, total - plan.trials
        if spread.part is not None:
            runs = spread.part.count(runs)
            if grid is not None:
                trials = count_own_trials(plan.searches.values(), grid, spread.part)
        work = trials * (1.0 if grid is None else grid.length) + runs
        batch = RunBatch(trials + runs, work, show, force=force, spread=spread)
        for _, _, experiment, at in wanted:
            if experiment.seed == plan.scale.seeds[0] and not folder.is_finished(at):
                batch.check(experiment, None if grid else at)  # it may be there at the settings of a tuning
    except PotluckError as error:
        raise error.retell(f"{path}: {error}") from error.__cause__
    folder.make(place)
    tunings = _tune(plan, place, batch)
    asked: list[tuple[str, Arm, RunRequest]] = []
    for turn, (scenario, arm, experiment, at) in enumerate(wanted):
        tuning = tunings.get(scenario, tunings.get(plan.scenarios[0]))
        experiment = plan.with_choice(experiment, arm, tuning)
        title = "-".join(part for part in (scenario, arm.name, str(experiment.seed)) if part)
        asked.append((scenario, arm, RunRequest(title, experiment, at, turn=turn)))
    return plan, tunings, asked, batch


def default_folder(name: str, scale: str) -> Path:
    """Where a study's runs go, unless told."""
    return Path("runs") / "studies" / f"{Path(name).stem}-{scale}"


def summarise(results: Results) -> dict[str, Json]:
    """The content of study.json."""
    plan = results.plan
    values: list[Json] = [
        {
            "scenario": scenario,
            "arm": arm,
            "lr": (one := runs[0].experiment).training(one.algorithm).lr,
            "parameters": one.algorithms[one.algorithm],
            **{measure.name: [*results.values(measure, arm, scenario)] for measure in plan.study.measures},
        }
        for (scenario, arm), runs in results.runs.items()
    ]
    return {
        "study": results.name,
        "scale": plan.name,
        "seeds": list(plan.scale.seeds),
        "machines": [*results.machines],
        "results": values,
        "tuning": {scenario: tuning.summary() for scenario, tuning in results.tunings.items()},
    }


def _tune(plan: StudyPlan, place: Path, batch: RunBatch) -> dict[str, Tuning]:
    if plan.tune is None:
        return {}
    searches = {
        scenario: (methods, folder.find_below(place, *_name_scenario(scenario), folder.TUNING))
        for scenario, methods in plan.searches.items()
    }
    return search(searches, plan.tune, batch)


def _machines(runs: dict[tuple[str, str], list[Run]]) -> list[str]:
    """Where runs began, and with which torch."""
    places = [run.path for same in runs.values() for run in same if run.path]
    return sorted({execution_plan.read_origin(place) for place in places})


def _place(place: Path, scenario: str, arm: Arm, seed: int) -> Path:
    return folder.find_below(place, *_name_scenario(scenario), f"{folder.to_path_part(arm.name)}-{seed}")


def _name_scenario(scenario: str) -> list[str]:
    """The folder of a scenario's runs, unless it is the only one."""
    return [folder.to_path_part(scenario)] if scenario else []
