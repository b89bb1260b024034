"""Settings that no run could bear end in one line, before data are read or memory is taken."""

import re
import time

import numpy as np
import pytest

from potluck import Experiment
from potluck.algorithms.fedavg import FedAvg
from potluck.cli import main
from potluck.core import room
from potluck.core.errors import ConfigError, DataError, show_short
from potluck.core.ranges import give_ends
from potluck.data import assemble
from potluck.experiment.prepare import prepare
from potluck.jobs import Train
from potluck.rules import Average

SMALL = """
[data]
source = "synthetic"
rows = 400
dimension = 8
classes = 4
clients = 8
[model]
name = "mlp"
[stop]
rounds = 2
[run]
executor = "loop"
"""


@pytest.fixture
def potluck(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder with an experiment: exit code and what stderr says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        assert said.out == ""
        return ended.value.code, said.err

    return call


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("train.lr=1e300", "train.lr = 1e+300: should be less than"),
        ("algorithm=fedadam algorithms.fedadam.server_lr=1e300", "server_lr = 1e+300: must be at most 1000"),
        ("algorithms.fedavg.server.lr=1e300", "fedavg.server.lr = 1e+300: must be at most 1000"),
        ("train.weight_decay=1e300", "weight_decay = 1e+300"),
        ("data.rows=2000000000", "data.rows = 2000000000: takes about"),
        ("data.dimension=2000000000", "data.dimension = 2000000000: takes about"),
        ("data.partition=procedural data.clients=2000000000", "data.clients = 2000000000: takes about"),
        ("train.batch=1000000000", "train.batch = 1000000000: should be less than"),
        ("train.batch=1000000 train.steps=1000000", "train.steps = 1000000: takes about 36"),
        ("train.steps=1000000000", "train.steps = 1000000000: should be less than"),
        ("model.depth=1e9", "model.depth = 1000000000.0: should be less than"),
        ("model.width=1000.0 model.depth=4", "model.width = 1000.0: takes about"),
        ("run.workers=100000", "run.workers = 100000: should be less than"),
        ("run.workers=999 run.executor=workers", "run.workers = 999: give at most"),
        ("evaluate.seconds=1e-9", "evaluate.seconds = 1e-09: should be greater than"),
        ("evaluate.seconds=0.01 stop.seconds=1e9", "evaluate.seconds = 0.01: raise it: there would be"),
        ("fleet.availability=on_off fleet.share=1e-9", "fleet.share = 1e-09: should be greater than"),
        ("fleet.down=1e300", "fleet.down = 1e+300: should be less than"),
        ("fleet.source=uniform fleet.up=1e-300", "fleet.up = 1e-300: should be greater than"),
        ("fleet.jitter.compute=1e300", "fleet.jitter.compute = 1e+300: should be less than"),
        ("fleet.jitter.rates=1e300", "fleet.jitter.rates = 1e+300: should be less than"),
        ("algorithms.fedavg.deadline=-1.0", "fedavg.deadline = -1.0: must be above 0"),
        ("algorithms.fedavg.overcommit=-1.0", "fedavg.overcommit = -1.0: must be at least 1"),
        (
            "algorithm=ifca algorithms.ifca.models=1000000000",
            "ifca.models = 1000000000: must be at most 1000",
        ),
        ("algorithm=fedbuff algorithms.fedbuff.clients=1000000000", "clients = 1000000000: must be at most"),
        ("seed=" + "9" * 5000, "seed = '999"),
        ("data.clients=" + "[" * 5000, r"data.clients = '\[\["),
        (".".join("a" * 500) + "=1", "nested more than 16 deep"),
        ("name=\udcff", r"name = '\\udcff': '\\udcff' is half of a character"),
        ("data.\udcff=1", r"'\\udcff' is half of a character"),
        ("data.path=" + "x" * 10_000, "data.path = 'xxx.*10,000 characters"),
    ],
)
def test_one_line_and_nothing_is_left(potluck, tmp_path, monkeypatch, settings, named):
    monkeypatch.setattr(room, "free_memory", lambda: 1 << 30)
    begun = time.monotonic()
    sets = [argument for setting in settings.split(" ") for argument in ("--set", setting)]
    code, err = potluck("run", "small.toml", *sets)
    assert code == 2
    pattern = named if "\\" in named or ".*" in named else re.escape(named)
    assert re.fullmatch(rf"potluck: .*{pattern}.*\n", err), err
    assert len(err) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seed = " + "9" * 5000, "an integer has thousands of digits"),
        ("a = " + "[" * 100_000, "nested too deep"),
        ("a = " + "[" * 100 + "]" * 100, "nested more than 16 deep"),
        (".".join("a" * 1000) + " = 1", "nested more than 16 deep"),
        ('name = "\\ud800"', "not valid TOML"),
    ],
)
def test_files_that_no_run_could_bear(potluck, tmp_path, text, named):
    (tmp_path / "small.toml").write_text(text)
    code, err = potluck("run", "small.toml")
    assert code == 2
    assert re.fullmatch(rf"potluck: small.toml.*{named}.*\n", err), err
    assert len(err) < 500


def test_values_made_in_python_are_refused_alike():
    for tables, named in (
        ({"name": "\ud800"}, r"name = '\\ud800'"),
        ({"seed": 10**5000}, r"seed = 1e5000: should be a number of at most 64 bits"),
        ({"algorithms": {"fedavg": {"clients": 10**400}}}, r"algorithms.fedavg.clients = 1e400"),
        ({"algorithms": {"fedavg": {"select": b"x"}}}, r"algorithms.fedavg.select = b'x'"),
        ({"data": {"clients": float("inf")}}, "data.clients = inf"),
    ):
        with pytest.raises(ConfigError, match=named):
            prepare(Experiment(**tables))


def test_rules_made_in_python_have_the_same_ends():
    for rule, named in (
        (FedAvg(deadline=-1.0), "FedAvg.deadline = -1.0: must be above 0"),
        (FedAvg(overcommit=-1.0), "FedAvg.overcommit = -1.0: must be at least 1"),
        (FedAvg(server=Average(1e300)), r"FedAvg.server.lr = 1e\+300: must be at most 1000"),
        (FedAvg(local=Train(batch=2**40)), "FedAvg.local.batch = 1099511627776: must be at most"),
    ):
        with pytest.raises(ConfigError, match=named):
            prepare(Experiment(), rule)


def test_labels_with_gaps_are_refused_with_the_way_to_number_them():
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.repeat([0, 5], 20)
    with pytest.raises(DataError, match=r"mine: no row has label 1 of 0 to 5, so 2 classes would count as 6"):
        assemble("mine", x, y)
    assert assemble("mine", x, y, classes=6).classes == 6  # who says so means it
    assert assemble("mine", x, np.unique(y, return_inverse=True)[1]).classes == 2


def test_a_plain_number_has_ends_too():
    assert repr(give_ends(float | None)) == repr(give_ends(float) | None)
    assert repr(give_ends(tuple[int, ...])) == repr(tuple[give_ends(int), ...])
    assert give_ends(str) is str


def test_long_values_are_shown_in_their_beginnings():
    assert show_short("x" * 10_000).startswith("'xxx")
    assert len(show_short("x" * 10_000)) < 150
    assert len(show_short(list(range(10_000)))) < 150
    assert show_short(10**5000) == "1e5000"
    assert show_short(-7) == "-7"


def test_a_rule_made_in_python_is_still_a_part():
    tables = {"algorithm": "auxo", "algorithms": {"auxo": {"inner": FedAvg(clients=3)}}}
    assert Experiment(**tables).algorithms["auxo"]["inner"] == FedAvg(clients=3)
