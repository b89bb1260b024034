"""Folders that somebody else made, and disks that are full: one line, and nothing outside is touched."""

import contextlib
import errno
import json
import os
import random
import re
import resource
import shutil

import pytest
import safetensors
import torch

from potluck.cli import main
from potluck.core.errors import PotluckError, SnapshotError
from potluck.core.job import ModelSpec
from potluck.experiment import folder, model_files
from potluck.experiment.record_check import find_record_fault
from potluck.models import Models

SMALL = """
name = "small"
compare = ["fedavg", "fedasync"]
seeds = [1]
[data]
source = "synthetic"
rows = 400
dimension = 8
classes = 4
clients = 8
[model]
name = "linear"
[stop]
rounds = 4
[run]
executor = "loop"
[algorithms.fedavg]
clients = 3
[algorithms.fedasync]
clients = 3
"""
READ = (("show", "it"), ("report", "it"))


def call(capsys, *arguments):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out, said.err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run and a comparison, to be copied."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.toml").write_text(SMALL)
    with contextlib.chdir(place):
        for command in (("run", "small.toml", "--out", "run"), ("compare", "small.toml", "--out", "both")):
            with pytest.raises(SystemExit) as ended:
                main([*command, "-q"])
            assert not ended.value.code
    return place


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """A run that has yet to write what came of it."""
    shutil.copytree(made / "run", tmp_path / "here" / "it")
    (tmp_path / "here" / "it" / "summary.json").unlink()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here" / "it"


@pytest.fixture
def both(made, tmp_path, monkeypatch):
    shutil.copytree(made / "both", tmp_path / "here" / "it")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here" / "it"


def look(place):
    """All that lies in a folder, with its content."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in place.rglob("*")
    }


def plant(run, name, kind, outside):
    """Put a link in a place: to a copy of what was there, to a folder, or to nothing that is there."""
    place = run / name
    outside.mkdir()
    target = outside / "target"
    if kind == "same":
        if place.is_dir():
            shutil.copytree(place, target)
        elif place.exists():
            shutil.copy(place, target)
        else:
            target.write_text("{}\n")
    elif kind == "folder":
        target.mkdir()
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(target)


def refused(said, *words):
    code, _, err = said
    assert code == 2, err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert all(word in err for word in words), err
    return True


NAMES = [
    *("records.sums", "keep.1.log"),
    *("records.jsonl", "keep.log", "experiment.toml", "plan.json", "summary.json", ".summary.json.partial"),
    *("devices.json", "sessions.jsonl", "code.json", "packages.json", "report.html", ".report.html.partial"),
    *("snapshots", "models", "models/@", "snapshots/@"),
]


@pytest.mark.parametrize("kind", ["same", "folder", "dangling"])
@pytest.mark.parametrize("name", NAMES)
def test_links_in_a_run_are_refused_by_name(name, kind, run, tmp_path, capsys):
    if name.endswith("@"):
        name = str(next((run / name).parent.iterdir()).relative_to(run))
    plant(run, name, kind, tmp_path / "outside")
    before = look(tmp_path / "outside"), look(run)
    for command in (("resume", "it"), *READ):
        assert refused(call(capsys, *command), f"{name}: a symbolic link")
    assert (look(tmp_path / "outside"), look(run)) == before
    if (name, kind) == ("experiment.toml", "dangling"):
        return  # there is no run to list
    code, out, err = call(capsys, "list", ".", "--json")
    assert (code, [line["state"] for line in json.loads(out)]) == (0, ["damaged"])
    assert err.count("\n") == 1
    assert f"{name}: a symbolic link" in err


def test_one_bad_run_hides_no_other(run, made, capsys):
    shutil.copytree(made / "run", run.parent / "healthy")
    (run / "records.jsonl").write_text("[\n")
    code, out, err = call(capsys, "list", ".")
    assert code == 0
    assert re.search(r"healthy +fedavg +1 +finished", out)
    assert re.search(r"it +– +– +damaged", out)
    assert err.count("\n") == 1
    assert "it/records.jsonl: 2 bytes, but" in err


@pytest.mark.parametrize("kind", ["same", "folder", "dangling"])
@pytest.mark.parametrize("name", ["experiment.toml", "code.json", "report.html", "fedavg-1", "tune"])
def test_links_in_a_comparison_are_refused_by_name(name, kind, both, tmp_path, capsys):
    plant(both, name, kind, tmp_path / "outside")
    before = look(tmp_path / "outside")
    for command in (("resume", "it"), ("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), f"{name}: a symbolic link")
    assert look(tmp_path / "outside") == before


def test_a_comparison_has_its_runs_inside(both, tmp_path, capsys):
    shutil.move(both / "fedavg-1", tmp_path / "here" / "other-1")
    (tmp_path / "here" / "other-1" / "summary.json").unlink()
    text = (both / "experiment.toml").read_text()
    lie = '{ algorithm = "fedavg", name = "../other" },'
    (both / "experiment.toml").write_text(text.replace('"fedavg",', lie, 1))
    before = look(tmp_path / "here" / "other-1")
    for command in (("resume", "it"), ("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), "name = '../other': use letters")
    assert look(tmp_path / "here" / "other-1") == before


def test_the_folder_itself_may_be_a_link(run, tmp_path, capsys):
    run.rename(tmp_path / "moved")
    run.symlink_to(tmp_path / "moved")
    assert call(capsys, "resume", "it", "-q")[0] == 0
    assert (tmp_path / "moved" / "summary.json").is_file()


def test_data_of_figures_are_not_written_through_links(run, tmp_path, capsys):
    (tmp_path / "here" / "data").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "here" / "data" / "table.csv").symlink_to(tmp_path / "mine")
    assert refused(call(capsys, "report", "it", "--csv", "data"), "table.csv: a symbolic link")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["records.jsonl", "plan.json", "devices.json"])
def test_a_pipe_is_not_waited_for(name, run, capsys):
    (run / name).unlink()
    os.mkfifo(run / name)
    for command in (("resume", "it", "-q"), ("report", "it")):
        assert refused(call(capsys, *command), f"{name}: not a plain file")


@pytest.mark.parametrize("name", ["records.jsonl", "plan.json", "experiment.toml", "snapshots/@"])
def test_a_file_that_is_too_large_is_not_read(name, run, capsys):
    if name.endswith("@"):
        name = f"snapshots/{max(path.name for path in (run / 'snapshots').iterdir())}"
    os.truncate(run / name, 1 << 40)  # which takes nothing on the disk
    command = "show" if name == "records.jsonl" else "resume"  # which cuts it
    assert refused(call(capsys, command, "it"), f"it/{name}: 1.1 TB, and ")


# ------------------------------------------------------------------------------------------- full disks


def find_partial(place):
    return [path for path in place.rglob("*") if path.name.endswith(".partial")]


def test_a_disk_that_is_full_at_any_moment(made, tmp_path, monkeypatch, capsys):
    """Every call of fsync fails once: a line names the file and says how to go on, and that works."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(made / "small.toml", tmp_path)
    real, calls, failing = os.fsync, 0, 0

    def full(file):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    kinds = set()
    while failing < 99:
        failing += 1
        shutil.rmtree("it", ignore_errors=True)
        calls = 0
        said = call(capsys, "run", "small.toml", "--out", "it", "-q")
        if said[0] == 0:
            break
        assert refused(said, "it", "(No space left on device)")
        assert find_partial(tmp_path) == []
        begun = (tmp_path / "it").exists()
        assert ("go on with: potluck resume it\n" in said[2]) == begun
        if begun:
            kinds.add(said[2].split(": ")[1])
            assert call(capsys, "resume", "it", "-q")[0] == 0
            names = ("records.jsonl", "experiment.toml", "plan.json", "devices.json")
            assert all((tmp_path / "it" / n).read_bytes() == (made / "run" / n).read_bytes() for n in names)
    assert said[0] == 0
    assert failing > 15
    names = ("records.jsonl", "keep.log", "sessions.jsonl", "devices.json", "summary.json")
    assert {f"it/{name}" for name in names} <= kinds


def test_a_log_that_may_not_grow(made, tmp_path, monkeypatch):
    """By a limit of the system: what is written fails where it is written."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(made / "small.toml", tmp_path)
    if (child := os.fork()) == 0:
        code = 1
        try:
            with open("said", "wb") as said:
                os.dup2(said.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_FSIZE, (9000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            with contextlib.redirect_stderr(open(2, "w", closefd=False)):
                main(["run", "small.toml", "--out", "it", "-q", "--set", "stop.rounds=400"])
        except SystemExit as ended:
            code = ended.code
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    text = (tmp_path / "said").read_text()
    assert text.count("\n") == 1
    assert "(File too large); make room; go on with: potluck resume it" in text
    assert find_partial(tmp_path) == []


# ------------------------------------------------------------------------------------- damaged small files


def test_a_run_that_has_lost_its_plan(run, capsys):
    (run / "plan.json").unlink()
    for command in (("resume", "it"), ("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), "plan.json: missing; put it back")


def test_an_experiment_alone_is_no_comparison(run, capsys):
    text = (run / "experiment.toml").read_text()
    (run / "experiment.toml").write_text(re.sub(r"compare = \[.*?\]", "compare = []", text, flags=re.DOTALL))
    for path in run.iterdir():
        if path.name != "experiment.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for command in (("resume", "it"), ("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), "experiment.toml: names no runs to compare")


@pytest.mark.parametrize("finished", [True, False])
def test_records_that_were_edited(finished, run, made, capsys):
    """A number that somebody changed, in a run that has ended or has yet to: no table, no page."""
    if finished:
        shutil.copy(made / "run" / "summary.json", run)
    text = (run / "records.jsonl").read_bytes()
    (run / "records.jsonl").write_bytes(text.replace(b'"value":0.', b'"value":1.', 1))
    for command in (("show", "it"), ("report", "it"), *([] if finished else [("resume", "it")])):
        assert refused(call(capsys, *command), "records.jsonl: damaged or edited", "run it again")


def test_records_to_which_somebody_added(run, made, capsys):
    shutil.copy(made / "run" / "summary.json", run)
    before = (run / "records.jsonl").read_bytes()
    line = b'{"round":4,"time":1.0,"metric":"mine","value":1}\n'
    (run / "records.jsonl").write_bytes(before + line)
    told = f"{len(line)} bytes were added after the run (it wrote {len(before)})"
    for command in (("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), "records.jsonl", told, f"truncate -s {len(before)} ")
    os.truncate(run / "records.jsonl", len(before))
    assert call(capsys, "show", "it")[0] == 0


def test_records_whose_checksums_are_missing(run, capsys):
    (run / "records.sums").unlink()
    for command in (("show", "it"), ("report", "it"), ("resume", "it")):
        assert refused(call(capsys, *command), "records.sums", "run it again")


def spoil(data, rng):
    """Bytes that somebody has damaged, or JSON that somebody has made up."""
    kind = rng.randrange(6)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        at = rng.randrange(len(data))
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return rng.choice([b"", b"[]", b"null", b"3", b'"x"', b"{}", b"\xff\xfe", b"\0" * 9, b"[" * 99999])
    content = json.loads(data.splitlines()[0] if kind == 3 else data)
    key = rng.choice(list(content))
    if kind == 4:
        del content[key]
    else:
        content[key] = rng.choice([None, [], {}, "x", -1, 1.5, True, [None], [[1]], {"a": []}])
    return json.dumps(content).encode()


@pytest.mark.parametrize("name", ["plan.json", "sessions.jsonl", "summary.json", "devices.json", "code.json"])
def test_small_files_that_are_damaged(name, run, made, capsys):
    rng = random.Random(name)
    code = b'{"file": "a.py", "sha256": "00"}'
    good = code if name == "code.json" else (made / "run" / name).read_bytes()
    refusals = 0
    for _ in range(40):
        try:
            bad = spoil(good, rng)
        except ValueError:  # several lines aren't one value
            continue
        (run / name).write_bytes(bad)
        for command in (("show", "it"), ("resume", "it", "-q")):
            said = call(capsys, *command)
            if said[0]:
                assert refused(said, "it/" if name != "code.json" else "it")
                refusals += 1
        if name == "devices.json":
            with contextlib.suppress(SnapshotError):
                (run / name).write_bytes(bad)
                folder.read_devices(run)
        if name != "summary.json":
            (run / "summary.json").unlink(missing_ok=True)
    assert refusals > 10 or name == "devices.json"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tasks": {}}, "tasks are no table"),
        ({"rows": [[1]] * 8, "rows_at_end": [[1, 2]] * 8}, "rows are no table"),
        ({"rows": [[]] * 8}, "rows are no table"),
        ({"user": [0]}, "not one entry for each of nodes"),
        ({"nodes": [0] * 7 + [None]}, r"nodes\[7\] should be a whole number"),
    ],
)
def test_devices_that_do_not_fit_together(change, why, run):
    devices = json.loads((run / "devices.json").read_text())
    (run / "devices.json").write_text(json.dumps(devices | change))
    with pytest.raises(SnapshotError, match=rf"devices.json: damaged \({why}"):
        folder.read_devices(run)


def test_a_model_file_that_is_damaged(run):
    rng = random.Random(1)
    path = next((run / "models").iterdir())
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"dtype":"float32"', b'"dtype":"compile"', 1))
    with pytest.raises(SnapshotError, match=r"models/.*: damaged"):
        model_files.read_models(run)
    for _ in range(200):
        at = rng.randrange(len(good) // 2)
        path.write_bytes(rng.choice([good[:at], good[:at] + bytes([rng.randrange(256)]) + good[at + 1 :]]))
        with contextlib.suppress(PotluckError):  # a name of no model, say
            model_files.read_models(run)


def test_equal_models_are_equal_bytes(tmp_path):
    served = {"global": (ModelSpec("linear"), {"weight": torch.ones(3, 2), "bias": torch.arange(3.0)})}
    content = set()
    for i in range(8):
        (tmp_path / str(i)).mkdir()
        model_files.write_models(tmp_path / str(i), served, Models((2,), 3))
        content.add((tmp_path / str(i) / "models" / "global.safetensors").read_bytes())
    assert len(content) == 1
    with safetensors.safe_open(tmp_path / "0" / "models" / "global.safetensors", "pt") as file:
        assert file.metadata()["view"] == "global"
        assert torch.equal(file.get_tensor("bias"), torch.arange(3.0))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metric": "accuracy", "node": {}}, "accuracy: node should be a whole number"),
        ({"metric": "accuracy", "value": "x"}, "accuracy should be a number"),
        ({"metric": "tasks", "value": 10**400}, "tasks should be a number"),
        ({"time": "x"}, "round and time should be numbers"),
        ({"time": float("nan")}, "round and time should be numbers"),
        ({"metric": []}, "a metric should be a text"),
        ({"metric": "attackers", "value": [[1]]}, r"attackers[0] should be a whole number"),
        ({"metric": "chosen", "value": {"name": 3}}, "chosen.name should be a text"),
    ],
)
def test_records_with_strange_values_are_told(change, why):
    line = {"round": 1, "time": 0.5, "metric": "mine", "value": {"of": ["any", "kind"]}}
    assert find_record_fault(line) is None
    assert find_record_fault(line | change).endswith(why)


def test_records_with_strange_values_are_not_drawn(run, capsys):
    lines = (run / "records.jsonl").read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | {"time": "x"})
    (run / "records.jsonl").write_text("\n".join(lines) + "\n")
    for command in (("show", "it"), ("report", "it")):
        assert refused(call(capsys, *command), "it/records.")
