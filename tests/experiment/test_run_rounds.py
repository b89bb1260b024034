"""Parameters that follow the run's rounds: DM-PFL's phases, TiFL's credits, and those of one's own."""

import tomllib
from dataclasses import replace
from typing import Annotated

import pytest

import potluck
from potluck import algorithms
from potluck.algorithms.dmpfl.algorithm import dmpfl
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.tifl.algorithm import TiFL
from potluck.core import parts
from potluck.core.codec import value
from potluck.core.job import ModelSpec
from potluck.experiment import Experiment
from potluck.experiment.prepare import make_rule, prepare, resolve_run
from potluck.experiment.tune_stages import _make_trial
from potluck.jobs import Train
from potluck.rules import Uniform

pytestmark = pytest.mark.slow

SMALL = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 10},
    "model": {"name": "mlp", "width": 0.1},
    "stop": {"rounds": 40},
    "evaluate": {"rounds": 20},
    "run": {"executor": "loop"},
}
LOCAL = Train(ModelSpec("mlp", 0.1))


def small(algorithm, own=None, **changes):
    return Experiment(**{**SMALL, "algorithm": algorithm, "algorithms": {algorithm: own or {}}, **changes})


def phases(run):
    return [(line["round"], line["value"]) for line in run.lines if line["metric"] == "phase"]


def facts(run):
    return [line for line in run.lines if line["metric"] != "wall"]


def recorded(place, name):
    return tomllib.loads((place / "experiment.toml").read_text())["algorithms"][name]


class Interrupt:
    def __call__(self, progress):
        raise KeyboardInterrupt


def test_phases_are_cut_from_the_runs_rounds(tmp_path):
    run = potluck.run(small("dmpfl"), tmp_path / "a")
    # Turns of 20: ten dual rounds, five generic and five personal ones; told by the round before.
    assert phases(run) == [(9, "generic"), (14, "personal"), (19, "dual"), (29, "generic"), (34, "personal")]
    assert recorded(tmp_path / "a", "dmpfl")["rounds"] == 40
    assert facts(run) == facts(potluck.run(small("dmpfl", {"rounds": 40})))


def test_what_is_written_stays():
    assert make_rule(small("dmpfl", {"rounds": 12})).rounds == 12
    assert resolve_run(small("dmpfl", {"rounds": 12})).algorithms["dmpfl"]["rounds"] == 12


def test_every_tier_has_its_share_of_the_rounds(tmp_path):
    run = potluck.run(small("tifl", {"clients": 2}, stop={"rounds": 20}), tmp_path / "a")
    drawn = [line["value"] for line in run.lines if line["metric"] == "tier"]
    assert [drawn.count(tier) for tier in range(5)] == [4, 4, 4, 4, 4]  # 20 / 5
    table = recorded(tmp_path / "a", "tifl")
    assert (table["rounds"], table["credits"]) == (20, "equal")


@pytest.mark.parametrize("name", ["dmpfl", "tifl"])
def test_a_resumed_run_has_the_same_rounds(name, tmp_path):
    wanted = small(name, {"clients": 2}, stop={"rounds": 300}, evaluate={"rounds": 100})
    often = wanted.with_values(run={"executor": "loop", "snapshot_every": 0.05})
    with pytest.raises(KeyboardInterrupt):
        potluck.run(often, tmp_path / "a", Interrupt())
    resumed = potluck.resume(tmp_path / "a")
    assert resumed.experiment.algorithms[name]["rounds"] == 300
    assert facts(resumed) == facts(potluck.run(wanted))


def test_a_record_is_an_experiment_again():
    full = resolve_run(small("dmpfl", stop={"rounds": 3}))
    assert full.algorithms["dmpfl"]["rounds"] == 3
    assert resolve_run(full) == full
    assert [make_rule(full).phase(n)[0] for n in range(3)] == ["dual"] * 3  # too few for a turn: no error


def test_what_is_set_or_shortened_is_followed():
    wanted = small("tifl").with_overrides(["stop.rounds=30"])
    assert make_rule(wanted).rounds == 30
    trial = _make_trial(wanted, {"train.lr": 0.1}, 1, 0.5)
    assert make_rule(trial).rounds == 15
    assert resolve_run(trial).algorithms["tifl"]["rounds"] == 15


def test_a_comparison_follows_for_each_algorithm():
    done = potluck.compare(small("fedavg", stop={"rounds": 5}, compare=["tifl", "dmpfl"]))
    assert {r.experiment.algorithms[r.experiment.algorithm]["rounds"] for r in done.runs} == {5}


def test_a_run_that_ends_by_its_clock_has_no_rounds_to_follow():
    wanted = small("dmpfl", stop={"seconds": 5.0})
    assert "rounds" not in resolve_run(wanted).algorithms["dmpfl"]
    assert make_rule(wanted).rounds is None
    assert "rounds" not in resolve_run(small("tifl", stop={"seconds": 5.0})).algorithms["tifl"]


def test_rules_made_in_python_follow_too():
    setting = prepare(small("fedavg"), TiFL(2, LOCAL))
    assert setting.algorithm == TiFL(2, LOCAL, rounds=40)
    assert prepare(small("fedavg"), dmpfl(LOCAL)).algorithm == dmpfl(LOCAL, rounds=40)
    assert prepare(small("fedavg"), dmpfl(LOCAL, rounds=9)).algorithm.rounds == 9
    run = potluck.run(small("fedavg"), algorithm=dmpfl(LOCAL))
    assert [number for number, _ in phases(run)] == [9, 14, 19, 29, 34]


def test_parts_of_ones_own_follow(monkeypatch):
    from potluck.authoring import RunRounds

    monkeypatch.setattr(algorithms._REGISTERED, "_values", dict(algorithms._REGISTERED._values))
    monkeypatch.setitem(parts._PARTS, "select", parts.parts("select"))

    @parts.part("select")
    @value
    class Waning(Uniform):
        rounds: Annotated[RunRounds, "until nobody is left"] = None

    def waning(local: Train = Train(), select: Annotated[Waning, "who"] = Waning()) -> FedAvg:
        return FedAvg(2, local, select)

    algorithms.register("waning", waning)
    assert make_rule(small("waning")).select.rounds == 40
    assert make_rule(small("waning", {"select": {"rounds": 7}})).select.rounds == 7
    by_name = small("fedavg", {"select": "waning"})
    assert make_rule(by_name).select == Waning(rounds=40)
    assert replace(make_rule(by_name), select=Uniform()) == make_rule(small("fedavg"))


def test_people_read_that_it_is_the_runs():
    shown = {p.name: p.default for p in algorithms.describe("dmpfl").parameters}
    assert shown["rounds"] == "the run's"
    assert shown["turns"] == "2"
