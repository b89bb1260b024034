"""Pilots of advice, and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest

from potluck.advice.measure import measure_file
from potluck.advice.pilot import (
    Pilot,
    Trial,
    _average_last_third,
    _run_trial,
    rehearse,
    run_pilot,
)
from potluck.advice.recommendation import judge
from potluck.cli import main
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.metrics import Measurement

FILE = """
name = "hidden"
data = { source = "digits", partition = "iid", clients = 30, groups = { kind = "permutation", count = 2 } }
model = { name = "linear" }
fleet = { source = "uniform" }
train = { lr = 0.3 }
run = { executor = "loop" }
"""


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    said = capsys.readouterr()
    return end.value.code or 0, said.out, said.err


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hidden.toml"
    path.write_text(FILE)
    return path


def test_the_command_tells_people_and_machines_the_same(file, capsys):
    code, out, _ = call(capsys, "advise", file)
    assert max(map(len, out.splitlines())) <= 100
    assert code == 0
    assert out.startswith("try auxo\n")
    assert "2 groups of devices see the same classes differently" in " ".join(out.split())
    code, out, _ = call(capsys, "advise", file, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["recommended"] == "auxo"
    assert told["systems"][0]["verdict"] == "helps"
    assert told["measured"]["conflict"]["groups"] == 2
    assert {s["algorithm"] for s in told["systems"]} >= {"auxo", "classter", "shufflefl", "fedrac"}
    assert list(file.parent.iterdir()) == [file]


def test_without_groups_plain_fedavg_is_enough(file, capsys):
    file.write_text(FILE.replace(', groups = { kind = "permutation", count = 2 }', ""))
    code, out, _ = call(capsys, "advise", file)
    assert code == 0
    assert out.startswith("plain FedAvg is enough\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [(("lr = 0.3", "lr = -1"), "train.lr"), (('source = "digits"', 'source = "digit"'), "did you mean")],
)
def test_a_bad_file_is_told_in_one_line(file, capsys, change, said):
    file.write_text(FILE.replace(*change))
    code, _, err = call(capsys, "advise", file)
    assert code == 2
    assert err.count("\n") == 1
    assert said in err


def test_a_pilot_at_equal_virtual_time_agrees(file, capsys):
    file.write_text('layers = ["cohorts"]\n' + FILE)  # which pilots leave out: each system is tried alone
    code, out, _ = call(capsys, "advise", file, "--pilot", "--json", "--quiet")
    assert code == 0
    tried = json.loads(out)["pilot"]
    base, auxo = tried["trials"][:2]
    assert (base["algorithm"], auxo["algorithm"]) == ("fedavg", "auxo")
    assert tried["agrees"] is True
    assert tried["best"] == "auxo"
    assert auxo["seconds"] <= 1.3 * base["seconds"]  # a round that has begun is ended


def test_what_is_not_there_or_does_not_fit_is_skipped_and_said():
    experiment = Experiment(data={"source": "digits", "clients": 10}, stop={"rounds": 1})
    federation = build_federation(experiment.resolve())
    assert _run_trial(experiment, "fedrank", {}, federation, None) == Trial("fedrank", failed="not there yet")
    assert "data.server is missing" in _run_trial(experiment, "classter", {}, federation, None).failed


def test_rehearsed_rows_meet_unseen_classes_as_test_rows_do():
    data = {"source": "digits", "clients": 12, "alpha": 0.1, "shift": 0.6, "validation": 0.2}
    federation, measured = measure_file(Experiment(data=data))
    staged = rehearse(federation, measured.looked_at.tolist())
    labels, before, after = federation.pool.y.numpy(), federation.partition, staged.partition
    test = np.concatenate([before.rows(n, "test") for n in range(12)])
    shares = []
    for n in range(12):
        known = np.unique(labels[before.rows(n, "train")])
        rows = after.rows(n, "validation")
        assert np.array_equal(rows, after.rows(n, "validation"))
        assert not np.isin(rows, test).any()
        assert np.array_equal(after.rows(n, "train"), before.rows(n, "train"))
        assert np.isin(labels[before.rows(n, "validation")], known).mean() > 0.9
        shares.append(1 - np.isin(labels[rows], known).mean())
    assert abs(np.mean(shares) - 0.6) < 0.1


def test_no_test_row_is_evaluated_on(monkeypatch):
    """Accuracies of a pilot stay the same when every test row's image is blank."""
    import potluck.advice.pilot as module

    wanted = Experiment(data={"source": "digits", "clients": 10}, model={"name": "linear"})
    _, measured = measure_file(wanted)

    def blank(experiment, pool):
        federation = build_federation(experiment, pool)
        test = [*np.flatnonzero(federation.pool.test)]
        test += [int(r) for n in range(10) for r in federation.partition.rows(n, "test")]
        x = federation.pool.x.clone()  # the pool may be another test's too
        x[test] = 0.0
        return replace(federation, pool=replace(federation.pool, x=x))

    plain = run_pilot(wanted, judge(measured), measured, rounds=3)
    monkeypatch.setattr(module, "build_federation", blank)
    assert run_pilot(wanted, judge(measured), measured, rounds=3).trials == plain.trials


def test_the_last_third_is_what_counts():
    # At 4, 5 and 6 s: 0.3, half way up, and 0.6.
    points = [Measurement(1, 4.0, 0.3), Measurement(2, 6.0, 0.6)]
    assert np.isclose(_average_last_third(points, 6.0), (0.3 + 0.45 + 0.6) / 3)
    assert _average_last_third([], 6.0) is None


@pytest.mark.parametrize(
    ("wanted", "auxo", "best", "agrees"),
    [
        ("auxo", 0.9, "auxo", True),
        ("auxo", 0.81, "fedavg", False),  # within the margin of FedAvg's 0.8: not shown to help
        ("auxo", None, "fedavg", None),
        (None, 0.81, "fedavg", True),
        (None, 0.9, "auxo", False),
    ],
)
def test_whether_a_pilot_agrees(wanted, auxo, best, agrees):
    tried = Pilot((Trial("fedavg", 0.8, 0.8), Trial("auxo", auxo, auxo)), 0.02, wanted)
    assert (tried.best, tried.agrees) == (best, agrees)
