"""Looking at a federation before anything is trained."""

import json
import re

import numpy as np
import pytest
from unpacked import read_figures

from potluck import data
from potluck.cli import main
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation, deal_rows, load_rows, make_shift
from potluck.report.fleet_figures import list_fleet_facts
from potluck.report.holding_figures import count_rows, list_data_facts

FILE = "examples/demo.toml"


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--json"])
    assert end.value.code == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("command", "key"), [("data", "label skew"), ("fleet", "a task takes")])
def test_a_summary_and_a_picture_without_network(command, key, tmp_path, capsys):
    picture = tmp_path / "new" / "picture.html"
    facts = told(capsys, command, FILE, "--out", str(picture))
    assert facts["picture"] == str(picture)
    assert key in facts
    page = picture.read_text()
    assert len(read_figures(page)) == page.count("<figure>") == 2
    assert page.count("Look ") == 2
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def tell(wanted):
    rows = load_rows(wanted)
    count = data.count_rows(len(rows), *deal_rows(wanted, rows))
    federation, shift = build_federation(wanted, rows), make_shift(wanted.data.shift)
    return dict(list_data_facts(federation, count, wanted.data.test_from, shift))


def test_every_row_is_somewhere(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = np.repeat([f"user {i}" for i in range(12)], 50)  # 12 users of 50 rows
    x = np.random.default_rng(0).normal(size=(600, 4))
    np.savez("mine.npz", x=x, y=np.arange(600) % 3, user=names)
    (tmp_path / "e.toml").write_text(
        'data = { source = "npz", path = "mine.npz", partition = "by_user", clients = 8, server = 0.1 }\n'
    )
    facts = told(capsys, "data", "e.toml")
    assert facts["rows"] == "600 of shape [4], 3 classes"
    assert sum(facts["count"].values()) == 600
    assert facts["count"]["global_test"] == 120
    assert facts["count"]["server"] == 48
    assert facts["count"]["unheld"] > 100  # of the four users who weren't chosen
    assert facts["users"] == "12 with rows outside of the global test set"
    assert facts["global test set"] == "120 that no device holds, a fifth of every class by chance"
    mean, deviation = re.match(r"mean (\S+) and deviation (\S+),", facts["scaled"]).groups()
    assert float(mean) == pytest.approx(x.mean(), abs=0.05)
    assert float(deviation) == pytest.approx(x.std(), abs=0.05)
    facts = told(capsys, "data", "e.toml", "--set", "data.test_from=users")
    assert facts["global test set"] == "100 that no device holds, all rows of 2 users"
    facts = told(capsys, "data", "e.toml", "--set", "data.test_from=time", "--set", "data.limit=300")
    assert facts["global test set"] == "120 that no device holds, the last fifth of each user's rows"
    assert facts["to test on"].endswith("the last of each device's")
    assert facts["left out"].startswith("180 by limit or without")
    with pytest.raises(SystemExit) as end:
        main(["data", "e.toml", "--set", "data.normalise=false"])
    assert end.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "scaled no: values as they are" in said


def test_what_is_told_is_what_there_is():
    wanted = Experiment.from_file(FILE).resolve()
    federation = build_federation(wanted)
    table = count_rows(federation)
    assert table.shape == (33, 10)
    assert table.sum() == sum(len(federation.partition.rows(n, "train")) for n in range(33))
    facts = tell(wanted)
    assert facts["rows a device"].startswith(f"{table.sum(1).min()} to {table.sum(1).max()}")
    alike = tell(wanted.with_overrides(["data.alpha=1000.0"]).resolve())
    assert float(alike["label skew"].split()[0]) < float(facts["label skew"].split()[0])
    speeds = dict(list_fleet_facts(federation, wanted))
    assert "spread 13x" in speeds["compute"]
    assert np.isclose(federation.fleet.true.up.max() / federation.fleet.true.up.min(), 200)
    assert "spread 200x" in speeds["up"]


def test_a_file_that_is_not_there_is_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        main(["data", "missing.toml"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
