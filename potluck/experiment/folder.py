"""A run's folder: what was asked for, how it is computed, what came of it.

A comparison's, a tuning's or a study's holds the folders of its runs.

experiment.toml     complete: `potluck run experiment.toml` repeats the run
code.json           name and sha256 of the file that --code loaded, if any: resuming wants the same
packages.json       versions of others' packages that offered it anything, if any: resuming wants the same
plan.json           executor and sizes, pinned, since resuming must compute alike
records.jsonl       what was measured, append-only
records.sums        how long it was at the last snapshots, and the sha256 of that
keep.log            what devices remember between tasks; keep.1.log and so on, once much of it is old
snapshots/          where to go on after an end that nobody planned
sessions.jsonl      seconds of real time, one line for each start
pulse.jsonl         who was at work, a line a second at most, for `potluck watch`
devices.json        who they were: speed, links, rows at first and at the end, the last tasks; written once
summary.json        what the run came to: written last, so a folder that has one is finished
failed.json         why the run couldn't go on, if so: written last in its stead, and gone once it is resumed
models/             what was trained, one safetensors file for each view
log/                what the tools of [log] keep
.computing          who computes it, as long as somebody does
"""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from potluck.core import safe_files
from potluck.core.errors import ConfigError, SnapshotError, StorageError, require
from potluck.core.records import Record
from potluck.engine import record_sums, snapshot
from potluck.experiment import claim as claim_file
from potluck.experiment import code, json_files, packages, toml
from potluck.experiment.device_summary import DeviceSummary, find_mismatch
from potluck.experiment.launch.hardware import identify_machine
from potluck.experiment.record_check import find_record_fault
from potluck.experiment.run_lock import lock_run
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.log_table import Log
from potluck.experiment.schema.settings import as_recorded
from potluck.experiment.sinks.log_folder import LOG
from potluck.experiment.summary import Summary
from potluck.simulate.run_state import MEMORIES, RECORDS, SUMS

EXPERIMENT, PLAN, SUMMARY = "experiment.toml", "plan.json", "summary.json"
SESSIONS, MODELS, REPORT, DEVICES = "sessions.jsonl", "models", "report.html", "devices.json"
PULSE, FAILED = "pulse.jsonl", "failed.json"
DEPLOYED = ("federation.json", "bodies", "blobs", "own")  # of a run on real devices, beside journal-*.log
TUNING, TUNED = "tune", "tune.json"  # of a comparison: its trials, and what came of them
_OWN = {
    EXPERIMENT,
    code.RECORD,
    packages.RECORD,
    PLAN,
    RECORDS,
    SUMS,
    DEVICES,
    SUMMARY,
    FAILED,
    SESSIONS,
    PULSE,
    snapshot.FOLDER,
    MODELS,
    REPORT,
    TUNED,
    MEMORIES,
    LOG,
    claim_file.NAME,
    *DEPLOYED,
}
_OTHERS = re.compile(r"\..*\.partial|journal-\d{8}\.log|keep\.\d+\.log")


class Session(TypedDict):
    """A line of sessions.jsonl."""

    seconds: float  # of real time


def claim(folder: Path, force: bool, wanted: "Experiment | Callable[[], Experiment] | None" = None) -> None:
    """See to it that a folder can be made; `force` allows to replace what Potluck made, and nothing else.

    `wanted`: what is to be computed there, or what tells it, to say how it differs from what is there.
    """
    at = f"out = {str(folder)!r}"
    if not folder.exists() and not folder.is_symlink():
        return
    if not force:
        if (change := _find_change(folder, wanted)) is not None:
            fix = "name another folder, or replace it with --force"
            raise ConfigError(f"{at}: was made with other settings ({change}); {fix}")
        fix = f"go on with `potluck resume {folder}`" if (folder / EXPERIMENT).exists() else "name another"
        raise ConfigError(f"{at}: exists already; {fix}, or replace a run with --force")
    if not folder.is_dir() or folder.is_symlink():
        raise ConfigError(f"{at}: not a plain folder, so it isn't replaced; name another")
    if any(folder.iterdir()) and not (folder / EXPERIMENT).is_file():
        raise ConfigError(f"{at}: holds no {EXPERIMENT}, so it isn't a run and isn't deleted; name another")
    foreign = _foreign(folder)
    if foreign is not None:
        raise ConfigError(
            f"{at}: holds {foreign.name!r}, which Potluck didn't make; move it, or name another"
        )
    with lock_run(folder):
        pass  # nobody computes it


def _find_change(folder: Path, wanted: "Experiment | Callable[[], Experiment] | None") -> str | None:
    """The first setting of a folder's experiment that isn't as it is wanted; None: it is that, or unknown."""
    if wanted is None or not (folder / EXPERIMENT).is_file():
        return None
    full = wanted if isinstance(wanted, Experiment) else wanted()
    there = toml.parse(safe_files.read_file(folder, EXPERIMENT), folder / EXPERIMENT)
    asked = toml.parse(full.without_log().to_toml().encode(), Path(full.source))
    return toml.find_change({key: table for key, table in there.items() if key != "log"}, asked)


def create(folder: Path, files: dict[str, str], force: bool, wanted: Experiment | None = None) -> None:
    """A new folder with these files, whole or not at all; replaces what `claim` allows.

    Of several processes that do so at a time one is first, and the others are refused.
    """
    claim(folder, force, wanted)
    place = folder.resolve()  # for its name: that of "." is empty
    partial = place.with_name(f".{place.name}.{identify_machine()}-{os.getpid()}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        _clear_away(place, partial)
        try:
            for name, text in files.items():
                safe_files.write_file(partial, name, text.encode())
            if force and (folder / EXPERIMENT).is_file():
                shutil.rmtree(folder)
            os.rename(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        safe_files.sync_folder(place.parent)
    except StorageError as error:
        raise StorageError(str(error).replace(str(partial), str(folder))) from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            claim(folder, False, wanted)  # which says who has it
        raise ConfigError(f"out = {str(folder)!r}: can't be written ({error.strerror})") from None


def _clear_away(place: Path, partial: Path) -> None:
    """Remove what processes left that were killed while they made this folder; others may be at it now."""
    now = partial.stat().st_mtime  # by the file system's clock
    for other in place.parent.iterdir():
        if other.name.startswith(f".{place.name}.") and other.name.endswith(".partial") and other != partial:
            with contextlib.suppress(FileNotFoundError):
                if other.is_dir() and now - other.lstat().st_mtime >= claim_file.PATIENCE:
                    shutil.rmtree(other)


def make(folder: Path) -> None:
    """A folder of runs, which may be there already."""
    require(
        not (folder / EXPERIMENT).exists(), "out", str(folder), "holds a run or a comparison; name another"
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out = {str(folder)!r}: can't be written ({error.strerror})") from None


def _foreign(folder: Path) -> Path | None:
    """The first thing in a run or a comparison that belongs to neither."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink() and (is_run(entry) or entry.name == TUNING):
            if inner := _foreign(entry):
                return inner
        elif entry.name not in _OWN and not _OTHERS.fullmatch(entry.name):
            return entry
    return None


def to_path_part(name: str) -> str:
    """A name as a part of a path."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "unnamed"


def find_below(folder: Path, *parts: str) -> Path:
    """A folder below one that may be somebody else's: no link is followed to it."""
    for i, part in enumerate(parts):
        if part in ("", ".", "..") or "/" in part:
            raise SnapshotError(f"{folder}: {part!r} is no name of a folder in it; put the old file back")
        safe_files.check_entries(folder, "/".join(parts[:i]), [part])
    return folder.joinpath(*parts)


def is_run(folder: Path) -> bool:
    return safe_files.has_file(folder, EXPERIMENT) and safe_files.has_file(folder, PLAN)


def is_comparison(folder: Path) -> bool:
    """Whether it holds runs by their names; a run that has lost its plan is none, and is refused."""
    if not safe_files.has_file(folder, EXPERIMENT) or safe_files.has_file(folder, PLAN):
        return False
    if snapshot.list_all(folder) or any(safe_files.has_file(folder, name) for name in (RECORDS, SUMMARY)):
        raise SnapshotError(f"{folder / PLAN}: missing; put it back, or run it again")
    return True


def check_run(folder: Path) -> None:
    """An error that says what is there instead of a run."""
    if is_run(folder):
        check_links(folder)
        return
    if not folder.exists():
        raise SnapshotError(f"{folder}: no such folder; `potluck list` shows the runs that there are")
    what = "a comparison; name one of the runs in it" if is_comparison(folder) else "not the folder of a run"
    if safe_files.has_file(folder, TUNED):
        what = "a tuning; the same `potluck tune` again goes on with it"
    elif not is_comparison(folder) and any(is_run(inner) for inner in folder.iterdir()):
        what = (
            "runs of a tuning or a study, which the same command again goes on with; or of a comparison that "
            f"has lost its {EXPERIMENT}: put that back, or name one of the runs"
        )
    raise SnapshotError(f"{folder}: {what} (a run holds {EXPERIMENT} and {PLAN})")


def check_links(folder: Path) -> None:
    """Refuse a folder in which a name of Potluck's is a link, before anything is computed."""
    names = safe_files.list_names(folder, "")
    own = [name for name in names if name in (*_OWN, TUNING) or _OTHERS.fullmatch(name)]
    safe_files.check_entries(folder, "", own)
    for inner in (snapshot.FOLDER, MODELS):
        safe_files.check_entries(folder, inner, safe_files.list_names(folder, inner))


def is_finished(folder: Path) -> bool:
    return safe_files.has_file(folder, SUMMARY)


def has_failed(folder: Path) -> bool:
    """Whether its run said that it couldn't go on, and nobody tries it again."""
    if not is_run(folder) or safe_files.has_file(folder, claim_file.NAME):
        return False
    return safe_files.has_file(folder, FAILED) and not is_finished(folder)


def experiment(folder: Path) -> Experiment:
    """What a folder was made from; names in it were looked up then, and may be of code that isn't here."""
    path = folder / EXPERIMENT
    with as_recorded():
        return Experiment(**toml.parse(safe_files.read_file(folder, EXPERIMENT), path), _source=str(path))


def is_same(folder: Path, wanted: Experiment) -> bool:
    """Whether a run's folder was made from this very experiment, whatever follows it."""
    text = safe_files.read_file(folder, EXPERIMENT)
    if text == wanted.to_toml().encode():
        return True
    there = {key: table for key, table in toml.parse(text, folder / EXPERIMENT).items() if key != "log"}
    return toml.write(there) == wanted.without_log().to_toml()


def change_log(folder: Path, log: Log) -> Experiment:
    """From now on other tools follow the run, or the comparison, of a folder."""
    changed = experiment(folder).model_copy(update={"log": log})
    safe_files.write_file(folder, EXPERIMENT, changed.to_toml().encode())
    return changed


def read_records(folder: Path) -> list[Record]:
    """All whole lines; a run that is being written, or was killed, may end in half of one."""
    if not safe_files.has_file(folder, RECORDS):
        return []
    check_records(folder)
    path, fix = folder / RECORDS, "resume the run, or run it again"
    lines = safe_files.read_file(folder, RECORDS).split(b"\n")[:-1]
    try:
        read = json.loads(b"[" + b",".join(lines) + b"]")  # as one: names of fields are kept once
    except (ValueError, RecursionError) as error:
        raise json_files.damaged(path, str(error), fix) from None
    for record in read:
        if (why := find_record_fault(record)) is not None:
            raise json_files.damaged(path, why, fix)
    records: list[Record] = read
    return records


def check_records(folder: Path) -> None:
    """Refuse records that aren't as the run wrote them: what is told of it would be wrong."""
    path = folder / RECORDS
    fault = record_sums.find_fault(path)
    if fault is None and not safe_files.has_file(folder, SUMS) and snapshot.list_all(folder):
        fault = f"{folder / SUMS}: missing"
    if fault is not None:
        raise SnapshotError(f"{fault}; put the old file back, or run it again")
    wrote, has = record_sums.find_lengths(path)
    if is_finished(folder) and has > wrote:
        raise SnapshotError(
            f"{path}: {has - wrote} bytes were added after the run (it wrote {wrote}); keep them elsewhere, "
            f"and cut it: truncate -s {wrote} {path}"
        )


def list_lost(folder: Path) -> list[str]:
    """What a finished run has no more, for people."""
    lost = [] if safe_files.list_names(folder, MODELS) else [f"{MODELS}/"]
    lost += [] if safe_files.has_file(folder, DEVICES) else [DEVICES]
    return [f"{folder / name}: missing; put it back, or run it again" for name in lost]


def read_summary(folder: Path) -> Summary:
    return json_files.read_json(folder, SUMMARY, Summary, "delete it and resume the run")


def write_devices(folder: Path, devices: DeviceSummary) -> None:
    safe_files.write_file(folder, DEVICES, (json.dumps(devices, separators=(",", ":")) + "\n").encode())


def read_devices(folder: Path) -> DeviceSummary | None:
    """None if the run has none: it isn't finished, or the file was deleted."""
    if not safe_files.has_file(folder, DEVICES):
        return None
    fix = "delete it, or run it again"
    devices = json_files.read_json(folder, DEVICES, DeviceSummary, fix)
    if (why := find_mismatch(devices)) is not None:
        raise json_files.damaged(folder / DEVICES, why, fix)
    return devices


def add_session(folder: Path, seconds: float) -> None:
    before = safe_files.read_file(folder, SESSIONS) if safe_files.has_file(folder, SESSIONS) else b""
    line = json.dumps({"seconds": round(seconds, 3)}) + "\n"
    safe_files.write_file(folder, SESSIONS, before, line.encode())


def wall_seconds(folder: Path) -> float:
    """Real time of all sessions that came to an orderly end."""
    if not safe_files.has_file(folder, SESSIONS):
        return 0.0
    path, fix, total = folder / SESSIONS, "delete it: real time is then counted from now on", 0.0
    for line in safe_files.read_file(folder, SESSIONS).splitlines():
        content = json_files.parse(line, path, fix)
        if not isinstance(content, dict):
            raise json_files.damaged(path, "a line is no table", fix)
        total += json_files.make(content, Session, path, fix)["seconds"]
    return float(total)
