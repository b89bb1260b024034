"""The GPUs of one machine: pretended ones, real processes."""

import json
import os
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from potluck.core.errors import ConfigError
from potluck.execute.plan import ExecutionPlan
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import Experiment, runs
from potluck.experiment.launch import execution_plan, side_by_side
from potluck.experiment.launch.batch import RunBatch
from potluck.experiment.launch.follower import Missing
from potluck.experiment.launch.spread import Spread
from potluck.experiment.screen import Screen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="cards are pretended where there are none"),
]


class Machine:
    """One whose cards are pretended. Every process that touches one says so in a file."""

    def __init__(self, folder, patch, names):
        self.log, self.taken = folder / "log", None
        self.log.touch()
        patch.setattr(torch.cuda, "device_count", lambda: len(names))
        patch.setattr(torch.cuda, "get_device_name", lambda number: self.tell("named", names[number]))
        patch.setattr(torch.cuda, "set_device", self.take)
        patch.setattr(execution_plan, "choose_plan", self.choose)
        patch.setattr(runs, "run", self.run)

    def tell(self, what, value):
        line = json.dumps([what, value, os.getpid(), self.taken]) + "\n"
        with open(self.log, "a") as file:
            file.write(line)
        return value

    def told(self, *what):
        lines = map(json.loads, self.log.read_text().splitlines())
        return [(kind, value, card) for kind, value, _, card in lines if kind in what]

    def take(self, number):
        self.taken = number
        self.tell("took", number)

    def choose(self, setting, sharing=1):
        self.tell("measured", sharing)
        return PlanChoice(ExecutionPlan(chunk=8 * ((self.taken or 0) + 1)), "measured")

    def run(self, experiment, place, tell, *, choose, **_):
        """One of seed 10 lasts until three others have ended."""
        plan = choose(SimpleNamespace(experiment=experiment)).plan
        while experiment.seed == 10 and len(self.told("ended")) < 3:
            time.sleep(0.01)
        self.tell("ended", experiment.seed)
        summary, chunks = {"accuracy_mean": 0.5, "wall_seconds": 0.1}, f"chunks of {plan.chunk}"
        return SimpleNamespace(summary=summary, notices=[chunks], failed=None)


class Shown(Screen):
    """What people are told, and how many runs each card has when another one gets a run."""

    def __init__(self):
        super().__init__(quiet=False)
        self.under_way, self.most = {}, []

    def on_start(self, name, where=""):
        super().on_start(name, where)
        self.under_way[name] = where
        self.most.append(sorted(Counter(self.under_way.values()).values()))

    def on_end(self, name, *told):
        super().on_end(name, *told)
        del self.under_way[name]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return lambda *names: Machine(tmp_path, monkeypatch, names)


def asked(folder, executor="loop", device="cuda", seeds=(1, 2, 3, 4)):
    tables = {"data": {"source": "synthetic", "rows": 100, "clients": 4}, "model": {"name": "linear"}}
    run = {"executor": executor, "device": device}
    return [Missing(f"run-{s}", Experiment(**tables, seed=s, run=run), folder / str(s)) for s in seeds]


def compute(folder, jobs, **changes):
    missing, shown = asked(folder, **changes), Shown()
    batch = RunBatch(len(missing), len(missing), shown, spread=Spread(jobs))
    batch.compute(missing, len(missing), len(missing))
    assert batch.computed in (0, len(missing))
    return shown.most


@pytest.mark.parametrize(("jobs", "most"), [(0, 1), (2, 1), (4, 2)])
def test_runs_are_dealt_to_the_cards_in_turn(tmp_path, machine, jobs, most, capsys):
    here = machine("Pretended", "Pretended")
    dealt = compute(tmp_path, jobs)
    assert len(dealt) == 4
    assert max(max(counts) for counts in dealt) == most
    assert all(len(counts) == 2 or counts == [1] for counts in dealt)  # never two where another is idle
    assert {card for *_, card in here.told("ended")} == {0, 1}
    assert not torch.cuda.is_initialized()
    assert f", {os.getpid()}, " not in here.log.read_text()  # this process touched no card
    said = capsys.readouterr().err
    assert "run-1: on GPU 0\nrun-2: on GPU 1\n" in said
    assert "kinds" not in said


def test_a_freed_card_goes_to_the_next_run(tmp_path, machine):
    here = machine("Pretended", "Pretended")
    compute(tmp_path, 0, seeds=(10, 1, 2, 3))
    assert {seed: card for _, seed, card in here.told("ended")} == {10: 0, 1: 1, 2: 1, 3: 1}


def test_plans_are_measured_once_for_all_cards_of_a_name(tmp_path, machine, capsys):
    here = machine("Pretended", "Pretended")
    compute(tmp_path, 4, executor="auto")
    assert here.told("measured") == [("measured", 2, 0)] * 4  # on the first card, for two runs that share it
    assert capsys.readouterr().err.count("chunks of 8") == 4


def test_cards_of_several_names_have_plans_of_their_own(tmp_path, machine, capsys):
    here = machine("Large", "Small", "Large")
    compute(tmp_path, 3, executor="stacked", seeds=(3, 2, 1))
    assert here.told("measured") == [("measured", 1, 0), ("measured", 1, 1)] * 3
    said = capsys.readouterr().err
    assert said.count("this machine has GPUs of 2 kinds (Large, Small)") == 1
    assert {f"run-{seed}: chunks of {size}" for seed, size in ((3, 8), (2, 16), (1, 8))} <= {
        line.removeprefix("potluck: ") for line in said.splitlines()
    }


def test_runs_on_cores_take_no_card(tmp_path, machine):
    here = machine("Pretended", "Pretended")
    compute(tmp_path, 2, device="cpu")
    assert here.told("named", "took") == []


def test_with_one_card_runs_are_alone_unless_told(tmp_path, machine, capsys):
    machine("Pretended")
    assert compute(tmp_path, 0) == []  # left to this process
    assert "one run at a time, since they share the GPU; --jobs N: N at a time" in capsys.readouterr().err
    assert max(max(counts) for counts in compute(tmp_path, 2)) == 2


def test_who_has_used_a_card_starts_nobody_who_does(tmp_path, machine, monkeypatch):
    machine("Pretended", "Pretended")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert compute(tmp_path, 0) == []
    with pytest.raises(ConfigError, match="jobs: this process has trained already, or used the GPU"):
        compute(tmp_path, 2)
    assert side_by_side.limit_jobs(0, asked(tmp_path)) == (1, "they share the GPU")
