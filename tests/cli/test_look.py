"""Looking at a federation before anything is trained."""

import json
import re

import numpy as np
import pytest

from potluck.cli import main
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
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
    assert page.count("Plotly.newPlot") == 2
    assert page.count("Look ") == 2
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_what_is_told_is_what_there_is():
    wanted = Experiment.from_file(FILE).resolve()
    federation = build_federation(wanted)
    table = count_rows(federation)
    assert table.shape == (33, 10)
    assert table.sum() == sum(len(federation.partition.rows(n, "train")) for n in range(33))
    facts = dict(list_data_facts(federation))
    assert facts["rows a device"].startswith(f"{table.sum(1).min()} to {table.sum(1).max()}")
    alike = build_federation(wanted.with_overrides(["data.alpha=1000.0"]).resolve())
    assert float(dict(list_data_facts(alike))["label skew"].split()[0]) < float(
        facts["label skew"].split()[0]
    )
    speeds = dict(list_fleet_facts(federation, wanted))
    assert "spread 13x" in speeds["compute"]
    assert np.isclose(federation.fleet.true.up.max() / federation.fleet.true.up.min(), 200)
    assert "spread 200x" in speeds["up"]


def test_a_file_that_is_not_there_is_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        main(["data", "missing.toml"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
