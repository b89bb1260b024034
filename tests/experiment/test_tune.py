"""Searches that are run: as many trials for every method; what is wrong is refused before they begin."""

import json
import re
import shutil

import pytest
import torch

import potluck
from potluck.cli import main
from potluck.core.errors import ConfigError, SnapshotError
from potluck.experiment import Experiment, compare, study_runner, tune
from potluck.experiment.search import count_points
from potluck.experiment.study import Arm, Scale, Study
from potluck.experiment.tune import fill_tune
from potluck.experiment.tune_stages import count_trials
from potluck.experiment.tuned_keys import find_space, has_key, list_keys, name_trial, set_values
from potluck.experiment.tuning import load_tuning
from potluck.report import reproduction
from potluck.report.choices import list_choices, tell_choice

# Rates so low that the best one lies at the upper end: the search must go beyond it.
DIGITS = {
    "name": "fair",
    "compare": ["fedavg", "fedprox", "qfedavg"],
    "data": {"source": "digits", "clients": 10},
    "model": {"name": "linear"},
    "stop": {"rounds": 4},
    "run": {"executor": "loop"},
    "tune": {
        "trials": 6,
        "seeds": [11, 12],
        "grid": {"train": {"lr": [0.001, 0.004]}},
        "own": {"fedprox": {"mu": [0.01, 0.1]}, "qfedavg": {"q": [0.1, 1.0]}},
    },
}


def experiment(**changes):
    return Experiment(**{**DIGITS, **changes})


class Told:
    """Who was told of which runs."""

    def __init__(self):
        self.runs = []

    def __call__(self, name):
        from contextlib import nullcontext

        return nullcontext()

    def say(self, text): ...

    def announce(self, number, total, left):
        self.runs.append((number, total))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """One search, which tests look at: its folder, what was found, and which runs were announced."""
    place, told = tmp_path_factory.mktemp("tuned"), Told()
    return place, tune(experiment(), out=place, progress=told), told


def test_every_method_has_as_many_trials(found):
    place, tuning, told = found
    assert {name: len(tried) for name, tried in tuning.results.items()} == {
        "fedavg": 6,
        "fedprox": 6,
        "qfedavg": 6,
    }
    assert told.runs == [(n, 36) for n in range(1, 37)]  # 3 methods x 6 trials x 2 seeds
    assert len([path for path in place.iterdir() if path.is_dir()]) == 36
    for tried in tuning.results.values():
        assert all(len(trial["results"]) == 2 for trial in tried)
        assert all(trial["mean"] == pytest.approx(sum(trial["results"]) / 2) for trial in tried)


def test_an_edge_is_extended_and_more_is_better_there(found):
    _, tuning, _ = found
    tried = tuning.results["fedavg"]
    assert [(t["point"]["train.lr"], t["origin"]) for t in tried[:3]] == [
        (0.001, "grid"),
        (0.004, "grid"),
        (0.016, "extension"),  # 0.004 x 4
    ]
    assert tuning.choice("fedavg")["train.lr"] > 0.004
    assert tuning.extended("fedavg")["train.lr"][0] == 0.016
    first = [t for t in tuning.results["fedprox"] if t["origin"] == "grid"]
    assert len(first) == 4  # 2 rates x 2 mu, and a third of the trials is kept
    assert tuning.extended("fedprox")["train.lr"] == [0.016, 0.064]
    assert set(tuning.choice("qfedavg")) == {"train.lr", "q"}


def test_the_folder_tells_it_all(found):
    place, tuning, _ = found
    assert load_tuning(place) == tuning
    told = json.loads((place / "tune.json").read_text())
    assert (told["trials"], told["seeds"], told["on"]) == (6, [11, 12], "validation")
    chosen = told["choices"]["fedprox"]
    assert chosen["settings"] == tuning.choice("fedprox")
    assert chosen["extended"] == {"train.lr": [0.016, 0.064]}
    assert chosen["edge"][0] == "train.lr"
    one = potluck.load(place / "fedprox-lr0.016-mu0.01-12").experiment
    assert (one.seed, one.evaluate.on) == (12, "validation")
    assert (one.algorithms["fedprox"]["mu"], one.training("fedprox").lr) == (0.01, 0.016)
    means = [tuning.results["fedprox"][i]["results"][1] for i in range(6)]
    assert potluck.load(place / "fedprox-lr0.016-mu0.01-12").summary["accuracy_mean"] in means


@pytest.mark.parametrize("lost", ["tune.json", "grid", "last"])
def test_an_interrupted_search_goes_on_where_it_was(found, tmp_path, lost):
    place, tuning, _ = found
    shutil.copytree(place, tmp_path / "t")
    (tmp_path / "t" / "tune.json").unlink()
    last = name_trial("qfedavg", {"train.lr": [], "q": []}, tuning.results["qfedavg"][-1]["point"], 12)
    gone = {"tune.json": [], "grid": ["fedavg-lr0.001-11"], "last": [last]}[lost]
    for name in gone:
        shutil.rmtree(tmp_path / "t" / name)
    told = Told()
    assert tune(experiment(), out=tmp_path / "t", progress=told) == tuning
    assert len(told.runs) == len(gone)
    assert load_tuning(tmp_path / "t") == tuning


def test_a_trial_of_other_settings_is_refused(found, tmp_path):
    place, _, _ = found
    shutil.copytree(place, tmp_path / "t")
    with pytest.raises(ConfigError, match=r"fedavg-lr0.001-11: holds a run with other settings"):
        tune(experiment(stop={"rounds": 2}), out=tmp_path / "t")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t["results"].pop("fedavg"), "not of the same methods everywhere"),
        (lambda t: t["results"]["fedavg"].clear(), "fedavg: 0 trials"),
        (lambda t: t["results"]["fedavg"][0]["results"].pop(), "fedavg: not one result for each seed"),
        (lambda t: t["results"]["fedavg"][0]["point"].clear(), "a point without the grid's keys"),
        (lambda t: t["results"]["fedavg"][0]["point"].update({"train.lr": "x"}), "a point without a number"),
        (lambda t: t["results"]["fedavg"][0].update(origin="guess"), "should be grid or extension or"),
    ],
)
def test_a_damaged_file_is_told(found, tmp_path, change, why):
    told = json.loads((found[0] / "tune.json").read_text())
    change(told)
    (tmp_path / "tune.json").write_text(json.dumps(told))
    with pytest.raises(SnapshotError, match=rf"tune.json: damaged \(.*{why}"):
        load_tuning(tmp_path)


def test_results_have_the_chosen_settings(tmp_path):
    wanted = experiment(
        compare=[], tune={**DIGITS["tune"], "trials": 3, "own": {"fedprox": {"mu": [0.1, 1.0]}}}
    )
    compared = compare(wanted, ["fedprox", "fedavg"], [1, 2], tmp_path / "c", tuned=True)
    for run in compared.runs:
        name, e = run.experiment.algorithm, run.experiment
        chosen = compared.tuning.choice(name)
        assert e.training(name).lr == chosen["train.lr"]
        assert e.algorithms[name].get("mu") == chosen.get("mu")
    assert compared.experiment.tune.seeds == [11, 12]
    assert potluck.experiment.comparison.load_comparison(tmp_path / "c").tuning == compared.tuning


# ---------------------------------------------------------------------------------------- what a search costs


def test_seeds_are_two_of_which_no_result_is():
    assert fill_tune(Experiment(seeds=[1, 2]), ["fedavg"]).seeds == [11, 12]
    assert fill_tune(Experiment(seeds=[11, 13]), ["fedavg"]).seeds == [12, 14]
    assert fill_tune(Experiment(seed=11), ["fedavg"]).seeds == [12, 13]
    default = fill_tune(Experiment(), ["fedavg"])
    assert (default.trials, default.grid) == (6, {"train": {"lr": [0.01, 0.03, 0.1, 0.3]}})


def test_words_that_are_all_tried_take_fewer_trials_and_that_is_said(capsys, tmp_path):
    wanted = experiment(
        tune={
            "trials": 5,
            "grid": {"train": {"lr": [0.1]}},
            "own": {"fedprox": {"select": ["uniform", "oort"]}},
        }
    )
    table = fill_tune(wanted, ["fedavg", "fedprox"])
    assert find_space(table, "fedprox") == {"train.lr": [0.1], "select": ["uniform", "oort"]}
    assert [count_points(find_space(table, name), 5, None) for name in ("fedavg", "fedprox")] == [1, 2]
    methods = {name: wanted.with_values(algorithm=name) for name in ("fedavg", "fedprox")}
    assert count_trials(methods, table) == (1 + 2) * 2


def test_the_table_says_what_was_extended_and_what_is_open(found, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(found[0], tmp_path / "runs" / "fair-tune")
    (tmp_path / "fair.toml").write_text(experiment().to_toml())
    with pytest.raises(SystemExit):
        main(["tune", "fair.toml"])
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"fedavg │ 6 │ lr [\d.]+ │ [\d.]+ % │ extended lr to 0.016", out)
    assert "(6 trials each, with seeds 11, 12)" in out


def test_whole_numbers_run_out_and_the_screen_counts_down(tmp_path):
    """At the smallest rate nothing is learned, so that 1 and 2 epochs are equally good: 1 is the best, as the
    first. 0 is refused, and nothing lies between: 2 of 4 trials are all that there are."""
    told, wanted = Told(), experiment(
        train={"lr": 1e-12},
        stop={"rounds": 1},
        tune={"trials": 4, "seeds": [11, 12], "grid": {"train": {"epochs": [1, 2]}}},
    )  # fmt: skip
    tuning = tune(wanted, ["fedavg"], tmp_path / "t", told)
    assert tuning.results["fedavg"][0]["mean"] == tuning.results["fedavg"][1]["mean"]
    assert tuning.refused["fedavg"] == [{"train.epochs": 0}]
    assert tuning.edges("fedavg") == []  # the setting ends there
    assert (len(tuning.results["fedavg"]), tuning.missing("fedavg")) == (2, 2)
    assert told.runs == [(n, 8) for n in (1, 2, 3, 4)]  # 4 points x 2 seeds, as far as was known then
    assert "2 trials fewer: nothing else to try" in list_choices(tuning)[0].remarks


# ------------------------------------------------------------------------------------------------------- keys


def test_keys_of_algorithms():
    assert {"mu", "clients", "train.lr", "train.epochs", "train.privacy.sigma"} <= set(list_keys("fedprox"))
    assert "local" not in list_keys("fedprox")
    assert has_key("classter", "distil.every")  # of a table
    assert not has_key("classter", "distil.evry")
    assert has_key("fedavg", "select.share")  # of a part: which one it is may be set too
    assert not has_key("fedavg", "mu")
    assert not has_key("fedavg", "train.mu")


def test_values_are_set_wherever_they_stand():
    base = Experiment(algorithm="classter", algorithms={"classter": {"clients": 3, "distil": {"every": 5}}})
    made = set_values(base, {"train.lr": 0.5, "distil.calibrate": "rows", "clients": 4})
    assert made.algorithms["classter"] == {
        "clients": 4,
        "distil": {"every": 5, "calibrate": "rows"},
        "train": {"lr": 0.5},
    }
    assert base.algorithms["classter"] == {"clients": 3, "distil": {"every": 5}}
    assert set_values(base, {}).algorithms == base.algorithms
    named = Experiment(algorithms={"fedavg": {"select": "oort"}})
    assert set_values(named, {"select.pace": 2}).algorithms["fedavg"] == {
        "select": {"kind": "oort", "pace": 2}
    }


def test_names_of_trials():
    space = {"train.lr": [0.1], "mu": [1.0]}
    assert name_trial("q = 2", space, {"train.lr": 0.1, "mu": 1.0}, 3) == "q-2-lr0.1-mu1-3"
    assert name_trial("a", {"s": []}, {"s": "oort"}, 3) == "a-s_oort-3"
    odd = [name_trial("a", {"s": []}, {"s": text}, 3) for text in ("a/b", "a b", "..", "")]
    assert len(set(odd)) == 4
    assert all(re.fullmatch(r"a-s_[0-9a-f]{12}-3", name) for name in odd)
    both = {"train.lr": [], "server.lr": []}
    assert name_trial("a", both, {"train.lr": 1.0, "server.lr": 2.0}, 3) == "a-train.lr1-server.lr2-3"
    many = {f"key{i}": [1] for i in range(40)}
    assert re.fullmatch(r"a-[0-9a-f]{12}-3", name_trial("a", many, dict.fromkeys(many, 1), 3))
    assert name_trial("a", {}, {}, 3) == "a-3"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"grid": {"muu": [0.1]}},
            r"tune.grid.muu: no setting of fedavg, fedprox, qfedavg; did you mean 'mu'\?",
        ),
        (
            {"own": {"fedprox": {"muu": [0.1]}}},
            r"tune.own.fedprox.muu: fedprox has none; did you mean 'mu'\?",
        ),
        (
            {"own": {"moon": {"mu": [1.0]}}},
            r"tune.own.moon: tuned here: fedavg, fedprox, qfedavg; leave it out, or",
        ),
        ({"own": {"fedprox": {"mu": ["x"]}}}, r"algorithms.fedprox.mu = 'x': .* \(by \[tune\]\)"),
        ({"own": {"fedprox": {"mu": [0.1, -1.0]}}}, r"algorithms.fedprox.mu = -1.0: .* \(by \[tune\]\)"),
        (
            {"grid": {"train": {"lr": [0.1, -1.0]}}},
            r"train.lr = -1.0: should be greater than 0 \(by \[tune\]\)",
        ),
        ({"grid": {"train": {"epochs": [1.5]}}}, r"train.epochs = 1.5: should be a valid integer"),
        ({"trials": 1, "grid": {"clients": [3, 0]}}, r"clients = 0: .*\(by \[tune\]\)"),
        ({"shifts": True}, r"tune.shifts = True: there are none to judge by; give evaluate.shifts"),
    ],
)
def test_what_is_wrong_is_said_before_the_first_run(tmp_path, table, message):
    wanted, told = experiment(tune=table), Told()
    with pytest.raises(ConfigError, match=message):
        tune(wanted, out=tmp_path / "t", progress=told)
    with pytest.raises(ConfigError, match=message):
        compare(wanted, out=tmp_path / "c", progress=told, tuned=True)
    assert told.runs == []
    assert list(tmp_path.iterdir()) == []


def test_trials_may_be_judged_at_shifts_that_are_rehearsed(tmp_path):
    table = {"trials": 2, "seeds": [11], "shifts": True, "grid": {"train": {"lr": [0.01, 0.1]}}}
    data = {"source": "digits", "clients": 10, "alpha": 0.1}
    wanted = experiment(compare=["fedavg"], data=data, tune=table, evaluate={"shifts": [0.5, 1.0]})
    chosen = tune(wanted, out=tmp_path / "t")
    for trial in chosen.results["fedavg"]:
        place = next((tmp_path / "t").glob(f"*{trial['point']['train.lr']:g}*"))
        lines = potluck.load(place).lines
        told = [r["value"]["mean"] for r in lines if r["metric"] == "accuracy_shifted"]
        assert len(told) == 2
        assert trial["results"] == [sum(told) / 2]
    assert load_tuning(tmp_path / "t").shifts
    assert "rehearsed with each other's for the shifts" in tell_choice(chosen)


def test_a_key_of_one_method_is_left_out_for_the_others(tmp_path):
    table = {"grid": {"train": {"lr": [0.1]}, "mu": [0.1]}, "own": {"qfedavg": {"q": [1.0]}}}
    wanted = experiment(tune=table)
    found = tune(wanted, ["fedavg", "fedprox"])  # the file compares qfedavg too: its table is no mistake
    assert found.grids == {"fedavg": {"train.lr": [0.1]}, "fedprox": {"train.lr": [0.1], "mu": [0.1]}}
    assert found.lacking == {"fedavg": ["mu"], "fedprox": []}


# ---------------------------------------------------------------------------------------------------- studies


def study(**changes):
    scale = Scale({**DIGITS, "compare": [], "tune": None}, (1, 2), DIGITS["tune"])
    arms = [Arm("plain", "fedavg"), Arm("near", "fedprox"), Arm("q", "qfedavg")]
    return Study(**{"title": "", "question": "", "arms": arms, "quick": scale, "paper": scale} | changes)


def test_a_study_that_needs_more_runs_says_so():
    plan = study().plan("quick")
    assert plan.trials == 3 * 6 * 2
    with pytest.raises(
        ConfigError, match=r"42 runs \(36 to tune, 6 to compare\), at most 40 .* raise its limit"
    ):
        _ = plan.total
    more = Scale(plan.scale.experiment, (1, 2), DIGITS["tune"], limit=42)
    assert study(quick=more).plan("quick").total == 42


def test_an_arm_takes_over_what_it_has_and_does_not_set(found):
    arms = [
        Arm("near", "fedprox"),
        Arm("plain", "fedavg", tuned_as="near"),
        Arm("fixed", "fedprox", {"mu": 9.0}, tuned_as="near"),
    ]
    scale = Scale({"data": DIGITS["data"]}, (1,), {"grid": {"train": {"lr": [0.1]}, "mu": [0.1]}})
    plan = study(arms=arms, quick=scale).plan("quick")
    leader = tune(
        experiment(tune={"grid": {"train": {"lr": [0.1]}, "mu": [0.1]}}, stop={"rounds": 1}), ["fedprox"]
    )
    leader.results["near"] = leader.results["fedprox"]
    made = {
        arm.name: plan.with_choice(plan.experiment(arm, "", 1), arm, leader).algorithms for arm in plan.arms
    }
    assert made == {
        "near": {"fedprox": {"mu": 0.1, "train": {"lr": 0.1}}},
        "plain": {"fedavg": {"train": {"lr": 0.1}}},
        "fixed": {"fedprox": {"mu": 9.0, "train": {"lr": 0.1}}},
    }


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="forks of what has trained, beside a GPU")
def test_side_by_side_the_same_is_found(found, tmp_path):
    assert tune(experiment(), out=tmp_path / "t", jobs=2) == found[1]
    mine = {path.name for path in (tmp_path / "t").iterdir()}
    assert mine == {path.name for path in found[0].iterdir()}


def test_a_study_searches_in_every_scenario(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {key: value for key, value in DIGITS.items() if key not in ("compare", "tune", "name")}
    grid = {"trials": 3, "grid": {"train": {"lr": [0.001, 0.004]}}, "own": {"fedprox": {"mu": [0.01, 0.1]}}}
    (tmp_path / "both.py").write_text(
        "from potluck.experiment.study import Arm, Scale, Study\n"
        "STUDY = Study('Both', 'Which?', [Arm('plain', 'fedavg'), Arm('near', 'fedprox')],\n"
        f"    quick=Scale({base}, (1,), {grid}, tune_each=True), paper=Scale({base}),\n"
        "    scenarios={'even': {'data': {'alpha': 9.0}}, 'odd': {'data': {'alpha': 0.1}}})\n"
    )
    results = study_runner.run_study("both.py", out=tmp_path / "out")
    assert set(results.tunings) == {"even", "odd"}
    assert results.plan.trials == 2 * 2 * 3 * 2  # scenarios x arms x trials x seeds
    for scenario, tuning in results.tunings.items():
        assert tuning.seeds == [11, 12]
        for arm in ("plain", "near"):
            assert len(tuning.results[arm]) == 3
            one = results.runs[scenario, arm][0].experiment
            assert one.training(one.algorithm).lr == tuning.choice(arm)["train.lr"]
    text = reproduction.write_section(results)
    assert "| tuned in odd | trials | chosen | accuracy | remarks | all of them |" in text
    assert re.search(r"\| near \| 3 \| lr [\d.]+, mu [\d.]+ \| ", text)
    assert "after 24 trials" in text


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"grid": {}}, r"tune\.grid = \{\}: nothing would be tried; write lists of values"),
        ({"trials": 4, "refine": 4}, r"tune\.refine = 4: must be below tune\.trials = 4"),
    ],
)
def test_a_search_of_nothing_is_refused(table, told):
    with pytest.raises(ConfigError, match=told):
        tune(Experiment(**{**DIGITS, "tune": table}), ["fedavg"])
