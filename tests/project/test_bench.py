"""The training benchmark compares like with like: everybody trains the same samples the same way."""

import json
import resource
import sys
from io import StringIO

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from bench import __main__ as command
from bench import bare, central, deploy, gpu, host, memory, overheads, simulate, training
from bench.contestants import BARE, LIMITS, OURS, Contestant, FailedError, run
from bench.gpu_cases import CASES, Letters, published_cnn, shrink
from bench.models import build, draw, weights_of
from bench.workload import CLASSES, MODELS, SHAPE, SHAPES, Workload, make
from potluck.algorithms.maverick.device import Contrast
from potluck.core.codec import value
from potluck.core.job import ModelSpec, Rows
from potluck.execute.captured.buffers import StepBuffers
from potluck.execute.plan import ExecutionPlan
from potluck.execute.reference import train
from potluck.models import Models
from potluck.simulate import flocks

pytestmark = pytest.mark.slow

TINY = make(clients=8, cohort=3, rounds=2, smallest=12, largest=25)
TINY.weights.update({name: draw(name, 1) for name in MODELS if name not in SHAPES})
ZOO = {"lr": "linear", "lenet": "lenet5"}


@value
class InOrder:
    """Every row once, as it lies: batches that bare and Potluck can both be told to take."""

    def draw(self, at, batch, epochs, steps):
        n, padded = len(at.rows), -(-len(at.rows) // batch) * batch
        index = np.minimum(np.arange(padded), n - 1).reshape(-1, batch)
        weight = (np.arange(padded) < n).astype(np.float32).reshape(-1, batch)
        return Rows(index, weight, float(n))

    def passes(self, at, batch, epochs, steps):
        return len(at.rows)

    def most(self, at, batch):
        return float(len(at.rows))


def test_the_workload_is_as_described_and_comes_back_from_its_file(tmp_path):
    sizes = np.diff(TINY.offsets)
    assert sizes.min() >= 12
    assert sizes.max() <= 25
    assert TINY.x.shape == (sizes.sum(), *SHAPE)
    assert [len(set(cohort)) for cohort in TINY.cohorts.tolist()] == [3, 3]
    TINY.save(tmp_path / "w.npz")
    again = Workload.load(tmp_path / "w.npz")
    for name in ("x", "y", "offsets", "cohorts"):
        assert np.array_equal(getattr(TINY, name), getattr(again, name))
        assert np.array_equal(
            getattr(TINY, name), getattr(make(8, 3, 2, 12, 25), name)
        )  # from its seed alone
    assert all(
        np.array_equal(a, b) for a, b in zip(TINY.weights["lenet"], again.weights["lenet"], strict=True)
    )


@pytest.mark.parametrize(("name", "size"), [("lr", 7_850), ("lenet", 61_706)])
def test_models_are_those_of_the_zoo(name, size):
    ours = Models(SHAPE, CLASSES)[ModelSpec(ZOO[name])]
    assert ours.size == size
    assert list(ours.shapes.values()) == list(SHAPES[name])
    weights = TINY.weights[name]
    params = {key: torch.from_numpy(w) for key, w in zip(ours.shapes, weights, strict=True)}
    x, model = torch.from_numpy(TINY.x), build(name, weights)
    assert torch.allclose(model(x), ours(params, x), atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(weights_of(model), weights, strict=True))


@pytest.mark.parametrize("name", ["lstm", "transformer", "resnet8"])
def test_weights_that_pytorch_draws_come_from_their_seed(name):
    again, other = draw(name, 1), draw(name, 2)
    assert all(np.array_equal(a, b) for a, b in zip(TINY.weights[name], again, strict=True))
    assert not np.array_equal(other[-1], again[-1])
    assert sum(w.size for w in again) == {"lstm": 24_714, "transformer": 19_594, "resnet8": 78_042}[name]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("executor", ["loop", "workers", "stacked"])
def test_bare_and_potluck_come_to_the_same_model(name, executor):
    model = build(name, TINY.weights[name])
    state = {key: v.clone() for key, v in model.state_dict().items()}
    sim = simulate.simulation(TINY, name, ExecutionPlan(executor, workers=2), 3, InOrder())
    sim.start()
    for number in range(2):
        state, count = bare.train_round(model, state, TINY, TINY.cohort(number), torch.arange)
        while sim.round == number:
            sim.step()
        assert simulate.samples(sim)[-1] == count == sum(map(TINY.size, TINY.cohort(number)))
    _, params = sim.find_models()["global"]
    sim.close()
    for mine, theirs in zip(params.values(), state.values(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5, rtol=0)
    assert not torch.allclose(next(iter(params.values())), torch.from_numpy(TINY.weights[name][0]), atol=1e-3)


def test_central_trains_a_cohorts_samples():
    model = build("lr", TINY.weights["lr"])
    x, y = torch.from_numpy(TINY.x), torch.from_numpy(TINY.y)
    before = F.cross_entropy(model(x), y)
    optimizer = torch.optim.SGD(model.parameters(), lr=TINY.rate)
    assert central.train_round(model, optimizer, TINY, TINY.cohort(0)) == sum(map(TINY.size, TINY.cohort(0)))
    assert F.cross_entropy(model(x), y) < before


def test_a_run_measures_who_is_there_and_names_who_is_not():
    absent = Contestant("absent", ("-m", "bench.bare"), home=".venv-nowhere")
    loop = next(ours for ours in OURS if ours.name == "Potluck, loop")
    lines = {line.name: line for line in training.measure(TINY, (LIMITS[0], loop, absent), 1, {"lr": 2})}
    assert lines[BARE.name].ratios == [1.0]
    for there in (BARE, LIMITS[0], loop):
        line = lines[there.name]
        assert line.failed is None
        assert line.ratios[0] > 0
        assert line.samples == lines[BARE.name].samples
    assert lines[loop.name].apart < training.FAR
    shown = StringIO()
    Console(width=300, file=shown).print(training.table(list(lines.values())))
    assert "not available: .venv-nowhere isn't there: make peers" in shown.getvalue()
    assert "**Potluck**" in shown.getvalue()


def test_a_contestant_that_fails_says_why():
    broken = Contestant("broken", ("-c", "raise SystemExit('out of luck')"))
    with pytest.raises(FailedError, match="out of luck"):
        run(broken)


def test_an_unknown_benchmark_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "trainin"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert (
        "no benchmark 'trainin'; known: engine, host, population, matching, planner, memory, overheads, "
        "asynchronous, training, advice, deploy" in capsys.readouterr().err
    )


def test_a_small_process_is_not_charged_with_the_memory_of_the_one_that_asks():
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert memory.peak("this") < 60 < mine
    with pytest.raises(SystemExit, match="not_there"):
        memory.peak("not_there")


def test_looks_at_every_step_come_to_the_same(monkeypatch):
    monkeypatch.setattr(overheads, "ROWS", 70)  # two batches
    once, often = (train(overheads.device(kind(), 2, 1)) for kind in (Contrast, overheads.AtEveryStep))
    for name, change in once.body["delta"].items():
        torch.testing.assert_close(often.body["delta"][name], change, rtol=0, atol=1e-5)
    assert overheads.held(overheads.device(Contrast(), 2, 1)) > overheads.held(
        overheads.device(overheads.AtEveryStep(), 2, 1)
    )


@pytest.mark.slow
def test_bytes_on_the_wire_are_counted_both_ways(tmp_path):
    for ratio in deploy.measure_bytes(tmp_path / "few", 60_000, messages=2):
        assert 1.01 < ratio < 1.1  # two connections were made for two messages


def test_a_mark_that_is_missed_says_so(capsys):
    deploy.show(deploy.Mark("good", 2.0, 2.0, "{:.1f} ms"))
    deploy.show(deploy.Mark("bad", 2.1, 2.0, "{:.1f} ms"))
    good, bad = capsys.readouterr().out.splitlines()
    assert "MISSED" not in good
    assert "2.1 ms       2.0 ms   MISSED" in bad


def test_the_host_part_is_measured_beside_tasks_that_start_one_by_one():
    few, step = flocks.FEW, StepBuffers.step
    ((clients, (together, alone)),) = host.measure(sizes=(12,), turns=1).items()
    assert clients == 12
    assert together > 0
    assert alone > 0
    assert (flocks.FEW, StepBuffers.step) == (few, step)


def test_the_gpu_benchmark_runs_anywhere_on_a_few_rows(tmp_path, capsys):
    out = tmp_path / "out.json"
    gpu.main(["--tiny", "--models", "lr", "published", "--only", "stacked graph", "loop", "--out", str(out)])
    lines = json.loads(out.read_text())
    assert [(line["model"], line["way"]) for line in lines if line["way"] != "pfl"] == [
        (CASES[name].title, way) for name in ("lr", "published") for way in ("stacked graph", "loop")
    ]
    assert all(line[rate] > 0 for line in lines for rate in ("central", "bare", "rounds"))
    assert [line["way"] for line in lines if "whole" in line and line["way"] != "pfl"] == ["stacked graph"]
    capsys.readouterr()
    gpu.main(["--read", str(out)])
    assert capsys.readouterr().out.count("| LR | 2 |") == 1  # the faster way of the two


def test_the_gpu_benchmark_says_what_it_had_no_time_for(capsys):
    gpu.main(
        ["--tiny", "--seconds", "0.01", "--models", "lr", "--cohorts", "2", "3", "--only", "loop", "stacked"]
    )
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith("No time was left for")
    assert "what comes after loop of LR" in told
    assert "LR with 3 clients" in told


def test_a_fraction_of_central_goes_by_the_fastest_way():
    line = {"model": "LR", "clients": 50, "central": 1000.0, "bare": 10.0}
    ways = [line | {"way": "slow", "rounds": 100.0}, line | {"way": "fast", "rounds": 250.0, "whole": 90.0}]
    *_, row = gpu.tabulate(ways).splitlines()
    assert row == "| LR | 50 | 10 | 1,000 | 250 | 0.250 | 25.0 | fast | 1.50 |"


@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_gpu_benchmark_asks_its_cohorts_for_rows(name):
    case = shrink(name, CASES[name])
    work = case.make(case.cohorts[0])
    assert all(len(set(work.cohort(n))) == 2 and min(map(work.size, work.cohort(n))) > 0 for n in range(3))
    assert work.y.max() < case.classes
    assert len(work.x) == len(work.y) == work.offsets[-1]


@pytest.mark.parametrize(("make", "size"), [(Letters, 427_600), (published_cnn, 1_626_442)])
def test_models_of_the_gpu_benchmark_have_their_sizes(make, size):
    assert sum(p.numel() for p in make().parameters()) == size
