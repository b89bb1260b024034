"""The way of computing is measured once, pinned, remembered; and stacks are sized by memory."""

import json
import random
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, finished, lines, simulate, small
from support import Script

import potluck
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.cli import main
from potluck.core import room
from potluck.core.codec import value
from potluck.core.errors import ConfigError
from potluck.core.job import Local, ModelSpec
from potluck.core.messages import Task
from potluck.core.trees import nbytes
from potluck.execute.plan import EXECUTORS, ExecutionPlan
from potluck.execute.reference import Item
from potluck.execute.tune import autotune, memory
from potluck.execute.tune import timing as measure
from potluck.execute.tune.autotune import Catch, Wanted, choose, describe, list_candidates
from potluck.execute.tune.cache import Plans, find_path
from potluck.execute.vectorised import executor as stacked
from potluck.experiment import Experiment
from potluck.experiment.launch import execution_plan
from potluck.experiment.prepare import prepare
from potluck.jobs import SGD, Adam, Objective, Probe, Train
from potluck.simulate.trial import Trial

pytestmark = pytest.mark.slow

BASE = ExecutionPlan(workers=2, dtype="float64")
AUTO = Wanted(BASE, EXECUTORS)
ALONE = Wanted(replace(BASE, workers=1), EXECUTORS)  # the loop and one stack: quick
RULE = FedAvg(6, LOCAL)


@pytest.fixture(scope="module")
def federation():
    return small()


@pytest.fixture
def measures(monkeypatch):
    """Nothing is too small to be measured."""
    monkeypatch.setattr(autotune, "SMALL", 0.0)


@pytest.fixture
def clock(monkeypatch, measures):
    """Every candidate really runs, and takes as long as told: by executor, or by (executor, captured)."""
    told, called = {"Loop": 0.9, "Workers": 0.5, "Stacked": 0.1, "StackedWorkers": 0.3}, []

    def seconds(call, device="cpu"):
        call()
        executor = next(
            (c.cell_contents for c in call.__closure__ if hasattr(c.cell_contents, "close")), None
        )
        name = "pace" if executor is None else type(executor).__name__
        called.append(name)
        return told.get((name, getattr(executor, "replays", None) is not None), told.get(name, 0.01))

    monkeypatch.setattr(measure, "_time_call", seconds)
    monkeypatch.setattr(measure, "SPARE", 60.0)  # seconds of the real clock, whoever else uses this machine
    seconds.told, seconds.called = told, called
    return seconds


def begin(federation, rule, **settings):
    """What makes short runs of a rule."""
    return lambda plan, executor: Trial(simulate(federation, rule, plan=plan, executor=executor, **settings))


def first_batch(begins):
    catch = Catch()
    return catch.first_batch(begins(ExecutionPlan(), catch))


def item(federation, job=LOCAL, node=6):
    params = federation.models[job.model].init(1)
    at = Local(
        node,
        federation.partition.rows(node, "train"),
        {"params": params},
        None,
        3,
        federation.models,
        federation.pool,
    )
    return Item(job, at)


# ------------------------------------------------------------------------------------------------- candidates


def told(plans):
    return [describe(p) for p in plans]


def test_candidates_on_a_cpu():
    stacks = ["stacked (chunks of 8)", "stacked (graphs, chunks of 8)"]
    stacks += ["stacked in 2 workers (graphs, chunks of 4)"]  # together no more memory than one stack
    assert told(list_candidates(AUTO, [8], convolves=False)) == ["loop", "2 workers", *stacks]
    assert told(list_candidates(Wanted(BASE, ("stacked",)), [8], convolves=False)) == stacks
    sizes = [f"chunks of {size}" for size in (8, 64)]
    alone = "stacked (graphs, one by one)"  # from here on there is memory for it
    several = ["loop", alone, *(f"stacked ({how}{size})" for how in ("", "graphs, ") for size in sizes)]
    assert told(list_candidates(ALONE, [8, 64], convolves=False)) == several
    ways = ["stacked (chunks of 8)", "stacked (im2col, chunks of 8)"]
    assert told(list_candidates(ALONE, [8], convolves=True)) == ["loop", *ways]
    assert told(list_candidates(AUTO, [8], convolves=True)) == ["loop", "2 workers", *ways]
    both = [alone, "stacked in 2 workers (graphs, one by one)"]
    wide = [way.replace("of 8", "of 64") for way in ways]
    assert told(list_candidates(AUTO, [64], convolves=True)) == ["loop", "2 workers", *both, *wide]
    assert list_candidates(replace(AUTO, chunk=8), [8], convolves=False)[-1].chunk == 8


def test_candidates_on_a_gpu():
    wanted = Wanted(replace(BASE, device="cuda"), EXECUTORS)
    plain = ["stacked (chunks of 512)", "stacked (graphs, chunks of 512)"]
    streams = ["stacked (graphs, 8 streams, chunks of 1)"]
    assert told(list_candidates(wanted, [512], convolves=False)) == ["loop", *plain, *streams]
    ours = ["stacked (kernels, chunks of 512)", "stacked (kernels, graphs, chunks of 512)"]
    windows = ["stacked (im2col, chunks of 512)", "stacked (im2col, graphs, chunks of 512)"]
    assert told(list_candidates(wanted, [512], convolves=True)) == ["loop", *ours, *plain, *windows, *streams]
    # Where the experiment says how large a stack is, no candidate has another size.
    assert told(list_candidates(replace(wanted, chunk=512), [512], convolves=False)) == ["loop", *plain]
    assert all(
        p.dtype == "float64" and p.workers == 1 for p in list_candidates(wanted, [512], convolves=True)
    )


# ------------------------------------------------------------------------------------------- what is measured


def test_the_first_batch_is_that_of_the_run(federation):
    items = first_batch(begin(federation, RULE))
    assert len(items) == 6
    assert all(i.job == LOCAL and i.at.test is None for i in items)
    assert len(first_batch(begin(federation, fedasync(LOCAL, 5)))) == 5  # all that are at work


def test_jobs_that_train_nothing_may_come_first(federation):
    probe = Task(3, Probe(), {"ballast": torch.zeros(3)}, id=(None, 0, 0))
    send = {"params": federation.models[LOCAL.model].init(1)}

    def then(event, ctx):
        now = len(rule.heard)
        return [Task(n, LOCAL, send, id=(None, now, n)) for n in range(2)] if now == 1 else []

    rule = Script(probe, then=then)
    assert [i.at.node for i in first_batch(begin(federation, rule))] == [0, 1]


def test_where_nothing_is_trained_the_loop_is_taken(federation):
    probe = Task(3, Probe(), {"ballast": torch.zeros(3)}, id=(None, 0, 0))
    choice = choose(begin(federation, Script(probe)), AUTO)
    assert (choice.plan.executor, choice.fresh) == ("loop", False)
    assert choice.reason == "loop: nothing was trained at first that could be measured"


def test_clients_that_train_one_at_a_time_need_no_measuring(federation, clock):
    choice = choose(begin(federation, FedAvg(1, LOCAL), rounds=100), AUTO)
    assert (choice.plan.executor, choice.reason) == ("loop", "loop: clients train one at a time")
    assert not clock.called


def test_an_error_of_the_run_is_left_to_the_run(federation):
    choice = choose(begin(federation, FedAvg(0, LOCAL)), AUTO)
    assert choice.plan.executor == "loop"
    assert choice.reason.startswith("loop: measuring failed (ConfigError: clients = 0")


def test_small_batches_are_not_measured(federation):
    choice = choose(begin(federation, RULE), AUTO)
    assert choice.plan.executor == "loop"
    assert choice.reason.startswith("loop: too small to measure, 6 clients take about ")


def test_the_fastest_is_chosen_and_the_reason_says_so(federation, clock):
    choice = choose(begin(federation, RULE), AUTO)
    assert choice.fresh
    assert (choice.plan.executor, choice.plan.workers, choice.plan.dtype) == ("stacked", 1, "float64")
    assert (choice.plan.graphs, choice.plan.chunk) == (True, 1)  # the first of those that are equally fast
    size = next(
        p.chunk for p in list_candidates(AUTO, [4096], convolves=False) if not p.graphs and p.chunk > 64
    )
    ways = f"stacked (graphs, one by one) 100 ms, stacked (chunks of {size}) 100 ms"
    ways += f", stacked (graphs, chunks of {size}) 100 ms"
    shares = "stacked in 2 workers (graphs, one by one) 300 ms"
    shares += f", stacked in 2 workers (graphs, chunks of {size // 2}) 300 ms"
    assert choice.reason == f"measured on 6 clients: {ways}, {shares}, 2 workers 500 ms, loop 900 ms"

    clock.told[("Stacked", True)] = 0.15
    assert not choose(begin(federation, RULE), AUTO).plan.graphs
    clock.told["StackedWorkers"] = 0.03
    chosen = choose(begin(federation, RULE), AUTO).plan
    assert (chosen.executor, chosen.workers, chosen.graphs) == ("stacked", 2, True)
    clock.told["Workers"] = 0.02
    chosen = choose(begin(federation, RULE), AUTO).plan
    assert (chosen.executor, chosen.workers) == ("workers", 2)
    clock.told["Loop"] = 0.021
    assert choose(begin(federation, RULE), AUTO).plan.executor == "loop"  # not worth two processes


def test_a_stack_that_was_asked_for_is_tuned(federation, clock):
    clock.told[("Stacked", True)] = 0.05
    choice = choose(begin(federation, RULE), Wanted(BASE, ("stacked",), chunk=4))
    assert (choice.plan.executor, choice.plan.graphs, choice.plan.chunk) == ("stacked", True, 4)
    assert "loop" not in choice.reason


def test_clearly_slower_ones_are_called_once(federation, clock):
    clock.told |= {"Loop": 0.2, "Workers": 9.0, "Stacked": 0.3}
    choose(begin(federation, RULE), AUTO)
    assert [clock.called.count(name) for name in ("Workers", "Loop", "Stacked")] == [1, 3, 6]


def test_no_more_is_tried_when_time_is_up(federation, clock, monkeypatch):
    now = iter([0.0, 0.0])  # at the start and before the loop; then it is late

    def seconds():
        return next(now, 1e9)

    monkeypatch.setattr("potluck.execute.tune.timing.time", SimpleNamespace(perf_counter=seconds))
    choice = choose(begin(federation, RULE), AUTO)
    assert choice.plan.executor == "loop"
    assert choice.reason.startswith("measured on 6 clients: loop 900 ms; ")
    late = choice.reason.partition("; ")[2]
    assert late.endswith(": time was up")  # said once of all of them
    assert late.count("2 workers") == 3, late
    assert late.count("stacked") == 5, late


def test_where_all_fail_nothing_is_remembered(federation, clock, monkeypatch, tmp_path):
    def broken(plan):
        raise ValueError("out of order")

    monkeypatch.setattr(measure, "make_executor", broken)
    known = Plans(tmp_path / "plans.json")
    choice = choose(begin(federation, RULE), ALONE, known)
    assert (choice.plan.executor, choice.fresh) == ("loop", False)
    assert choice.reason == "loop: measuring failed (PotluckError: loop: ValueError: out of order)"
    assert not known.path.exists()


def test_large_batches_are_measured_in_part(federation, clock):
    sample = measure.Sample(first_batch(begin(federation, FedAvg(10, LOCAL))))
    clock.told["pace"] = 1.0
    assert sample.steps == sorted(sample.steps, reverse=True)
    assert sample.enough == 1
    items, scale = sample.part(5)
    assert len(items) == 5
    assert scale == pytest.approx(sum(sample.steps) / sum(sample.steps[::2]))
    timings = measure.measure(sample, [replace(BASE, executor="loop")])
    assert timings[0].seconds == pytest.approx(0.9 * sum(sample.steps) / sample.steps[0])


@value
class Asks(Objective):
    """Decides by a number, which can't be mapped over clients."""

    def penalty(self, net, params, batch, held):
        return 0.0 if float(batch.weight.sum()) > 0 else 1.0


def test_what_fails_is_out(federation, clock, monkeypatch, recwarn):
    choice = choose(begin(federation, FedAvg(6, replace(LOCAL, objective=Asks()))), AUTO)
    assert choice.plan.executor == "workers"
    assert choice.reason.count("Train can't be trained as a stack (vmap: It looks like") == 1, "said once"
    assert choice.reason.count("stacked") == 5
    assert not recwarn.list

    def full(*_):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(stacked, "Stack", full)
    choice = choose(begin(federation, RULE), AUTO)
    assert choice.plan.executor == "workers"
    assert "not enough memory" in choice.reason
    assert choice.reason.count("stacked") == 5


def test_measuring_leaves_no_trace(federation, measures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = lines(finished(federation, RULE))
    threads = torch.get_num_threads()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    choice = choose(begin(federation, RULE), AUTO)
    assert choice.fresh
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(states[0], after[0])
    assert states[1:] == after[1:]
    assert torch.get_num_threads() == threads
    assert all(path.name.startswith(".coverage") for path in tmp_path.iterdir())  # the workers', if wanted
    assert lines(finished(federation, RULE)) == plain


# -------------------------------------------------------------------------------------------------- the cache


def test_what_was_measured_is_not_measured_again(federation, clock, tmp_path):
    known = Plans(tmp_path / "deep" / "plans.json", "this machine")
    first = choose(begin(federation, RULE), ALONE, known)
    clock.called.clear()
    again = choose(begin(federation, RULE, seed=9), ALONE, known)  # other devices, the same shape
    assert not clock.called
    assert (again.plan, again.fresh) == (first.plan, False)
    assert again.reason.startswith(first.reason)
    assert f"from the cache {known.path})" in again.reason
    (entry,) = json.loads(known.path.read_text()).values()
    assert entry["plan"] == asdict(first.plan)
    assert entry["about"]["machine"] == "this machine"
    assert [p.name for p in known.path.parent.iterdir()] == ["plans.json"]

    others = [
        (begin(federation, RULE), ALONE, Plans(known.path, "another machine")),
        (begin(federation, FedAvg(2, LOCAL)), ALONE, known),
        (begin(federation, FedAvg(6, replace(LOCAL, batch=2))), ALONE, known),
        (begin(federation, RULE), replace(ALONE, chunk=2), known),
        (begin(federation, RULE), Wanted(replace(BASE, workers=1, dtype="float32"), EXECUTORS), known),
    ]
    assert all(choose(*other).fresh for other in others)
    assert len(json.loads(known.path.read_text())) == 6


def test_a_verdict_of_too_small_lasts_too(federation, tmp_path, monkeypatch):
    known = Plans(tmp_path / "plans.json")
    first = choose(begin(federation, RULE), ALONE, known)
    monkeypatch.setattr(autotune, "SMALL", 0.0)
    assert choose(begin(federation, RULE), ALONE, known).plan == first.plan


def test_a_chunk_of_the_cache_must_fit_today(federation, clock, tmp_path, monkeypatch):
    known = Plans(tmp_path / "plans.json")
    clock.told[("Stacked", True)] = 0.2  # slower than a stack that isn't captured
    first = choose(begin(federation, RULE), ALONE, known).plan
    one = memory.measure_largest(first_batch(begin(federation, RULE)))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 4.5 * one.total)
    assert choose(begin(federation, RULE), ALONE, known).plan == replace(first, chunk=2)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"plans"', "\xff", "[" * 100_000, '{"plans": 1}'], ids=range(7)
)
def test_a_damaged_cache_is_as_good_as_none(text, federation, clock, tmp_path):
    known = Plans(tmp_path / "plans.json")
    known.path.write_bytes(text.encode("latin-1"))
    first = choose(begin(federation, RULE), ALONE, known)
    assert first.fresh
    assert choose(begin(federation, RULE), ALONE, known).plan == first.plan  # it was mended


@pytest.mark.parametrize(
    "change",
    [{"executor": "evil"}, {"chunk": 0}, {"chunk": True}, {"chunk": "6"}, {"device": "cuda"}, {"more": 1}],
    ids=str,
)
def test_plans_of_the_cache_that_nobody_would_try_are_ignored(change, federation, clock, tmp_path):
    known = Plans(tmp_path / "plans.json")
    choose(begin(federation, RULE), ALONE, known)
    content = json.loads(known.path.read_text())
    for entry in content.values():
        entry["plan"] |= change
    known.path.write_text(json.dumps(content))
    assert choose(begin(federation, RULE), ALONE, known).fresh
    known.path.write_text(json.dumps(dict.fromkeys(content, "nonsense")))
    assert choose(begin(federation, RULE), ALONE, known).fresh
    known.path.write_text(json.dumps({key: {"plan": [1]} for key in content}))
    assert choose(begin(federation, RULE), ALONE, known).fresh


def test_a_cache_that_can_not_be_written_breaks_nothing(federation, clock, tmp_path):
    (tmp_path / "file").write_text("")
    assert choose(begin(federation, RULE), ALONE, Plans(tmp_path / "file" / "plans.json")).fresh
    (tmp_path / "plans.json").mkdir()
    assert choose(begin(federation, RULE), ALONE, Plans(tmp_path / "plans.json")).fresh
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "plans.json"]


def test_many_may_write_at_once(tmp_path, monkeypatch):
    known = Plans(tmp_path / "plans.json")
    seen = []

    def write(who):
        for i in range(20):
            known.add({"who": who, "i": i}, {"plan": {}})
            seen.append(known.find({"who": who, "i": -1}))
            json.loads(known.path.read_text())  # always whole

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert [p.name for p in tmp_path.iterdir()] == ["plans.json"]
    monkeypatch.setattr("potluck.execute.tune.cache.MOST", 3)
    known.add({"who": "last"}, {"plan": {}})
    assert len(json.loads(known.path.read_text())) == 3
    assert known.find({"who": "last"}) is not None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("POTLUCK_CACHE", str(tmp_path))
    assert find_path() == tmp_path / "plans.json"
    monkeypatch.delenv("POTLUCK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_path() == tmp_path / "potluck" / "plans.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_path() == tmp_path / ".cache" / "potluck" / "plans.json"


# ------------------------------------------------------------------------------------------------ experiments


def setting(**run):
    data = {"source": "synthetic", "rows": 400, "dimension": 5, "classes": 4, "clients": 10}
    model = {"name": "mlp", "width": 0.1}
    return prepare(Experiment(data=data, model=model, stop={"rounds": 3}, run=run))


def test_what_an_experiment_says_is_not_measured(clock, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    said = execution_plan.choose_plan(setting(executor="loop"))
    assert (said.plan, said.reason) == (ExecutionPlan("loop"), "as the experiment says")
    assert execution_plan.choose_plan(setting(executor="workers")).plan == ExecutionPlan("workers", 3)
    assert execution_plan.choose_plan(setting(executor="workers", workers=2, chunk=5)).plan.chunk == 5
    assert not clock.called
    with pytest.raises(ConfigError, match=r"^experiment: run.device = 'cuda': torch sees no GPU"):
        execution_plan.choose_plan(setting(executor="auto", device="cuda"))


def test_an_experiment_is_measured_with_what_it_will_train(clock, monkeypatch, tmp_path):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setenv("POTLUCK_CACHE", str(tmp_path))
    choice = execution_plan.choose_plan(setting())
    assert (choice.plan.executor, choice.fresh) == ("stacked", True)
    assert choice.reason.startswith("measured on 10 clients: stacked")
    (tmp_path / "plan.json").write_text(execution_plan.dump_plan(*choice[:2]))
    assert execution_plan.read_plan(tmp_path) == choice.plan
    assert "from the cache" in execution_plan.choose_plan(setting()).reason
    assert execution_plan.choose_plan(setting(executor="stacked", chunk=3)).plan.chunk == 3
    assert "workers" not in execution_plan.choose_plan(setting(workers=1)).reason


def test_what_was_measured_is_told_once(clock, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("POTLUCK_CACHE", str(tmp_path))
    (tmp_path / "it.toml").write_text(setting(workers=1).experiment.to_toml())

    def said(out):
        with pytest.raises(SystemExit):
            main(["run", str(tmp_path / "it.toml"), "--out", str(tmp_path / out)])
        return [line for line in capsys.readouterr().err.splitlines() if line.startswith("potluck:")]

    (line,) = said("a")
    assert line.startswith("potluck: computed by stacked (graphs, one by one")
    reason = json.loads((tmp_path / "a" / "plan.json").read_text())["reason"]
    assert line.endswith(f", the fastest way here ({reason.partition(':')[0]})")
    assert said("b") == []
    pinned = json.loads((tmp_path / "b" / "plan.json").read_text())
    assert (pinned["executor"], pinned["reason"].startswith(reason)) == ("stacked", True)
    assert len({(tmp_path / out / "records.jsonl").read_bytes() for out in "ab"}) == 1


@pytest.fixture
def cramped(monkeypatch):
    """Stacks of more than two clients don't fit into memory."""
    real = stacked.Stack

    def stack(items, *rest):
        if len(items) > 2:
            raise torch.OutOfMemoryError("no room")
        return real(items, *rest)

    monkeypatch.setattr(stacked, "Stack", stack)


def test_a_run_that_had_to_shrink_says_so_and_resumes_so(cramped, tmp_path, monkeypatch):
    wanted = setting(executor="stacked", chunk=8, workers=1, snapshot_every=1e-9).experiment
    wanted = wanted.with_values(train={"lr": 0.1, "momentum": 0.9})

    def interrupted(progress):
        if progress.round:
            raise KeyboardInterrupt

    ticks = SimpleNamespace(monotonic=iter(range(10**6)).__next__)  # progress and a snapshot at every event
    monkeypatch.setattr("potluck.simulate.simulation.time", ticks)
    straight = potluck.run(wanted, tmp_path / "straight")
    assert straight.notices == [f"out of memory: stacks of {n} clients from now on" for n in (4, 2)]
    with pytest.raises(KeyboardInterrupt):
        potluck.run(wanted, tmp_path / "broken", interrupted)
    pinned = json.loads((tmp_path / "broken" / "plan.json").read_text())
    assert pinned["chunk"] == 2
    assert pinned["reason"].endswith("; out of memory, hence chunks of 4; out of memory, hence chunks of 2")

    monkeypatch.setattr(execution_plan, "choose_plan", None)  # a resumed run has its plan
    resumed = potluck.resume(tmp_path / "broken")
    assert resumed.notices == []
    records = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("straight", "broken")]
    assert records[0] == records[1]


def test_a_snapshot_follows_what_has_shrunk(cramped, federation, tmp_path):
    told = []
    keywords = dict(plan=ExecutionPlan("stacked", chunk=8), folder=tmp_path, snapshot_every=1e9)
    sim = simulate(federation, RULE, on_shrink=told.append, **keywords)
    sim.run()
    assert told == [3, 1]
    assert sim.plan.chunk == 1
    assert len(list((tmp_path / "snapshots").glob("*.snapshot"))) == 3  # the first, the last, and this one


# ----------------------------------------------------------------------------------------------------- memory


def test_a_client_takes_its_models_its_optimiser_and_its_rows(federation):
    params = nbytes(federation.models[LOCAL.model].init(1))
    plain = replace(LOCAL, optim=SGD(0.1))
    sgd, momentum, adam = (
        memory.measure_client(item(federation, replace(plain, optim=o))) for o in OPTIMISERS
    )
    assert sgd.step > 3 * params
    assert (momentum.step - sgd.step, adam.step - sgd.step) == (params, 2 * params)
    assert sgd.rest > 20 * 6 * 8  # 20 rows of 5 numbers and a label
    few, many = (memory.measure_client(item(federation, replace(plain, batch=n))).step for n in (2, 16))
    assert 3 * params < few < many  # activations
    idle = memory.measure_client(item(federation, replace(plain, epochs=0)))
    assert idle.step == 3 * params
    assert (
        memory.measure_largest([item(federation, plain, n) for n in range(len(SIZES))]) == sgd
    )  # node 6 has most


OPTIMISERS = (SGD(0.1), SGD(0.1, momentum=0.9), Adam())


@value
class Looks(Objective):
    looks = True

    def look(self, models, net, sent, keep, batch):
        return net(sent["params"], batch.x)

    def penalty(self, net, params, batch, held):
        return (batch.seen**2).mean()


def test_a_client_that_looks_takes_more(federation):
    plain, looking = (
        memory.measure_client(item(federation, replace(LOCAL, objective=o)))
        for o in (LOCAL.objective, Looks())
    )
    assert looking.rest - plain.rest >= 20 * (5 + 4) * 8  # own rows, and what was seen of them


def test_activations_are_counted(federation):
    """A linear model on flat rows stores its rows (known) and the softmax of its logits."""
    job = Train(ModelSpec("linear"), optim=SGD(0.1), batch=10)
    params = nbytes(federation.models[job.model].init(1))
    saved = memory.measure_client(item(federation, job)).step - 3 * params
    assert 2 * 10 * 4 * 8 <= saved <= 2 * 10 * 4 * 8 * 4


def test_chunks_fit():
    assert [memory.fit_chunk(room, 50) for room in (0, 0.5, 1, 3, 49, 50, 63, 64, 1000)] == [
        1,
        1,
        1,
        2,
        32,
        50,
        50,
        64,
        512,
    ]
    assert memory.fit_chunk(1e9, 10**6) == memory.MOST
    one = memory.Takes(step=memory.NEAR // 20, rest=memory.NEAR)
    assert memory.find_near_chunk(one, 100) == 16
    assert memory.find_near_chunk(one, 20) == 20
    assert 1 <= memory.find_chunk(one, 100, "cpu") <= memory.free_bytes("cpu") / one.total


@pytest.fixture
def system(tmp_path):
    """Free bytes where /proc and the control groups hold these files."""

    def free(membership=None, available="1000 kB", **limits):
        proc, groups = tmp_path / "proc", tmp_path / "cgroup"
        (proc / "self").mkdir(parents=True, exist_ok=True)
        if available is not None:
            (proc / "meminfo").write_text(f"MemTotal: 5000 kB\nMemAvailable: {available}\nOdd\n")
        if membership is not None:
            (proc / "self" / "cgroup").write_text(membership)
        for name, content in limits.items():
            path = groups / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(path.name.replace("memory_", "memory.", 1)).write_text(content)
        return room.free_memory(proc, groups)

    return free


def test_runs_that_share_a_card_share_its_memory(federation, clock, monkeypatch, tmp_path):
    """64 clients' worth is free, of which stacks take a quarter; four runs a quarter of that each.

    A plan of the cache may have twice as much, and what was measured for one run isn't taken for four.
    """
    monkeypatch.setattr(autotune, "measure_largest", lambda items: memory.Takes(1, 0))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 64)
    known = Plans(tmp_path / "plans.json", "here")

    def find_chunk(sharing):
        wanted = replace(ALONE, executors=("loop", "stacked"), graphs=False, sharing=sharing)
        return choose(begin(federation, RULE), wanted, known).plan.chunk

    assert [find_chunk(sharing) for sharing in (1, 4)] == [16, 4]
    monkeypatch.setattr(memory, "free_bytes", lambda device: 32)
    assert [find_chunk(sharing) for sharing in (1, 4)] == [16, 4]
    monkeypatch.setattr(memory, "free_bytes", lambda device: 16)
    assert [find_chunk(sharing) for sharing in (1, 4)] == [8, 2]


def test_free_memory_of_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 50)
    assert memory.free_bytes("cuda") == 850  # what the allocator holds and doesn't use is free as well


def test_free_memory_without_limits(system):
    assert system() == 1000 * 1024


def test_free_memory_where_nothing_is_told(system):
    assert system(available=None) == room.UNKNOWN


def test_free_memory_in_a_control_group(system):
    limits = {"a__b__memory_max": "max\n", "a__b__memory_current": "1\n"}
    limits |= {
        "a__memory_max": "5000\n",
        "a__memory_current": "3000\n",
        "a__memory_stat": "inactive_file 700\nanon 9\n",
    }
    assert system("1:cpu:/x\n0::/a/b\nodd\n", **limits) == 5000 - 3000 + 700


def test_free_memory_in_a_control_group_of_version_1(system):
    limits = {"memory__memory_limit_in_bytes": "900", "memory__memory_usage_in_bytes": "1000"}
    assert (
        system("4:cpuacct,memory:/not/here\n", **limits) == 0
    )  # over its limit, but never less than nothing


# ------------------------------------------------------------------------------------- rules without rounds


@pytest.fixture
def paces(monkeypatch):
    """How fast short runs get on, by their number of processes."""
    told, asked = {1: 10.0, 2: 20.0}, []

    def pace(trial):
        asked.append(trial.sim.plan)
        trial.close()
        return told[trial.sim.plan.workers]

    monkeypatch.setattr(autotune, "measure_pace", pace)
    return SimpleNamespace(told=told, asked=asked)


def test_where_many_wait_one_process_and_several_are_tried_in_earnest(federation, clock, paces):
    again = begin(federation, fedasync(LOCAL, 5))
    clock.told |= {"Stacked": 0.1, "StackedWorkers": 0.15}
    choice = choose(again, AUTO)
    assert [p.workers for p in paces.asked] == [2, 1]
    assert (choice.plan.workers, choice.fresh) == (2, True)
    assert "tasks a second of short runs: stacked in 2 workers" in choice.reason
    paces.told[1] = 30.0
    assert choose(again, AUTO).plan.workers == 1
    paces.asked.clear()
    clock.told["StackedWorkers"] = 0.25  # too slow to be worth a run
    assert choose(again, AUTO).plan.workers == 1
    clock.told["StackedWorkers"] = 0.15
    choose(begin(federation, RULE), AUTO)  # a round is one batch, which was measured
    assert not paces.asked


def test_a_short_run_tells_how_fast_it_is(federation, monkeypatch):
    monkeypatch.setattr(autotune, "EARNEST", 0.05)
    assert autotune.measure_pace(begin(federation, fedasync(LOCAL, 5), rounds=10**6)(BASE, None)) > 1
    assert (
        autotune.measure_pace(begin(federation, fedasync(LOCAL, 5), rounds=3)(BASE, None)) > 1
    )  # it ends before that


@pytest.mark.parametrize("rule", [FedAvg(6, LOCAL), fedasync(LOCAL, 5)])
def test_one_by_one_computes_the_same_in_several_processes(federation, rule):
    one = ExecutionPlan("stacked", 1, chunk=1, graphs=True, dtype="float64")
    plans = one, replace(one, workers=2), replace(one, workers=3)
    assert len({lines(finished(federation, rule, plan=p)) for p in plans}) == 1
    beside = execution_plan.drop_workers(autotune.PlanChoice(plans[1], "so")).plan
    assert beside == one
