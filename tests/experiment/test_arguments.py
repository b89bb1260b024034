"""What is handed over in Python and should be something else: one line, before anything is done."""

import subprocess
import sys
from pathlib import Path

import pytest

import potluck
from potluck.core.errors import ConfigError

SMALL = potluck.Experiment(
    data={"source": "synthetic", "rows": 200, "clients": 4},
    model={"name": "linear"},
    stop={"rounds": 1},
    tune={"trials": 1, "grid": {"train": {"lr": [0.1]}}},
)


@pytest.mark.parametrize("call", [potluck.run, potluck.compare, potluck.tune, potluck.advise])
@pytest.mark.parametrize(
    ("experiment", "fix"),
    [
        ("mine.toml", "read the file, by potluck.Experiment.from_file('mine.toml')"),
        (Path("mine.toml"), "read the file, by potluck.Experiment.from_file('mine.toml')"),
        ({"algorithm": "fedavg"}, "make one of these tables, by potluck.Experiment(**tables)"),
        (None, "make it by potluck.Experiment(...)"),
    ],
)
def test_what_is_no_experiment(call, experiment, fix):
    with pytest.raises(ConfigError, match="experiment = ") as raised:
        call(experiment)
    assert str(raised.value).endswith(fix)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"algorithms": "fedavg"}, "compare = 'fedavg': write a list, such as ['fedavg']"),
        ({"seeds": 3}, "seeds = 3: write a list, such as [1, 2, 3]"),
        ({"jobs": "auto"}, "jobs = 'auto': write how many runs are computed at a time, or 0 for one a core"),
        ({"out": 3}, "out = 3: write the path of a folder"),
    ],
)
def test_what_is_no_list_number_or_path(arguments, told):
    with pytest.raises(ConfigError) as raised:
        potluck.compare(SMALL, **arguments)
    assert str(raised.value) == told


class Misspelled(potluck.Callback):
    def __init__(self):
        self.on_disk = True  # no method

    def on_roud(self, event):
        pass


class Mine(potluck.Callback):
    def __init__(self):
        self.on_disk, self.rounds = True, 0

    def on_round(self, event):
        self.rounds += 1


def test_callbacks_that_nobody_would_call():
    with pytest.raises(ConfigError, match=r"callbacks = .*: write a list of them"):
        potluck.run(SMALL, callbacks=Mine())
    with pytest.raises(ConfigError, match=r"callbacks\[1\].on_roud: .* did you mean 'on_round'"):
        potluck.run(SMALL, callbacks=[Mine(), Misspelled()])
    potluck.run(SMALL, callbacks=(mine := Mine(),))
    assert mine.rounds == 1


def test_a_rule_is_no_name_of_an_algorithm():
    rule = potluck.layers.stacked("fedavg", users={})
    with pytest.raises(potluck.ConfigError, match=r"algorithm = .*write potluck.run\(e, algorithm=rule\)"):
        potluck.Experiment(algorithm=rule)
    with pytest.raises(potluck.ConfigError, match=r"algorithm = 3: should be a valid string"):
        potluck.Experiment(algorithm=3)


def test_errors_can_be_caught_by_their_public_names():
    assert issubclass(potluck.ConfigError, potluck.PotluckError)
    with pytest.raises(potluck.PotluckError):
        potluck.load("nowhere")


def test_advice_is_short_where_it_is_shown():
    advised = potluck.advise(SMALL)
    assert repr(advised) == f"<Advised: {advised.headline}; 4 devices measured>"


def test_layers_are_found_by_their_whole_name():
    code = "import potluck; potluck.layers.stacked('fedavg', tuned={})"  # imports nothing else
    subprocess.run([sys.executable, "-c", code], check=True)
