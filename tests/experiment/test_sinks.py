"""Tools of [log]: what they have of a run, once it was resumed too, and what is said where one is missing."""

import csv
import importlib.util
from types import SimpleNamespace

import pytest
from test_events import Fails, contents, made

from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.experiment import Experiment, compare, load, resume, run
from potluck.experiment.folder import is_same
from potluck.experiment.launch.batch import RunBatch
from potluck.experiment.prepare import prepare
from potluck.experiment.run_events import Reader

OFTEN = {"executor": "loop", "snapshot_every": 1e-9}  # a snapshot after every event


def read_csv(folder):
    with open(folder / "log" / "evaluations.csv", newline="") as file:
        return list(csv.DictReader(file))


def read_tensorboard(folder):
    """As TensorBoard reads it: steps and values by name."""
    readers = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = readers.EventAccumulator(str(folder))
    reader.Reload()
    scalars = {t: [(p.step, p.value) for p in reader.Scalars(t)] for t in reader.Tags()["scalars"]}
    (text,) = reader.Tensors("experiment")
    return scalars, text.tensor_proto.string_val[0].decode()


def expect(folder):
    return Reader(folder.name).read_all(load(folder).lines)


def break_off(folder, **more):
    """A run that is interrupted between its second evaluation and the next snapshot."""
    with pytest.raises(KeyboardInterrupt):
        run(made(run=OFTEN, **more), folder, callbacks=[Fails(KeyboardInterrupt)])


def test_a_table_has_a_row_for_every_evaluation(tmp_path):
    place = tmp_path / "one"
    done = run(made(log={"to": ["csv"]}), place)
    rows, wanted = read_csv(place), expect(place)
    assert [(int(r["evaluation"]), int(r["round"]), float(r["seconds"])) for r in rows] == [
        (e.number, e.round, e.time) for e in wanted
    ]
    assert float(rows[-1]["accuracy_mean"]) == done.summary["accuracy_mean"]
    assert rows[0]["bytes_up"] == ""  # nothing had been sent: the column came later
    assert float(rows[-1]["bytes_up"]) == done.summary["bytes_up"]


@pytest.mark.parametrize("tool", ["csv", "tensorboard"])
def test_a_resumed_run_has_every_point_once(tmp_path, tool):
    if tool == "tensorboard":
        pytest.importorskip("tensorboard")
    place = tmp_path / "one"
    break_off(place, log={"to": [tool]})
    resume(place)
    wanted = [(e.round, e.accuracy) for e in expect(place)]
    assert len(wanted) == 3
    if tool == "csv":
        assert [(int(r["round"]), float(r["accuracy_mean"])) for r in read_csv(place)] == wanted
    else:
        scalars, _ = read_tensorboard(place / "log")
        assert scalars["accuracy_mean"] == [(step, pytest.approx(value)) for step, value in wanted]
        assert len(list((place / "log").glob("*tfevents*"))) == 1


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    place = tmp_path / "one"
    run(made(log={"to": ["tensorboard"]}), place)
    run(made(), tmp_path / "plain")
    assert contents(place) == contents(tmp_path / "plain")
    scalars, text = read_tensorboard(place / "log")
    told = [(e.round, {**e.numbers, "virtual_seconds": e.time}) for e in expect(place)]
    for name, points in scalars.items():
        wanted = [(step, pytest.approx(numbers[name])) for step, numbers in told if name in numbers]
        assert points == wanted, name
    assert {"accuracy_mean", "loss", "bytes_up", "virtual_seconds"} <= set(scalars)
    assert "    clients = 6\n" in text


def test_another_tool_may_follow_a_run_that_goes_on(tmp_path):
    place = tmp_path / "one"
    break_off(place)
    assert not (place / "log").exists()
    resume(place, log=["csv"])
    assert [int(row["round"]) for row in read_csv(place)] == [0, 2, 4]  # those before it was resumed, too
    assert load(place).experiment.log.to == ["csv"]
    break_off(tmp_path / "two", log={"to": ["csv"]})
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(tmp_path / "two"), "--set", "log.to=[]", "--quiet"])
    assert not ended.value.code
    assert load(tmp_path / "two").experiment.log.to == []
    assert contents(place) == contents(tmp_path / "two")


def test_only_tools_can_be_changed_when_a_run_goes_on(tmp_path, capsys):
    break_off(tmp_path / "one")
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(tmp_path / "one"), "--set", "stop.rounds=9"])
    assert ended.value.code == 2
    assert "only log.to can change" in capsys.readouterr().err


def test_the_same_run_is_told_apart_from_another_whatever_follows_it(tmp_path):
    logged = made(log={"to": ["csv"]})
    assert prepare(logged).identity == prepare(made()).identity
    run(logged, tmp_path / "one")
    assert is_same(tmp_path / "one", prepare(made()).experiment)
    assert not is_same(tmp_path / "one", prepare(made(seed=2)).experiment)
    batch = RunBatch(1, 1)
    assert batch.run("one", made(), tmp_path / "one").path == tmp_path / "one"
    assert batch.computed == 0


def test_what_cannot_be_had_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    known = importlib.util.find_spec
    namespace = SimpleNamespace(origin=None)  # a folder named wandb beside a script is no library
    missing = {"mlflow": None, "wandb": namespace, "tensorboard": None}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: missing[name] if name in missing else known(name)
    )
    for tool in missing:
        said = rf'^log.to = \[\'{tool}\'\]: {tool} isn\'t installed; pip install "potluck\[{tool}\]"$'
        with pytest.raises(ConfigError, match=said):
            run(made(log={"to": [tool]}), tmp_path / "one")
        with pytest.raises(ConfigError, match=said):
            compare(made(log={"to": [tool]}), ["fedavg", "fedprox"], out=tmp_path / "two")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"log.to = \['csv'\]: a run in memory has no folder"):
        run(made(log={"to": ["csv"]}))
    with pytest.raises(ConfigError, match=r"log.to.* = 'excel': should be one of tensorboard, mlflow"):
        Experiment().with_overrides(['log.to=["excel"]'])
    with pytest.raises(ConfigError, match="name each tool once"):
        made(log={"to": ["csv", "csv"]})


def test_trials_are_not_logged(tmp_path):
    tables = {"trials": 2, "refine": 0, "seeds": [5], "grid": {"train": {"lr": [0.1, 0.3]}}}
    wanted = made(log={"to": ["csv"]}, tune=tables, stop={"rounds": 2})
    compare(wanted, ["fedavg"], out=tmp_path / "c", tuned=True)
    assert [p.parent.parent.name for p in (tmp_path / "c").rglob("evaluations.csv")] == ["fedavg-1"]
