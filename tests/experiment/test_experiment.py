import json
import subprocess
import sys
import tomllib
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import potluck
from potluck import algorithms
from potluck.algorithms import _parameters, _written
from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec, parts
from potluck.core.errors import ConfigError, PotluckError, SnapshotError, StalledError
from potluck.core.rule import Rule
from potluck.engine import drought
from potluck.experiment import Experiment, build, folder, toml
from potluck.experiment.prepare import prepare, resolve_run
from potluck.jobs import SGD, Prox, Train
from potluck.models import registry
from potluck.rules import Adaptive, Average, Uniform
from potluck.simulate import Simulation

SMALL = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "stop": {"rounds": 4},
    "run": {"executor": "loop"},
    "algorithms": {"fedavg": {"clients": 3}},
}


def small(**changes):
    return Experiment(**{**SMALL, **changes})


# ------------------------------------------------------------------------------------------- the registry


def test_every_file_of_the_folder_is_an_algorithm():
    assert "fedavg" in algorithms.names()
    for name in algorithms.names():
        described = algorithms.describe(name)
        assert described.paper
        assert described.idea
        assert algorithms.make(name, Train()) is not None


@pytest.mark.parametrize("name", ["fedavg", "FedAvg", "fed-avg", "FED_AVG"])
def test_names_may_be_spelled_in_many_ways(name):
    assert algorithms.find(name) is FedAvg


def test_an_unknown_algorithm_is_told_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"algorithm = 'fedavgg': .* did you mean 'fedavg'\?"):
        algorithms.find("fedavgg")


def test_parts_are_given_by_name_or_table_or_object():
    local = Train(batch=7)
    made = algorithms.make("fedavg", local, select="uniform", server={"kind": "ADAPTIVE", "lr": 0.5})
    assert made == FedAvg(local=local, select=Uniform(), server=Adaptive(lr=0.5))
    assert algorithms.make("fedavg", local, server=Adaptive()).server == Adaptive()
    assert algorithms.make("fedavg", local, server={"lr": 0.5}).server == Average(0.5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clinets": 3}, r"algorithms.fedavg.clinets = 3: no such parameter; did you mean 'clients'\?"),
        ({"clients": "10"}, r"algorithms.fedavg.clients = '10': should be a valid integer \(int\)"),
        ({"clients": True}, r"clients = True: should be a valid integer"),
        ({"deadline": "soon"}, r"deadline = 'soon': should be a valid number \(float \| None\)"),
        ({"select": "unifrm"}, r"select.kind = 'unifrm': no such part; did you mean 'Uniform'\?"),
        ({"server": {"kind": "SGD"}}, r"server.kind = 'SGD': no such part; known: Adaptive, Average"),
        ({"server": {"lrr": 1.0}}, r"server.lrr = 1.0: no such parameter; did you mean 'lr'\?"),
        ({"server": 3}, r"algorithms.fedavg.server = 3: "),
        ({"local": {}}, r"algorithms.fedavg.local: local training is described by \[train\]"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ConfigError, match=message):
        algorithms.make("fedavg", Train(), **params)


def test_an_unnamed_part_of_its_own_kind_is_a_table_of_settings():
    @codec.value
    class Window:
        size: int = 3

    def windowed(window: Window | None = None):
        return window

    made = _parameters.fit(
        windowed, {"window": {"size": 5}}, "algorithms.windowed", _parameters.Terms()
    ).make()
    assert made == Window(5)


def test_every_part_has_a_role_that_a_protocol_states():
    for name in algorithms.names():
        algorithms.find(name)
    assert set(parts._PARTS) < parts.roles()  # algorithms themselves are of the role that is left
    assert parts.roles() - set(parts._PARTS) == {"rule"}
    assert {"Flame", "Oort", "Pyramid", "Uniform"} <= {cls.__name__ for cls in parts.parts("select").values()}


def test_a_part_that_is_taken_is_refused():
    with pytest.raises(PotluckError, match=r"'Uniform' is potluck.rules.select:Uniform already"):

        @parts.part("select")
        class Uniform:
            pass


def test_parts_and_inner_algorithms_are_found_without_the_rest_imported():
    """`inner` imports that one algorithm alone; a selector of another algorithm's folder is found there."""
    lines = (
        "import sys",
        "from potluck import algorithms",
        "from potluck.jobs import Train",
        "made = algorithms.make('auxo', Train(), inner={'kind': 'fedyogi', 'clients': 4})",
        "assert type(made.inner.server).__name__ == 'Adaptive'",
        "assert 'potluck.algorithms.fedrac.algorithm' not in sys.modules",
        "assert 'potluck.algorithms.oort.selection' not in sys.modules",
        "made = algorithms.make('fedavg', Train(), select={'kind': 'oort', 'penalty': 1.0})",
        "assert made.select.penalty == 1.0",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_a_file_is_validated_once_and_only_what_is_run_is_built(monkeypatch, tmp_path):
    tables = {"fedavg": {"clients": 3}, "fedprox": {"mu": 0.5}, "auxo": {"inner": "fedyogi"}}
    (tmp_path / "small.toml").write_text(small(algorithms=tables, run={"executor": "loop"}).to_toml())
    made, validated, simulated = [], [], []
    real, parse, start = _parameters.Call.make, Experiment.__init__, Simulation.__init__

    def begin(self, *arguments, **settings):
        simulated.append(1)
        start(self, *arguments, **settings)

    monkeypatch.setattr(Simulation, "__init__", begin)
    monkeypatch.setattr(_parameters.Call, "make", lambda self: made.append(self.path) or real(self))
    monkeypatch.setattr(Experiment, "__init__", lambda self, **t: validated.append(1) or parse(self, **t))
    read = Experiment.from_file(tmp_path / "small.toml")
    done = potluck.run(read, tmp_path / "run")
    assert done.summary["finished"]
    assert made == ["algorithms.fedavg"]
    assert len(validated) == len(simulated) == 1


def test_what_is_not_run_is_checked():
    for table, message in (
        ({"fedprox": {"mo": 0.5}}, r"algorithms.fedprox.mo = 0.5: no such parameter; known: clients, dead"),
        ({"fedprox": {"mu": "x"}}, r"algorithms.fedprox.mu = 'x': should be a valid number"),
        ({"auxo": {"inner": "fedyog"}}, r"algorithms.auxo.inner.kind = 'fedyog': no such algorithm"),
        ({"auxo": {"inner": {"kind": "fedyogi", "x": 1}}}, r"algorithms.auxo.inner.x = 1: no such parameter"),
        ({"oort": {"server": "sgd"}}, r"algorithms.oort.server.kind = 'sgd': no such part; known: Adaptive"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve_run(small(algorithms=table))


def test_a_complete_table_makes_the_same_algorithm():
    for name in algorithms.names():
        table = tomllib.loads(toml.write(algorithms.complete(name)))
        assert algorithms.make(name, Train(), **table) == algorithms.make(name, Train())
        assert toml.write(algorithms.complete(name, **table)) == toml.write(algorithms.complete(name))


def test_meanings_come_from_the_file():
    (deadline,) = (p for p in algorithms.describe("fedavg").parameters if p.name == "deadline")
    assert (deadline.type, deadline.default, deadline.meaning) == ("float | None", "None", "seconds")


def test_types_say_what_every_parameter_means():
    makers = {name: algorithms.find(name) for name in algorithms.names()}
    for role in parts.roles():
        makers |= {f"{role} {cls.__name__}": cls for cls in parts.parts(role).values()}
    named = {
        (whose, p) for whose, make in makers.items() for p in _parameters.parameters(make) if p != "local"
    }
    meant = {(whose, p) for whose, make in makers.items() for p in _parameters.meanings(make)}
    assert len(named) > 200
    assert named - meant == set()


@codec.value
class Wrapper:
    """An algorithm around another, with a parameter of every kind."""

    inner: Rule[Any]
    local: Train = Train()
    sizes: tuple[float, ...] = ()
    share: float | None = 0.5

    def __post_init__(self):
        if self.share is not None and self.share > 1:
            raise ValueError(f"share = {self.share}: at most 1")


def wrapped(**params):
    return _parameters.fit(Wrapper, params, "algorithms.wrapper", _parameters.Terms(Train(batch=7))).make()


def test_algorithms_take_algorithms():
    made = wrapped(inner={"kind": "FedProx", "mu": 0.5, "clients": 2}, sizes=[1, 0.5], share=None)
    assert made == Wrapper(
        FedAvg(clients=2, local=Train(objective=Prox(0.5), batch=7)), Train(batch=7), (1.0, 0.5), None
    )
    assert wrapped(inner="fedavg").inner == FedAvg(local=Train(batch=7))
    assert wrapped(inner=made.inner).inner is made.inner


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "algorithms.wrapper.inner is missing: it needs a value of type Rule"),
        ({"inner": "fedavgg"}, "algorithms.wrapper.inner.kind = 'fedavgg': no such algorithm; did you mean"),
        ({"inner": {"kind": "fedprox", "mo": 1}}, "algorithms.wrapper.inner.mo = 1: no such parameter"),
        (
            {"inner": "fedavg", "sizes": ["x"]},
            r"algorithms.wrapper.sizes = \['x'\]: should be a valid number",
        ),
    ],
)
def test_wrong_parts_are_named(params, message):
    with pytest.raises(ConfigError, match=message):
        wrapped(**params)


def test_what_a_file_cannot_hold_is_left_out():
    assert _written.plain(Wrapper(FedAvg())) is None  # its training comes from elsewhere
    assert _written.plain(Adaptive(lr=0.5))["kind"] == "Adaptive"
    assert _written.plain((1, 2.5, "x")) == [1, 2.5, "x"]
    assert _written.plain(print) is None


# -------------------------------------------------------------------------------------------------- files


NUMBERS = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3))


@given(st.dictionaries(st.text(), VALUES))
def test_toml_reads_what_it_wrote(table):
    assert tomllib.loads(toml.write(table)) == table


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("fedavg", "fedavg"),
        ("'a b'", "a b"),
        ("2024-01-01", "2024-01-01"),
        ("", ""),
        ("1\nb = 2", "1\nb = 2"),
    ],
)
def test_settings_are_toml_or_text(text, value):
    assert toml.parse_literal(text) == value


def test_a_resolved_experiment_survives_its_file(tmp_path):
    resolved = Experiment(stop={"rounds": 40, "seconds": 100.0}, train={"optimizer": "adam"}).resolve()
    (tmp_path / "e.toml").write_text(resolved.to_toml())
    again = Experiment.from_file(tmp_path / "e.toml")
    assert again.to_toml() == resolved.to_toml() == again.resolve().to_toml()
    assert (again.evaluate.rounds, again.evaluate.seconds) == (2, 5.0)
    assert (again.train.lr, again.train.epochs, again.data.clients) == (0.001, 1, 20)
    assert again.fleet.compute_spread == 13.0  # a default of the fleet's, not of the file's


def test_everybody_takes_part_by_user_unless_told():
    assert Experiment(data={"partition": "by_user"}).resolve().data.clients is None


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"dta": {}}, "dta: no such table; did you mean 'data'?"),
        ({"data": {"clinets": 5}}, "data.clinets = 5: no such key; did you mean 'clients'?"),
        ({"data": {"clients": "many"}}, "data.clients = 'many': should be a valid integer"),
        ({"data": {"clients": 0}}, "data.clients = 0: should be greater than or equal to 1"),
        ({"data": 5}, "data = 5: should be a table"),
        ({"data": {"source": "digts"}}, "data.source = 'digts': no such source; did you mean 'digits'?"),
        ({"fleet": {"source": "moble"}}, "fleet.source = 'moble': no such source; did you mean 'mobile'?"),
        ({"fleet": {"latency": "x"}}, "fleet.latency = 'x': should be a valid number"),
        (
            {"train": {"optimizer": "sdg"}},
            "train.optimizer = 'sdg': should be one of sgd, adam; did you mean 'sgd'?",
        ),
        ({"train": {"lr": float("nan")}}, "train.lr = nan: should be a finite number"),
        ({"train": {"epochs": 1, "steps": 2}}, "train: epochs = 1 and steps = 2: give one of them"),
        (
            {"stop": {"target": 0.9}},
            "stop: give rounds, seconds or device_seconds (a target alone may never be reached)",
        ),
        ({"algorithms": {"fedavg": 3}}, "algorithms.fedavg = 3: should be a table"),
        (
            {"compare": ["fedavgg"]},
            "compare = ['fedavgg']: fedavgg: no such algorithm; did you mean 'fedavg'?",
        ),
        (
            {"name": "a/b"},
            "name = 'a/b': use letters, digits, '.', '_' and '-': folders are named after it",
        ),
        (
            {"seed": "1", "data": {"clinets": 1}},
            "data.clinets = 1: no such key; did you mean 'clients'? (1 more in this file)",
        ),
    ],
)
def test_one_line_for_every_problem(tables, message):
    with pytest.raises(ConfigError) as caught:
        Experiment(**tables)
    assert str(caught.value) == f"experiment: {message}"


def test_overrides():
    settings = ["data.clients=5", "train.lr = 0.5", "algorithms.fedavg.server.lr=0.1", "name=x"]
    changed = small().with_overrides(settings)
    assert (changed.data.clients, changed.data.rows, changed.train.lr, changed.name) == (5, 400, 0.5, "x")
    assert changed.algorithms == {"fedavg": {"clients": 3, "server": {"lr": 0.1}}}
    assert small().algorithms == {"fedavg": {"clients": 3}}  # the old one is as it was


def test_overrides_are_judged_together():
    before = small(data={"validation": 0.1, "test": 0.5})
    split = before.with_overrides(["data.validation=0.6", "data.test=0.1"])
    assert (split.data.validation, split.data.test) == (0.6, 0.1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.clients", r"--set 'data.clients': write key=value"),
        ("=3", r"--set '=3': write key=value"),
        ("data.clinets=3", r"--set: data.clinets = 3: no such key; did you mean 'clients'\?"),
        ("seed.x=3", r"--set 'seed.x=3': seed is a value, not a table"),
    ],
)
def test_wrong_overrides(setting, message):
    with pytest.raises(ConfigError, match=message):
        small(seed=2).with_overrides([setting])


def test_an_algorithm_may_train_otherwise():
    both = small(train={"lr": 0.3, "epochs": 2}, algorithms={"fedprox": {"mu": 0.5, "train": {"steps": 5}}})
    fedprox = prepare(both.with_values(algorithm="fedprox"))
    assert fedprox.algorithm.local == Train(
        fedprox.algorithm.local.model, objective=Prox(0.5), optim=SGD(0.3), steps=5
    )
    assert prepare(both).algorithm.local.epochs == 2
    with pytest.raises(ConfigError, match=r"algorithms.fedprox.train.lrr = 1: no such key; did you"):
        prepare(both.with_values(algorithms={"fedprox": {"train": {"lrr": 1}}}))


def test_identity_is_of_what_is_computed():
    assert prepare(small()).identity == prepare(small(algorithm="FedAvg")).identity
    assert prepare(small()).identity != prepare(small(seed=9)).identity
    two, three = (prepare(small(), FedAvg(clients=n)).identity for n in (2, 3))
    assert two != three


def test_float64_reaches_data_and_models():
    federation = build.build_federation(small(run={"dtype": "float64"}).resolve())
    assert federation.pool.x.dtype == torch.float64
    assert all(
        p.dtype == torch.float64 for p in federation.models[build.ModelSpec("linear")].init(0).values()
    )


# --------------------------------------------------------------------------------------------------- runs


def test_a_run_in_memory():
    run = potluck.run(small())
    assert run.finished
    assert run.path is None
    assert run.summary["rounds"] == 4
    assert run.summary["accuracy_mean"] == run.records.query("metric == 'accuracy_mean'").value.iloc[-1]
    assert set(run.records.run) == {"fedavg-1"}
    assert list(run.models) == ["global"]


def test_the_defaults_learn_digits():
    run = potluck.run(Experiment(stop={"rounds": 20}, run={"executor": "loop"}))
    assert run.summary["global_accuracy"] > 0.8


def test_a_run_folder_holds_all_that_is_needed(tmp_path):
    run = potluck.run(small(evaluate={"target": 0.3}), tmp_path / "a")
    names = {"experiment.toml", "plan.json", "records.jsonl", "summary.json", "snapshots", "models"}
    assert names <= {path.name for path in (tmp_path / "a").iterdir()}
    loaded = potluck.load(tmp_path / "a")
    assert loaded.summary == run.summary == json.loads((tmp_path / "a" / "summary.json").read_text())
    assert loaded.experiment.to_toml() == run.experiment.to_toml()
    assert loaded.summary["time_to_target"] is not None
    assert json.loads((tmp_path / "a" / "plan.json").read_text())["reason"] == "as the experiment says"

    again = potluck.run(Experiment.from_file(tmp_path / "a" / "experiment.toml"), tmp_path / "b")
    assert (tmp_path / "a" / "records.jsonl").read_bytes() == (tmp_path / "b" / "records.jsonl").read_bytes()
    assert again.experiment.to_toml() == run.experiment.to_toml()

    pool = build.build_federation(run.experiment).pool
    with torch.no_grad():
        right = loaded.models["global"](pool.x[pool.test]).argmax(-1) == pool.y[pool.test]
    assert float(right.double().mean()) == pytest.approx(run.summary["global_accuracy"])


class Interrupt:
    """Ctrl-C at the first sign of progress past a share of the way."""

    def __init__(self, share):
        self.share = share

    def __call__(self, progress):
        if progress.done >= self.share:
            raise KeyboardInterrupt


def test_resuming_gives_the_same_run(tmp_path):
    # Long enough for progress to be told before the end.
    often = {"executor": "loop", "snapshot_every": 0.1}
    wanted = small(stop={"rounds": 200}, evaluate={"rounds": 50}, run=often)
    straight = potluck.run(wanted, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        potluck.run(wanted, tmp_path / "broken", Interrupt(0.05))
    half = potluck.load(tmp_path / "broken")
    assert not half.finished
    resumed = potluck.resume(tmp_path / "broken")
    records = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("straight", "broken")]
    assert records[0] == records[1]
    same = {"wall_seconds": 0, "finished": ""}
    assert {**resumed.summary, **same} == {**straight.summary, **same}
    assert len((tmp_path / "broken" / "sessions.jsonl").read_text().splitlines()) == 2
    assert potluck.resume(tmp_path / "broken").summary == resumed.summary  # nothing is left to do


def test_two_processes_never_compute_the_same_run(tmp_path):
    began = small(stop={"rounds": 400})

    def look_on(progress):
        """While the run is under way: whoever else would write into its folder is refused."""
        for intrude in (
            lambda: potluck.resume(tmp_path / "a"),
            lambda: potluck.run(began, out=tmp_path / "a", force=True),
        ):
            with pytest.raises(ConfigError, match=r"another process is computing this run .*; wait until"):
                intrude()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        potluck.run(began, out=tmp_path / "a", progress=look_on)
    again = potluck.run(began.with_values(stop={"rounds": 2}), out=tmp_path / "a", force=True)
    assert again.finished  # the lock went with whoever had it


def test_resume_refuses_another_experiment(tmp_path):
    wanted = small(stop={"rounds": 400})
    with pytest.raises(KeyboardInterrupt):
        potluck.run(wanted, tmp_path / "a", Interrupt(0))
    file = tmp_path / "a" / "experiment.toml"
    file.write_text(file.read_text().replace("rounds = 400", "rounds = 401"))
    with pytest.raises(SnapshotError, match=r"experiment.toml"):
        potluck.resume(tmp_path / "a")


def test_resume_and_load_need_a_run(tmp_path):
    with pytest.raises(SnapshotError, match="no such folder"):
        potluck.load(tmp_path / "none")
    with pytest.raises(SnapshotError, match="not the folder of a run"):
        potluck.resume(tmp_path)


@codec.value
class Eager(FedAvg):
    """A user's own rule."""


def test_a_rule_made_in_python(tmp_path):
    rule = Eager(clients=2, local=Train(build.ModelSpec("linear")))
    with pytest.raises(KeyboardInterrupt):
        potluck.run(small(stop={"rounds": 150}), tmp_path / "a", Interrupt(0), algorithm=rule)
    assert potluck.load(tmp_path / "a").summary["algorithm"] == "Eager"
    with pytest.raises(ConfigError, match=r"Eager made in Python; resume it there: potluck.resume"):
        potluck.resume(tmp_path / "a")
    assert potluck.resume(tmp_path / "a", algorithm=rule).summary["rounds"] == 150


def test_bad_input_leaves_nothing_behind(tmp_path):
    for key, wrong in (
        ("model", {"name": "none"}),
        ("data", {"source": "npz"}),
        ("algorithm", "none"),
        ("fleet", {"up": 1.0}),
    ):
        with pytest.raises(PotluckError):
            potluck.run(small(**{key: wrong}), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_failing_later_leaves_nothing_behind(tmp_path):
    rule = FedAvg(local=Train(build.ModelSpec("none")))  # found out only when it starts
    with pytest.raises(ConfigError, match=r"no such model"):
        potluck.run(small(), tmp_path / "a", algorithm=rule)
    assert not (tmp_path / "a").exists()


class Breaks(FedAvg):
    """Goes wrong when the first answers have come."""

    def merge(self, m, lane, got, ctx):
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("clients = 9: too many"), "clients = 9: too many"),
        (ZeroDivisionError("a fault of ours"), "a fault of ours"),
    ],
    ids=["refused", "fault"],
)
def test_a_run_that_breaks_early_keeps_its_records(error, said, tmp_path, monkeypatch):
    monkeypatch.setattr(Breaks, "error", error, raising=False)
    with pytest.raises(type(error), match=said) as caught:
        potluck.run(small(), tmp_path / "a", algorithm=Breaks())
    if isinstance(error, ConfigError):
        assert str(caught.value).endswith(f"; its records are in {tmp_path / 'a'}")
    left = potluck.load(tmp_path / "a")
    assert not left.finished
    assert len(left.lines) > 5
    with pytest.raises(type(error), match=said):  # it goes on, and comes to the same
        potluck.resume(tmp_path / "a", algorithm=Breaks())


def test_a_run_that_stalls_early_keeps_its_records(tmp_path, monkeypatch):
    monkeypatch.setattr(drought, "MOST", 50)
    brief = small(fleet={"availability": "on_off", "period": 0.01, "share": 0.5}, stop={"rounds": 999})
    with pytest.raises(StalledError, match=rf"nobody has answered .*; its records are in {tmp_path / 'a'}$"):
        potluck.run(brief, tmp_path / "a")
    assert len(potluck.load(tmp_path / "a").lines) > 5
    with pytest.raises(StalledError, match=rf"nobody has answered .*; its records are in {tmp_path / 'a'}$"):
        potluck.resume(tmp_path / "a")


def test_force_replaces_runs_and_nothing_else(tmp_path):
    potluck.run(small(), tmp_path / "a")
    with pytest.raises(ConfigError, match="exists already; go on with"):
        potluck.run(small(), tmp_path / "a")
    with pytest.raises(ConfigError, match="no such"):  # a bad experiment must not cost the old run
        potluck.run(small(algorithm="none"), tmp_path / "a", force=True)
    assert potluck.load(tmp_path / "a").finished
    assert potluck.run(small(seed=3), tmp_path / "a", force=True).summary["seed"] == 3

    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 'notes.txt', which Potluck didn't make"):
        potluck.run(small(), tmp_path / "a", force=True)
    with pytest.raises(ConfigError, match=r"holds no experiment.toml, so it isn't a run and isn't deleted"):
        potluck.run(small(), tmp_path, force=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="not a plain folder"):
        potluck.run(small(), tmp_path / "file", force=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigError, match="not a plain folder"):
        potluck.run(small(), tmp_path / "link", force=True)
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_half_a_record_is_not_read(tmp_path):
    whole = {"round": 1, "time": 2.0, "metric": "tasks", "value": 3}
    (tmp_path / "records.jsonl").write_text(f'{json.dumps(whole)}\n{{"rou')
    assert folder.read_records(tmp_path) == [whole]


def test_devices_may_come_and_go():
    away = {"availability": "on_off", "period": 100.0, "share": 0.5}
    run = potluck.run(small(fleet=away, stop={"seconds": 20.0}))
    assert run.summary["participants"] > 0


def test_models_of_ones_own(tmp_path):
    def narrow(shape, classes):
        return torch.nn.Linear(shape[0], classes, bias=False)

    potluck.register_model("narrow", narrow)
    try:
        run = potluck.run(small(model={"name": "narrow"}), tmp_path / "a")
        assert run.models["global"].bias is None
    finally:
        del registry.MODELS._values["narrow"]
    with pytest.raises(ConfigError, match=r"'narrow': no such model.*register your own with"):
        _ = potluck.load(tmp_path / "a").models


# -------------------------------------------------------------------------------------------- comparisons


def test_compare_in_memory():
    compared = potluck.compare(small(evaluate={"target": 0.2}), ["fedavg", "fedasync"], [1, 2])
    assert [run.name for run in compared.runs] == ["fedavg-1", "fedavg-2", "fedasync-1", "fedasync-2"]
    first, second = compared.rows
    assert first.speed_up == 1.0
    assert second.speed_up == pytest.approx(first.seconds_to_target.mean / second.seconds_to_target.mean)
    mean = sum(run.summary["accuracy_mean"] for run in compared.of("fedavg")) / 2
    assert first.accuracy.mean == pytest.approx(mean)
    assert first.accuracy.half is None  # two seeds
    assert second.difference is not None
    assert second.difference.half is None


def test_without_a_target_the_first_algorithm_sets_it():
    compared = potluck.compare(small(), ["fedavg", "fedprox"])
    assert compared.target == compared.runs[0].summary["accuracy_mean"]
    assert compared.rows[0].seconds_to_target.mean is not None


@pytest.mark.parametrize(
    ("names", "seeds", "message"),
    [
        (["fedavg", "none"], None, r"compare = 'none': no such algorithm"),
        (["fedavg", "FedAvg"], None, r"compare = \['fedavg', 'fedavg'\]: 'fedavg' is named twice"),
        (None, [1, 1], r"seeds = \[1, 1\]: 1 is named twice"),
    ],
)
def test_wrong_comparisons(names, seeds, message):
    with pytest.raises(ConfigError, match=message):
        potluck.compare(small(), names, seeds)


# ------------------------------------------------------------------------------------------ the front door


def test_version_is_the_packages():
    with open("pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == potluck.__version__


def test_importing_is_light():
    import subprocess
    import sys

    code = "import sys, potluck, potluck.cli; assert not {'torch', 'pandas', 'plotly'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_at_the_top():
    assert all(getattr(potluck, name) is not None for name in potluck.__all__)
    assert set(potluck.__all__) == set(dir(potluck))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = potluck.nonsense


def test_what_is_wrong_with_nested_settings_is_told():
    for told, said in (
        ({"clustering": 3}, r"algorithms\.fedrac\.clustering = 3: should be a table"),
        ({"clustering": "kmeans"}, r"algorithms\.fedrac\.clustering = 'kmeans': should be a table"),
        ({"clustering": {"metod": "kmeans"}}, r"clustering\.metod = 'kmeans': .* did you mean 'method'\?"),
        (
            {"clustering": {"weights": [0.5, 0.5]}},
            r"clustering\.weights = \[0.5, 0.5\]: too few values \(tup",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            algorithms.check("fedrac", **told)


def test_defaults_of_parts_are_described_without_their_training():
    described = {p.name: p for p in algorithms.describe("auxo").parameters}
    assert described["inner"].default.startswith("FedAvg(clients=10, select=Uniform(), ")
    assert described["criterion"].type == "Criterion"
    assert "explore='told'" in described["criterion"].default


def test_a_default_without_end_is_not_written(monkeypatch):
    def endless(local: Train = Train(), most: float = float("inf")):
        return algorithms.make("fedavg", local)

    monkeypatch.setattr(algorithms._REGISTERED, "_values", dict(algorithms._REGISTERED._values))
    algorithms.register("endless", endless)
    assert algorithms.complete("endless") == {}  # a file may not say inf
    assert algorithms.complete("endless", most=3.0) == {"most": 3.0}
