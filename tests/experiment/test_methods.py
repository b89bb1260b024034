"""Comparisons of one algorithm in several ways: tables beside names, labels, tuning, studies."""

import sys
import tomllib

import pytest

import potluck
from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Train
from potluck.core.errors import ConfigError
from potluck.experiment import Experiment, folder
from potluck.experiment.comparison import load_comparison
from potluck.experiment.methods import list_methods, overlay
from potluck.experiment.schema.settings import dump_given
from potluck.experiment.study import Arm, Scale, Study
from potluck.report.gather import gather
from potluck.rules.server_optim import Average, ServerOptim

BOTH = ["fedavg", "pair", {"algorithm": "pair", "mode": "published"}]


def pair(local: Train = Train(), clients: int = 4, server: ServerOptim = Average(1.0)) -> FedAvg:
    """FedAvg, of which two were published."""
    return FedAvg(clients, local, server=server)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    registry = algorithms._REGISTERED
    monkeypatch.setattr(registry, "_values", dict(registry._values))
    monkeypatch.setattr(registry, "_modules", dict(registry._modules))
    algorithms.register("pair", pair)
    monkeypatch.setattr(sys.modules[__name__], "PUBLISHED", {"clients": 2}, raising=False)


def small(**changes):
    tables = {
        "data": {"source": "synthetic", "rows": 300, "dimension": 4, "classes": 3, "clients": 6},
        "model": {"width": 0.05},
        "stop": {"rounds": 2},
        "evaluate": {"rounds": 2},
        "run": {"executor": "loop"},
    }
    return Experiment(**{**tables, **changes})


def labels(experiment, wanted=()):
    return [method.label for method in list_methods(experiment, wanted)]


def clients(run):
    name = run.experiment.algorithm
    return run.experiment.algorithms[name]["clients"]


# ----------------------------------------------------------------------------------------------- labels


def test_a_label_says_what_a_table_says():
    entries = [
        *("fedavg", {"algorithm": "FedAvg", "clients": 3}),
        {"algorithm": "pair", "mode": "published", "server": {"lr": 0.5}},
        {"algorithm": "fedprox", "mu": 0.1, "name": "a pull (weak)"},
    ]
    said = ["fedavg", "fedavg clients 3", "pair published server lr 0.5", "a pull (weak)"]
    assert labels(small(compare=entries)) == said
    assert labels(small(algorithm="fedprox")) == ["fedprox"]


def test_names_beside_the_list_are_labels_or_algorithms():
    wanted = small(compare=BOTH)
    assert labels(wanted, ["pair published", "FedProx"]) == ["pair published", "fedprox"]
    assert labels(wanted, [{"algorithm": "pair", "clients": 1}]) == ["pair clients 1"]
    with pytest.raises(
        ConfigError, match=r"compare = 'pair publishd': no such algorithm; did you mean 'pair p"
    ):
        list_methods(wanted, ["pair publishd"])
    with pytest.raises(ConfigError, match=r"compare: .*names no algorithm"):
        list_methods(wanted, [{"mode": "published"}])


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (["pair", {"algorithm": "pair"}], r"compare = \['pair', 'pair'\]: 'pair' is named twice; .* name ="),
        (["a", "b"], r"compare = \['a', 'b'\]: a: no such algorithm"),
        ([{"mode": "published"}], r"compare = .*names no algorithm; write { algorithm = 'fedavg', ... }"),
        ([{"algorithm": "fedav"}], r"compare = .*fedav: no such algorithm; did you mean 'fedavg'"),
        ([{"algorithm": "pair", "name": "a/b"}], r"name = 'a/b': use letters, digits, spaces"),
        ([{"algorithm": "pair", "name": 3}], r"name = 3: use letters"),
        ([3], r"compare = \[3\]: 3: write an algorithm's name, or a table"),
        ([{"algorithm": "pair", "x": "y" * 99}], r"the label .* too long; give it a short name = '...'"),
    ],
)  # fmt: skip
def test_wrong_tables_are_refused(entries, said):
    with pytest.raises(ConfigError, match=said):
        list_methods(small(compare=entries))


def test_two_labels_of_one_folder_are_refused():
    entries = [{"algorithm": "pair", "name": "a b"}, {"algorithm": "pair", "clients": 1, "name": "a-b"}]
    with pytest.raises(ConfigError, match=r"'a-b' is named twice; leave one out, or give it another name"):
        list_methods(small(compare=entries))


def test_a_table_is_laid_over_that_of_its_algorithm():
    own = {"pair": {"mode": "published", "server": "adaptive"}, "fedavg": {"clients": 5}}
    (method,) = list_methods(small(), [{"algorithm": "pair", "server": {"lr": 0.5}}])
    laid = method.lay_over(small(algorithms=own)).algorithms
    assert laid["pair"] == {"mode": "published", "server": {"kind": "adaptive", "lr": 0.5}}
    assert laid["fedavg"] == {"clients": 5}
    assert overlay({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}


# ------------------------------------------------------------------------------------------ comparisons


def test_one_comparison_holds_both_modes(tmp_path):
    compared = potluck.compare(small(compare=BOTH), seeds=[1, 2], out=tmp_path / "c")
    assert compared.algorithms == ["fedavg", "pair", "pair published"]
    assert [clients(compared.of(name)[0]) for name in compared.algorithms] == [10, 4, 2]
    assert [run.name for run in compared.of("pair published")] == ["pair published-1", "pair published-2"]
    assert folder.is_finished(tmp_path / "c" / "pair-published-2")
    assert [row.algorithm for row in compared.rows] == compared.algorithms
    assert compared.rows[2].difference is not None  # paired by seed
    own = potluck.load(tmp_path / "c" / "pair-published-1")
    assert own.summary["algorithm"] == "pair"
    assert own.experiment.algorithms["pair"]["mode"] == "published"
    alone = potluck.run(small(algorithm="pair", algorithms={"pair": {"mode": "published"}}))
    assert alone.summary["accuracy_mean"] == own.summary["accuracy_mean"]


def test_a_comparison_of_tables_is_read_back_and_goes_on(tmp_path):
    compared = potluck.compare(small(compare=BOTH), out=tmp_path / "c")
    written = tomllib.loads((tmp_path / "c" / "experiment.toml").read_text())["compare"]
    assert written == ["fedavg", "pair", {"algorithm": "pair", "name": "pair published", "mode": "published"}]
    loaded = load_comparison(tmp_path / "c")
    assert loaded.algorithms == gather([tmp_path / "c"]).algorithms == compared.algorithms
    for path in (tmp_path / "c" / "pair-published-1").iterdir():
        if path.name == "summary.json":
            path.unlink()
    again = potluck.resume_comparison(tmp_path / "c")
    assert [row.accuracy for row in again.rows] == [row.accuracy for row in compared.rows]
    assert again.algorithms == compared.algorithms


def test_python_takes_tables_too():
    compared = potluck.compare(
        small(), [*BOTH[:2], {"algorithm": "pair", "mode": "published", "name": "old"}]
    )
    assert compared.algorithms == ["fedavg", "pair", "old"]


def test_what_is_wrong_in_a_table_is_told_with_its_label():
    entries = ["fedavg", {"algorithm": "pair", "moed": "published", "name": "old"}]
    said = r"pair.moed = 'published': no such parameter; did you mean 'mode'\? \(of 'old' in compare\)"
    with pytest.raises(ConfigError, match=said):
        potluck.compare(small(compare=entries))


def test_runs_of_both_modes_are_told_apart_wherever_they_lie(tmp_path):
    for mode in ("potluck", "published"):
        potluck.run(small(algorithm="pair", algorithms={"pair": {"mode": mode}}), tmp_path / mode)
    assert gather([tmp_path / "potluck", tmp_path / "published"]).algorithms == ["pair", "pair published"]


# ------------------------------------------------------------------------------- tuning and studies


def test_methods_are_tuned_each_for_itself(tmp_path):
    grid = {"trials": 2, "refine": 0, "seeds": [5], "grid": {"train": {"lr": [0.1, 0.5]}}}
    compared = potluck.compare(small(compare=BOTH[1:], tune=grid), out=tmp_path / "c", tuned=True)
    assert list(compared.tuning.results) == ["pair", "pair published"]
    assert folder.is_finished(tmp_path / "c" / "tune" / "pair-published-lr0.5-5")
    rates = [run.experiment.training("pair").lr for run in compared.runs]
    assert rates == [compared.tuning.choice(name)["train.lr"] for name in compared.algorithms]
    assert [clients(run) for run in compared.runs] == [4, 2]
    assert list(load_comparison(tmp_path / "c").tuning.results) == compared.algorithms


def test_a_mode_may_be_tuned_as_any_setting():
    own = {"pair": {"mode": ["potluck", "published"], "server": {"lr": [0.5, 1.0]}}}
    table = {"trials": 4, "refine": 0, "seeds": [5], "grid": {}, "own": own}
    tuning = potluck.tune(small(algorithm="pair", tune=table))
    tried = [trial["point"] for trial in tuning.results["pair"]]
    assert {(point["mode"], point["server.lr"]) for point in tried} == {
        *(("potluck", 0.5), ("potluck", 1.0), ("published", 0.5), ("published", 1.0))
    }
    by_mode = {point["mode"] for point in tried}
    assert by_mode == {"potluck", "published"}


def test_an_arm_may_have_a_mode():
    arms = [Arm("ours", "pair"), Arm("the paper's", "pair", {"mode": "published"})]
    tables = dump_given(small())
    plan = Study("t", "q", arms, quick=Scale(tables), paper=Scale(tables)).plan("quick")
    made = [potluck.run(plan.experiment(arm, "", 1)) for arm in plan.arms]
    assert [clients(run) for run in made] == [4, 2]


def test_a_table_may_have_layers_of_its_own():
    own = {"layers": ["cohorts"], "layer": {"cohorts": {"clients": 4, "cohorts": 2}}}
    whole = small(
        layers=["sizes"], compare=["fedavg", {"algorithm": "fedavg", "name": "stack", "mu": 1.0, **own}]
    )
    plain, stack = list_methods(whole)
    assert (plain.label, stack.label) == ("fedavg", "stack")
    assert stack.parameters == {"mu": 1.0}
    assert plain.lay_over(whole).layers == ["sizes"]
    made = stack.lay_over(whole)
    assert (made.layers, made.layer) == (["cohorts"], own["layer"])
    again = small(compare=[method.to_entry() for method in (plain, stack)])
    assert list_methods(again) == [plain, stack]
    unnamed = [{"algorithm": "fedavg", "layers": layers} for layers in (["users", "cohorts"], [])]
    assert labels(small(compare=unnamed)) == ["fedavg layers users cohorts", "fedavg layers none"]
