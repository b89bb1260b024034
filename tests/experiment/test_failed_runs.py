"""A run that can't go on: it says why and exits with 1, what there is of it stays, and others go on."""

import json

import pytest
import torch
from support import try_rates

from potluck.cli import main
from potluck.core.errors import DivergedError, StorageError
from potluck.experiment import Experiment, compare, folder, json_files, load, resume, run, runs, tune
from potluck.experiment.comparison import load_comparison, resume_comparison
from potluck.experiment.runs import Run

# Nine of ten devices send numbers whose squares are infinite: Adam can't take them in, averaging can.
TABLES = dict(
    data={"source": "synthetic", "rows": 300, "clients": 10},
    fleet={"attack": {"kind": "malformed", "what": "huge", "share": 0.9}},
    run={"executor": "loop"},
    stop={"rounds": 6},
)
SAID = (
    r"round 3 of the cloud: 3 merges in a row made NaN or infinite numbers and were undone; .*3.4e\+38 from"
)


def experiment(algorithm="fedadam", **more):
    return Experiment(algorithm=algorithm, **TABLES | more)


def command(capsys, *arguments):
    """A command's exit code, and the lines that it wrote to stderr."""
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as end:
        code = end.code
    return code or 0, capsys.readouterr().err.strip().splitlines()


def test_its_folder_records_and_last_good_model_stay(tmp_path, capsys):
    place = tmp_path / "run"
    with pytest.raises(DivergedError, match=SAID):
        run(experiment(), place)
    left = load(place)
    assert not left.finished
    assert [r["metric"] for r in left.lines].count("undone") == 2
    (model,) = left.models.values()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert command(capsys, "list", tmp_path) == (0, [])
    assert command(capsys, "show", place) == (0, [])
    assert command(capsys, "report", place)[0] == 0
    with pytest.raises(DivergedError, match=SAID):  # it comes to the same again
        resume(place)


def test_it_has_failed_until_it_is_tried_again(tmp_path, monkeypatch):
    """Also if no model of it is any good."""
    place, during = tmp_path / "run", []
    monkeypatch.setattr(runs, "finite", lambda params: False)
    assert run(experiment(), place, lenient=True).models == {}
    assert "3 merges in a row" in json.loads((place / "failed.json").read_text())["failed"]
    assert folder.has_failed(place)
    follow = runs._follow

    def look(*args):
        during.append((place / "failed.json").exists())
        return follow(*args)

    monkeypatch.setattr(runs, "_follow", look)
    with pytest.raises(DivergedError):
        resume(place)
    assert during == [False]
    assert folder.has_failed(place)


def test_one_that_broke_off_after_its_models_has_not_failed(tmp_path, monkeypatch):
    """Say, for want of room: it is as good as any, and goes on once there is some."""
    place = tmp_path / "run"

    def refuse(*_):
        raise StorageError("no room")

    with monkeypatch.context() as full:
        full.setattr(json_files, "write_json", refuse)
        with pytest.raises(StorageError):
            run(experiment("fedavg"), place)
    assert list(place.glob("models/*.safetensors"))
    assert not folder.has_failed(place)
    assert resume(place).finished
    assert not folder.has_failed(place)


def test_the_command_says_one_line_and_exits_with_1(tmp_path, capsys):
    file = tmp_path / "own.toml"
    file.write_text(experiment().to_toml())
    code, said = command(capsys, "run", file, "--out", tmp_path / "run", "--quiet")
    assert code == 1
    (line,) = said
    assert line.startswith("potluck: ")
    assert "round 3 of the cloud: 3 merges in a row" in line


def test_in_memory_it_is_given_as_far_as_it_came_if_asked():
    with pytest.raises(DivergedError, match=SAID):
        run(experiment())
    left = run(experiment(), lenient=True)
    assert isinstance(left, Run)
    assert left.failed is not None
    assert "3 merges in a row" in left.failed
    assert not left.finished
    assert all(torch.isfinite(p).all() for model in left.models.values() for p in model.parameters())


@pytest.mark.parametrize("jobs", [1, 2])
def test_in_a_comparison_the_others_go_on(tmp_path, jobs):
    names = ["fedadam", "fedavg"]
    found = compare(experiment(), names, [1, 2], tmp_path / "all", jobs=jobs)
    assert list(found.failed) == ["fedadam-1", "fedadam-2"]
    assert all("3 merges in a row" in why for why in found.failed.values())
    assert [r.finished for r in found.runs] == [False, False, True, True]
    assert len(found.rows) == 2
    assert [r.finished for r in load_comparison(tmp_path / "all").runs] == [False, False, True, True]
    assert list(resume_comparison(tmp_path / "all", jobs=jobs).failed) == ["fedadam-1", "fedadam-2"]


def test_a_comparison_in_memory_and_its_command(tmp_path, capsys):
    found = compare(experiment(), ["fedavg", "fedadam"], [1])
    assert list(found.failed) == ["fedadam-1"]
    file, place = tmp_path / "own.toml", tmp_path / "all"
    file.write_text(experiment().to_toml())
    asked = ("compare", file, "--algorithms", "fedavg,fedadam", "--seeds", "1", "--out", place)
    code, said = command(capsys, *asked, "--quiet")
    assert code == 1
    assert said[-1].startswith("potluck: fedadam-1: ")
    assert (place / "report.html").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rate_at_which_a_run_breaks_counts_as_0(tmp_path, jobs):
    wanted = experiment(tune=try_rates(0.05, 0.1), stop={"rounds": 20})
    found = tune(wanted, ["fedadam"], tmp_path / "tuned", jobs=jobs)
    assert [trial["results"] for trial in found.results["fedadam"]] == [[0.0], [0.0]]
