"""The examples: every file can be begun, every script runs to its end, small."""

import importlib.util
import runpy
from pathlib import Path

import pytest

from potluck.algorithms import list_modes
from potluck.experiment import Experiment
from potluck.experiment.methods import list_methods
from potluck.experiment.prepare import prepare

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.toml"))
SYSTEMS = ["auxo", "classter", "maverick", "shufflefl", "fedrac"]
SMALL = ("stop.rounds=2", "evaluate.rounds=1", "evaluate.seconds=1000", "run.executor=loop")
SMALLER = {  # what each takes besides, and what its last lines must tell
    "auxo": (("algorithms.auxo.first_split=1", "algorithms.auxo.force=[1]"), "split after"),
    "classter": (("train.epochs=1", "algorithms.classter.distil.every=1"), "distilled"),
    "maverick": (("data.clients=15", "data.smallest=20"), "of devices that lie"),
    "shufflefl": (("data.users=4", "algorithms.shufflefl.users=2"), "rows moved in all"),
    "fedrac": (("algorithms.fedrac.rounds=1", "algorithms.fedrac.schedule.head_start=0"), "tier 0:"),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_can_be_begun(file):
    whole = Experiment.from_file(file)
    assert whole.name.replace("-", "_") == file.stem
    if whole.data.source != "digits":
        return  # its data aren't here: the file was read, that is all
    federation = None
    for method in list_methods(whole):  # of one crowd, which the algorithms must fit
        federation = prepare(method.lay_over(whole, compare=[]), federation=federation).federation


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_stands_beside_what_was_published_and_fedavg(name):
    """Its default last, on the crowd that it is for, with a line on what came of it."""
    file = EXAMPLES / f"{name}.toml"
    compared = [method.label for method in list_methods(Experiment.from_file(file))]
    assert compared[0] == "fedavg"
    assert compared[-1] == name
    assert list_modes(name) == () or f"{name} published" in compared
    assert "# What came of it (20" in file.read_text()


def test_the_demo_compares_all_systems():
    demo = Experiment.from_file(EXAMPLES / "demo.toml")
    assert demo.compare[0] == "fedavg"
    assert set(demo.compare) == {"fedavg", *SYSTEMS}
    assert "seconds" in demo.stop.model_fields_set  # the same time for all, not the same rounds
    assert demo.evaluate.on == "test"


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_script_shows_its_system_at_work(name, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    more, told = SMALLER[name]
    script.main(*SMALL, *more, out=str(tmp_path / name))
    lines = capsys.readouterr().out.splitlines()
    compared = [method.label for method in list_methods(Experiment.from_file(EXAMPLES / f"{name}.toml"))]
    assert all(line.startswith(f"{label} ") for line, label in zip(lines, compared, strict=False))
    assert any(told in line for line in lines[len(compared) :])
    assert lines[-1] == f"report: {tmp_path / name / 'report.html'}"
    assert "<figure>" in (tmp_path / name / "report.html").read_text()


def test_own_module_and_data(capsys):
    runpy.run_path(str(EXAMPLES / "bring_your_own.py"), run_name="__main__")
    share = float(capsys.readouterr().out.split("%")[0].split()[-1])
    assert share > 80
