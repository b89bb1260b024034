"""What commands say of folders that are there already: what differs, what is lost, whether it goes on."""

import shutil

import pytest

from potluck import algorithms
from potluck.cli import main
from potluck.core import safe_files
from potluck.core.errors import StorageError

FILE = """
name = "small"
compare = ["fedavg"]
data = { source = "synthetic", rows = 200, clients = 4 }
model = { name = "linear" }
stop = { rounds = 1 }
run = { executor = "loop" }
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(FILE)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code or 0, capsys.readouterr().err

    return run


@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_differs_from_a_folder_is_named(call, command):
    assert call(command, "small.toml", "--out", "a", "--quiet")[0] == 0
    code, err = call(command, "small.toml", "--out", "a", "--set", "stop.rounds=2")
    assert code == 2
    assert "out = 'a': was made with other settings (stop.rounds = 1 there, 2 here); name another" in err
    if command == "run":
        assert "exists already; go on with `potluck resume a`" in call(command, "small.toml", "--out", "a")[1]


def test_a_finished_comparison_has_nothing_to_follow(call):
    assert call("compare", "small.toml", "--out", "a", "--quiet")[0] == 0
    code, err = call("resume", "a", "--set", 'log.to=["csv"]')
    assert code == 0
    assert "a: finished already; nothing is left that log.to could follow" in err
    assert "a: finished already\n" in call("resume", "a")[1]


def test_a_comparison_without_its_file_is_told_so(call, tmp_path):
    assert call("compare", "small.toml", "--out", "a", "--quiet")[0] == 0
    (tmp_path / "a" / "experiment.toml").unlink()
    code, err = call("resume", "a")
    assert code == 2
    assert "or of a comparison that has lost its experiment.toml: put that back" in err


def test_what_a_finished_run_has_lost_is_told(call, tmp_path):
    assert call("run", "small.toml", "--out", "a", "--quiet")[0] == 0
    assert "missing" not in call("show", "a")[1]
    shutil.rmtree(tmp_path / "a" / "models")
    (tmp_path / "a" / "devices.json").unlink()
    for command in ("show", "resume"):
        code, err = call(command, "a")
        assert code == 0
        for name in ("models", "devices.json"):
            assert f"a/{name}: missing; put it back, or run it again" in err


def test_what_force_did_not_replace_is_not_gone_on_with(call, tmp_path, monkeypatch):
    assert call("run", "small.toml", "--out", "a", "--quiet")[0] == 0
    before = (tmp_path / "a" / "experiment.toml").read_bytes()

    def full(*arguments):
        raise StorageError("a/experiment.toml: can't be written (No space left on device)")

    monkeypatch.setattr(safe_files, "write_file", full)
    code, err = call("run", "small.toml", "--out", "a", "--force", "--set", "stop.rounds=2", "--quiet")
    assert code == 2
    assert "No space left" in err
    assert "go on with" not in err
    assert (tmp_path / "a" / "experiment.toml").read_bytes() == before


def test_an_early_interrupt_is_told(call, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(algorithms, "names", interrupt)
    assert call("algorithms") == (130, "\npotluck: interrupted\n")
