"""A refusal names its cause, and no door hides a fault: a mistake in code, ours or a user's, is seen."""

import re
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.cli import main
from potluck.core.errors import PotluckError, call_named
from potluck.data.sources import npz_file
from potluck.execute.tune import autotune
from potluck.jobs import train as training
from potluck.rules import Rounds

ROOT = Path(__file__).resolve().parents[2]


def slip(*_, **__):
    """A mistake as people make them."""
    return None.no_such_thing


class Clumsy(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layer = nn.Linear(shape[0], classes)

    def forward(self, x):
        return slip()


def slipping_algorithm(local, clients=2):
    return Rounds(FedAvg(clients, slip()))


@pytest.fixture
def registered():
    potluck.register_algorithm("faults-made", slipping_algorithm)
    potluck.register_source("faults-rows", lambda root: slip())
    potluck.register_model("faults-built", lambda shape, classes: slip())
    potluck.register_model("faults-run", Clumsy)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POTLUCK_CACHE", str(tmp_path / "plans"))
    content = (
        'run = { executor = "loop" }\n'
        "data = { source = 'synthetic', rows = 200, clients = 4 }\nstop = { rounds = 1 }\n"
    )
    (tmp_path / "e.toml").write_text(content)
    return "e.toml"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("algorithm='faults-made'", "algorithms.faults-made"),
        ("data={source='faults-rows', clients=2}", "data.source = 'faults-rows'"),
        ("model.name='faults-built'", "model 'faults-built' can't be built"),
        ("model.name='faults-run'", "model 'faults-run' fails on rows"),
    ],
)
def test_what_was_registered_is_named_and_its_traceback_is_shown(registered, file, capsys, setting, named):
    with pytest.raises(SystemExit) as end:
        main(["run", file, "--set", setting])
    *trace, line = capsys.readouterr().err.splitlines()
    assert end.value.code == 1
    assert line.startswith("potluck: ")
    assert named in line
    assert "AttributeError: 'NoneType' object has no attribute 'no_such_thing'" in trace
    assert any("in slip" in each for each in trace)


def test_what_is_wrong_with_a_setting_is_told_in_a_line(registered, file, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run", file, "--set", "model.name='mlp'", "--set", "model.width=-1"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def experiment(**settings):
    data = {"source": "synthetic", "rows": 200, "clients": 4}
    return potluck.Experiment(data=data, stop={"rounds": 1}, run={"executor": "loop"}, **settings)


@pytest.mark.parametrize("executor", ["loop", "stacked", "workers"])
def test_a_slip_in_a_job_is_seen_wherever_it_is_computed(monkeypatch, executor):
    monkeypatch.setattr(training.Train, "begin", slip)
    run = {"executor": executor, **({"workers": 2} if executor == "workers" else {})}
    with pytest.raises((AttributeError, RuntimeError), match="no_such_thing") as error:
        potluck.run(experiment().with_values(run=run))
    seen = "".join(str(entry) for entry in error.traceback) + str(error.value)
    assert "slip" in seen


def test_a_slip_in_an_algorithm_is_seen(monkeypatch):
    monkeypatch.setattr(FedAvg, "merge", slip)
    with pytest.raises(AttributeError, match="no_such_thing"):
        potluck.run(experiment())


def test_a_slip_in_a_run_beside_others_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(FedAvg, "merge", slip)
    with pytest.raises(RuntimeError, match=r"(?s)fedavg-\d: AttributeError: .*Traceback.*in slip"):
        potluck.compare(experiment(), ["fedavg"], seeds=[1, 2], out=tmp_path / "c", jobs=2)


def test_a_slip_in_what_measures_is_seen(monkeypatch):
    monkeypatch.setattr(autotune, "_choose", slip)
    with pytest.raises(AttributeError, match="no_such_thing"):
        potluck.run(experiment().with_values(run={"executor": "auto"}))


def test_a_slip_in_our_own_reader_is_no_damaged_file(tmp_path, monkeypatch, capsys):
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 2)), y=np.arange(9) % 3)
    (tmp_path / "e.toml").write_text(f'[data]\nsource = "npz"\npath = "{tmp_path}/a.npz"\nclients = 2\n')
    monkeypatch.setattr(npz_file, "_check_header", slip)
    with pytest.raises(SystemExit) as end:
        main(["data", str(tmp_path / "e.toml")])
    assert end.value.code == 1
    assert "in slip" in capsys.readouterr().err


def test_a_traceback_outlives_other_words():
    with pytest.raises(PotluckError) as error:
        call_named("a", slip)
    told = error.value.retell("b: " + str(error.value))
    assert (type(told), told.trace) == (type(error.value), error.value.trace)
    assert "in slip" in told.trace


def test_doors_that_catch_everything_are_few_and_say_why():
    found = []
    for path in sorted((ROOT / "potluck").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"except.*\b(Exception)\b|suppress\((Base)?Exception", line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert [line for line in found if "  # " not in line] == []
    assert len(found) <= 20, found
