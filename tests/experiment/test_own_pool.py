"""Rows that are in no file, only in this process: compared, tuned, advised on, side by side too."""

import json
import shutil

import numpy as np
import pytest
import torch
from support import try_rates
from torch.utils.data import TensorDataset

import potluck
from potluck.cli import main
from potluck.core.errors import ConfigError, SnapshotError
from potluck.data import from_dataset

forks = pytest.mark.skipif(torch.cuda.is_available(), reason="forks of what has trained, beside a GPU")


def blobs(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(240) % 3
    x = rng.standard_normal((240, 6)) + 3 * np.eye(3, 6)[y]
    return from_dataset(
        TensorDataset(torch.tensor(x), torch.tensor(y)), user=np.arange(240) // 20, name="mine"
    )


POOL = blobs()


def experiment(**changes):
    tables = dict(
        data={"source": "mnist", "root": "/nowhere", "partition": "by_user"},
        model={"name": "linear"},
        stop={"rounds": 2},
        tune=try_rates(0.3, 0.0001),
        run={"executor": "loop"},
    )
    return potluck.Experiment(**{**tables, **changes})


def told(compared):
    return {run.name: run.lines for run in compared.runs}


def test_a_comparison_is_the_runs_that_it_is_made_of(tmp_path):
    compared = potluck.compare(experiment(), ["fedavg", "fedprox"], [1, 2], pool=POOL)
    alone = potluck.run(experiment(algorithm="fedprox", seed=2), pool=POOL)
    assert told(compared)["fedprox-2"] == alone.lines
    assert {run.experiment.data.source for run in compared.runs} == {"python"}
    stored = potluck.compare(experiment(), ["fedavg", "fedprox"], [1, 2], tmp_path / "c", pool=POOL)
    assert told(stored) == told(compared)


@forks
@pytest.mark.slow
def test_runs_side_by_side_have_the_rows_too(tmp_path):
    beside = potluck.compare(
        experiment(), ["fedavg", "fedprox"], [1], tmp_path / "c", tuned=True, jobs=2, pool=POOL
    )
    apart = potluck.compare(experiment(), ["fedavg", "fedprox"], [1], tuned=True, pool=POOL)
    assert told(beside) == told(apart)
    assert beside.tuning.results == apart.tuning.results


def test_a_comparison_goes_on_with_the_same_rows_only(tmp_path):
    whole = potluck.compare(experiment(), ["fedavg", "fedprox"], [1], tmp_path / "c", pool=POOL)
    shutil.rmtree(tmp_path / "c" / "fedprox-1")
    with pytest.raises(ConfigError, match=r"mine@\w+ was made in Python .* potluck.resume_comparison"):
        potluck.resume_comparison(tmp_path / "c")
    with pytest.raises(SnapshotError, match=r"on mine@\w+, and this pool is another; give that one"):
        potluck.resume_comparison(tmp_path / "c", pool=blobs(1))
    assert told(potluck.resume_comparison(tmp_path / "c", pool=POOL)) == told(whole)


def test_rates_are_values(tmp_path):
    found = potluck.tune(experiment(), ["fedavg"], pool=POOL)
    assert found.grids["fedavg"] == {"train.lr": [0.0001, 0.3]}
    assert found.choice("fedavg") == {"train.lr": 0.3}
    assert found.means("fedavg")[1] > 0.7
    potluck.tune(experiment(), ["fedavg"], tmp_path / "t", pool=POOL)
    with pytest.raises(ConfigError, match="holds a run with other settings"):  # and not: done already
        potluck.tune(experiment(), ["fedavg"], tmp_path / "t", pool=blobs(1))


def test_advice_is_values(capsys, tmp_path):
    advised = potluck.advise(experiment(), pool=POOL)
    assert advised.measured.devices == 12
    assert advised.pilot is None
    assert advised.recommended in (None, *(own.algorithm for own in advised.verdict.advice))
    file = tmp_path / "e.toml"
    file.write_text('data = { source = "synthetic", rows = 400, clients = 8 }\nmodel = { name = "linear" }\n')
    with pytest.raises(SystemExit):
        main(["advise", str(file), "--json"])
    advised = potluck.advise(potluck.Experiment.from_file(file))
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(advised.summary()))


@pytest.mark.slow
def test_pilots_train_on_the_pool():
    advised = potluck.advise(experiment(), pilot=True, pool=POOL)
    first = advised.pilot.trials[0]
    assert (first.algorithm, first.failed) == ("fedavg", "")
    assert first.accuracy > 0.8


def test_names_are_looked_up_when_they_are_used():
    assert set(dir(potluck)) == set(potluck.__all__)
    assert all(getattr(potluck, name) is not None for name in potluck.__all__)
