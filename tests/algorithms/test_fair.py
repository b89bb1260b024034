"""Methods that serve devices fairly or personally, and comparisons that treat methods fairly."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, lines, small, values
from support import SPEC, Desk, Line, answer, close, fit, local, numbers, tasks, try_rates

import potluck
from potluck import metrics
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.ftfa import ftfa
from potluck.algorithms.qfedavg.algorithm import qfedavg
from potluck.algorithms.qfedavg.device import Appraise
from potluck.cli import main
from potluck.core import codec
from potluck.core.errors import ConfigError, SnapshotError
from potluck.core.messages import Lost
from potluck.core.rule import Got
from potluck.engine.schedule import EvaluateAt
from potluck.execute.reference import Item, train
from potluck.experiment import Experiment, Tuning, build, tune
from potluck.experiment.prepare import prepare
from potluck.experiment.tuned_keys import set_values
from potluck.experiment.tuning import load_tuning
from potluck.fleet import TRAINING_FACTOR
from potluck.jobs import SGD, Train
from potluck.report.page import render
from potluck.rules import Rounds

SMALL = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 8, "classes": 4, "clients": 8},
    "model": {"name": "linear"},
    "stop": {"rounds": 3},
    "run": {"executor": "loop"},
    "tune": try_rates(0.3, 0.0001),
}


def experiment(**changes):
    return Experiment(**{**SMALL, **changes})


def desk(w=1.0, b=0.0):
    return Desk(models={SPEC: Line(w, b)})


def softplus(z):
    return math.log1p(math.exp(z))


# ----------------------------------------------------------------------------------------------- q-FedAvg


def merged(rule, *answers):
    """w after a round of (delta, loss) pairs, from w = 1."""
    ctx = desk()
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    replies = [
        replace(answer(task, delta, weight=weight), metrics={"sent_loss": loss})
        for task, (delta, loss, *weight) in zip(tasks(commands), answers, strict=True)
        for weight in (weight or [1.0])
    ]
    return rule.merge(m, None, Got(replies, []), ctx)[0]


# lr = 0.5, w = 1; two devices answer -0.2 and 0.4, and found losses F of 2 and 0.5.
#   Delta = -delta / lr = 0.4, -0.8
#   q = 1:  D = F Delta = 0.8, -0.4      h = Delta^2 + F / lr = 0.16 + 4, 0.64 + 1          w = 1 - 0.4 / 5.8
#   q = 2:  D = F^2 Delta = 1.6, -0.2    h = 2 F Delta^2 + F^2 / lr = 0.64 + 8, 0.64 + 0.5  w = 1 - 1.4 / 9.78
@pytest.mark.parametrize("q, w", [(1.0, 1 - 0.4 / 5.8), (2.0, 1 - 1.4 / 9.78)])
def test_qfedavg_steps_by_loss(q, w):
    m = merged(qfedavg(Train(optim=SGD(0.5)), clients=2, q=q), (-0.2, 2.0, 7.0), (0.4, 0.5, 1.0))
    assert close(m.params, numbers(w))  # weights, 7 and 1 samples, must not matter
    assert (m.round, m.weight) == (1, 8.0)


def test_qfedavg_without_q_is_the_plain_mean():
    m = merged(qfedavg(clients=3, q=0.0), (0.1, 9.0), (0.2, 0.0), (0.6, 1e-3))
    assert close(m.params, numbers(1 + (0.1 + 0.2 + 0.6) / 3))


def test_qfedavg_leans_towards_the_badly_served():
    far = [
        float(merged(qfedavg(clients=2, q=q), (-0.3, 0.1), (0.3, 2.0)).params["w"]) for q in (0.0, 1.0, 5.0)
    ]
    assert far[0] == pytest.approx(1.0)
    assert all(w > 1.0 for w in far[1:])


@pytest.mark.parametrize("loss", [0.0, 1e-300, 1e300])
@pytest.mark.parametrize("q", [0.001, 0.5, 1.0, 5.0, 50.0])
def test_qfedavg_survives_any_loss(loss, q):
    m = merged(qfedavg(clients=2, q=q), (0.5, loss), (0.25, 1.0))
    assert 1.0 <= float(m.params["w"]) <= 1.5


def test_qfedavg_leaves_out_who_has_no_rows_or_no_answer():
    rule, ctx = qfedavg(clients=2), desk()
    assert close(merged(rule, (9.0, 0.0, 0.0), (9.0, math.inf, 3.0)).params, numbers(1.0))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    after, _ = rule.merge(m, None, Got([], [Lost(task, "gone") for task in tasks(commands)]), ctx)
    assert close(after.params, numbers(1.0))
    assert after.round == 1


@pytest.mark.parametrize("executor", [LOOP, STACKED], ids=["loop", "stacked"])
def test_the_loss_is_that_of_the_model_as_it_was_sent(executor):
    from potluck.execute.plan import make_executor

    rule, ctx = qfedavg(Train(optim=SGD(0.5), batch=1, epochs=3), clients=1), desk(0.3, -0.2)
    (task,) = tasks(rule.plan(rule.start(ctx), None, ctx)[1])
    at = local([2.0, -1.0], [1, 0], task.send)
    (result,) = make_executor(executor).run([Item(task.job, at)])
    # cross-entropy of logits (0, z) is softplus(z) - y z, with z = w x + b: 0.4 and -0.5
    assert result.metrics["sent_loss"] == pytest.approx((softplus(0.4) - 0.4 + softplus(-0.5)) / 2, abs=1e-12)
    assert not close(result.body["delta"], numbers())  # training went on from there
    forward, passes = Line.ops * 2, 3 * 2
    assert task.job.cost(at).ops == TRAINING_FACTOR * passes * Line.ops + forward


def test_qfedavg_may_sit_in_a_cohort_and_refuses_nonsense():
    small = qfedavg(clients=8, q=2.0).resize(3, 0.25)
    assert (small.clients, small.local.optim.lr, small.server.q) == (3, 0.025, 2.0)
    assert small.local.objective == Appraise()
    for settings, said in (
        (dict(q=-1.0), "q = -1.0"),
        (dict(q=math.nan), "q = nan"),
        (dict(q=math.inf), "q = inf"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            qfedavg(**settings)
    with pytest.raises(ConfigError, match=r"train.lr = 0.0"):
        qfedavg(Train(optim=SGD(0.0)))


# --------------------------------------------------------------------------------------------------- FTFA


def tuned_job(**settings):
    rule, ctx = ftfa(Train(optim=SGD(0.5), batch=1), **settings), desk(0.3, -0.2)
    served = rule.serve(rule.start(ctx), 4, ctx)
    assert list(served) == ["tuned", "global"]  # the first is the headline
    return served["tuned"]


# One row, x = 2 and y = 1; w = 0.3, b = -0.2: sigmoid(0.3 * 2 - 0.2) - 1 = -0.401312..., so at lr 0.5
#   w + 0.5 * 0.401312 * 2 = 0.701312..., b + 0.5 * 0.401312 = 0.000656...
@pytest.mark.parametrize("part, moved", [("all", (1.0, 0.5)), ("head", (0.0, 0.5))])
def test_ftfa_takes_a_step_before_use(part, moved):
    task = tuned_job(part=part)
    off = 1 - 1 / (1 + math.exp(-0.4))
    assert off == pytest.approx(0.401312, abs=1e-6)
    delta = fit(task.job, local([2.0], [1], task.send))[0]["delta"]
    assert float(delta["b"]) == pytest.approx(moved[1] * off, abs=1e-12)
    assert float(delta.get("w", torch.zeros(1))) == pytest.approx(moved[0] * off, abs=1e-12)


def test_ftfa_is_scored_after_tuning():
    task = tuned_job()
    at = local([1.0, 0.3], [0, 0], task.send, test=np.array([1]))
    at._rows = np.array([0])  # trains on x = 1, y = 0: z = 0.3 - 0.2, and is tested on x = 0.3, y = 0
    off = 1 / (1 + math.exp(-0.1))
    z = (0.3 - 0.5 * off) * 0.3 + (-0.2 - 0.5 * off)
    scored = train(Item(task.job, at)).metrics
    assert scored == {"accuracy": 1.0, "loss": pytest.approx(softplus(z), abs=1e-12), "rows": 1.0}


def test_ftfa_settings():
    rule = ftfa(Train(optim=SGD(0.1), steps=7), clients=3, tune_epochs=4, tune_lr=0.02)
    assert (rule.by.tuning.epochs, rule.by.tuning.steps, rule.by.tuning.optim.lr) == (4, None, 0.02)
    assert rule.inner == FedAvg(3, Train(optim=SGD(0.1), steps=7))
    assert rule.resize(2, 0.5).by.tuning.optim.lr == 0.01
    ctx = desk()
    views = rule.serve(rule.start(ctx), ctx.me, ctx)  # the cloud has no rows of its own
    assert views["tuned"].job == views["global"].job
    for settings, said in (
        (dict(tune_epochs=0), "tune_epochs = 0"),
        (dict(tune_lr=0.0), "tune_lr = 0.0"),
        (dict(part="tail"), "part = 'tail'"),
    ):
        with pytest.raises(ConfigError, match=said):
            ftfa(**settings)


def test_ftfa_trains_as_fedavg_does():
    often, federation = EvaluateAt(rounds=2), small()
    plain, tuned = (finished(federation, rule, often=often) for rule in (FedAvg(4, LOCAL), ftfa(LOCAL, 4)))
    assert values(tuned, "accuracy_mean", view="global") == values(plain, "accuracy_mean", view="global")
    assert values(tuned, "accuracy_mean", view="tuned") != values(plain, "accuracy_mean", view="global")
    assert values(tuned, "global_accuracy", view="tuned") == values(plain, "global_accuracy", view="global")


@pytest.mark.parametrize("make", [qfedavg, ftfa])
def test_rules_and_their_states_can_be_stored(make):
    rule = make()
    assert codec.decode(codec.encode(rule)) == rule
    s, _ = Rounds(rule).init(desk())
    assert codec.encode(codec.decode(codec.encode(s))) == codec.encode(s)


# ------------------------------------------------------------------------------------ validation, not test


def without_test(federation):
    """The same with nonsense in every test row, the global ones and devices' own."""
    x, y = federation.pool.x.clone(), federation.pool.y.clone()
    rows = [federation.partition.rows(node, "test") for node in range(federation.partition.clients)]
    spoilt = torch.from_numpy(np.concatenate([np.flatnonzero(federation.pool.test), *rows]))
    x[spoilt], y[spoilt] = float("nan"), 0
    return replace(federation, pool=replace(federation.pool, x=x, y=y))


@pytest.mark.parametrize("rule", [FedAvg(4, LOCAL), ftfa(LOCAL, 4)], ids=["as is", "tuned"])
def test_on_validation_no_test_row_is_touched(rule):
    federation, often = small(), EvaluateAt(rounds=2, on="validation")
    sim = finished(federation, rule, often=often)
    assert lines(finished(without_test(federation), rule, often=often)) == lines(sim)
    assert values(sim, "global_accuracy") == []
    assert lines(finished(federation, rule, often=EvaluateAt(rounds=2))) != lines(sim)
    net, (spec, params) = federation.models, sim.find_models()["global"]
    mine = torch.from_numpy(federation.partition.rows(3, "validation").copy())
    right = net[spec](params, federation.pool.x[mine]).argmax(-1) == federation.pool.y[mine]
    assert values(sim, "accuracy", node=3, view="global")[-1] == float(right.double().mean())


def test_evaluation_says_on_what():
    run = potluck.run(experiment(evaluate={"on": "validation"}))
    assert (run.summary["evaluated_on"], run.summary["global_accuracy"]) == ("validation", None)
    with pytest.raises(ConfigError, match=r"evaluate.on = 'tests': should be one of test, validation"):
        experiment(evaluate={"on": "tests"})
    with pytest.raises(ConfigError, match=r"evaluate.on = 'train'"):
        EvaluateAt(on="train")


# -------------------------------------------------------------------------------------------------- tuning


def test_tuning_reads_no_test_row(monkeypatch):
    wanted = experiment(compare=["fedavg", "ftfa"], tune=try_rates(0.3, 0.03, 0.0001, seeds=[1, 2]))
    found, build_federation = tune(wanted), build.build_federation
    assert found.grids["fedavg"] == {"train.lr": [0.0001, 0.03, 0.3]}
    monkeypatch.setattr(build, "build_federation", lambda *a, **k: without_test(build_federation(*a, **k)))
    assert tune(wanted) == found
    assert all(len(trial["results"]) == 2 for tried in found.results.values() for trial in tried)
    trial = potluck.run(
        set_values(wanted, {"train.lr": 0.3}).with_values(seed=2, evaluate={"on": "validation"})
    )
    assert found.results["fedavg"][2]["results"][1] == trial.summary["accuracy_mean"]


def tuning_of(rates, results):
    """A tuning of learning rates that came to these accuracies, by method, rate and seed."""
    tried = {
        method: [
            {"point": {"train.lr": lr}, "origin": "grid", "key": None, "results": r, "mean": sum(r) / len(r)}
            for lr, r in zip(rates, each, strict=True)
        ]
        for method, each in results.items()
    }
    grids = {method: {"train.lr": rates} for method in results}
    none = {method: [] for method in results}
    return Tuning(len(rates), 0, [1, 2], 1.0, grids, none, tried, none)


def test_the_best_mean_is_chosen_and_the_smaller_rate_of_two():
    results = {
        "a": [[0.2, 0.4], [0.5, 0.1], [0.1, 0.1]],
        "b": [[0.1], [0.3], [0.2]],
        "c": [[0.1], [0.2], [0.3]],
    }
    found = tuning_of([0.01, 0.1, 1.0], results)
    assert [found.choice(name)["train.lr"] for name in "abc"] == [0.01, 0.1, 1.0]  # a: 0.3 twice
    assert [found.edges(name) for name in "abc"] == [["train.lr"], [], ["train.lr"]]
    assert not tuning_of([0.1], {"a": [[0.5]]}).edges("a")  # nothing was chosen
    chosen = {"settings": {"train.lr": 0.1}, "accuracy": 0.3, "edge": [], "extended": {}, "trials": 3}
    assert found.summary()["choices"]["b"] == chosen


def test_trials_go_to_their_end_and_may_be_shorter(tmp_path):
    wanted = experiment(
        stop={"rounds": 10, "seconds": 900.0, "target": 0.3},
        evaluate={"target": 0.2},
        tune=try_rates(0.5, length=0.3),
    )
    tune(wanted, ["fedavg"], tmp_path / "t")
    trial = potluck.load(tmp_path / "t" / "fedavg-lr0.5-1").experiment
    assert (trial.stop.rounds, trial.stop.seconds, trial.stop.target) == (3, 270.0, None)
    assert (trial.evaluate.on, trial.evaluate.target, trial.tune) == ("validation", None, None)
    assert load_tuning(tmp_path / "t") == tune(wanted, ["fedavg"])
    (tmp_path / "t" / "tune.json").write_text("{}")
    with pytest.raises(SnapshotError, match=r"tune.json: damaged"):
        load_tuning(tmp_path / "t")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"girds": {}}, "tune.girds: no such table; did you mean 'grid'?"),
        ({"lr": [0.1]}, "tune: lr = [0.1]: is a key of the grid; write [tune.grid] train.lr = [...]"),
        ({"grid": {"mu": []}}, "tune.grid: mu = []: write a list of values to try, such as [0.1, 0.3]"),
        ({"grid": {"mu": 0.1}}, "tune.grid: mu = 0.1: write a list of values to try, such as [0.1, 0.3]"),
        ({"grid": {"train": {}}}, "tune.grid: train = {}: write a list of values to try"),
        ({"grid": {"mu": [{}]}}, "tune.grid: mu = [{}]: values are numbers, texts, true, false, or lists"),
        ({"grid": {"train": {"lr": [0.1, 0.1]}}}, "tune.grid: train.lr = [0.1, 0.1]: name each once"),
        ({"grid": {"a.b": [1], "a": {"b": [1]}}}, "tune.grid: a.b: is there twice"),
        ({"own": {"fedprox": {"mu": [1, 1]}}}, "tune.own: fedprox.mu = [1, 1]: name each once"),
        ({"own": {"fedproxx": {}}}, "tune.own: fedproxx: no such algorithm; did you mean 'fedprox'?"),
        ({"trials": 0}, "tune.trials = 0: should be greater than or equal to 1"),
        ({"seeds": [3, 3]}, "tune: seeds = [3, 3]: name each once"),
        ({"length": 1.5}, "tune.length = 1.5: should be less than or equal to 1"),
    ],
)
def test_wrong_grids(table, message):
    with pytest.raises(ConfigError) as caught:
        experiment(tune=table)
    assert str(caught.value).startswith(f"experiment: {message}")


def test_the_grid_is_no_part_of_a_run():
    assert prepare(experiment()).identity == prepare(experiment(tune=try_rates(1.0))).identity


# ------------------------------------------------------------------------------------------- comparisons


def test_paired_differences_by_hand():
    # 2.0, 1.0, 3.0 above: mean 2, deviation 1; t(0.975, 2) = 0.95 / sqrt(2 * 0.975 * 0.025) = 4.302653
    found = metrics.paired_difference([12.0, 31.0, 53.0], [10.0, 30.0, 50.0])
    assert found == (2.0, pytest.approx(4.302653 / math.sqrt(3), rel=1e-6))
    # two seeds: a mean, and no interval (t would be 12.7); a seed without a value: neither
    assert metrics.paired_difference([0.1, 0.2], [0.0, 0.1]) == (pytest.approx(0.1), None)
    assert metrics.paired_difference([1.0, None], [1.0, 2.0]) == (None, None)
    assert metrics.paired_difference([1.0, 2.0], [None, 2.0]) == (None, None)


def test_a_tuned_comparison(tmp_path):
    compared = potluck.compare(experiment(), ["fedavg", "ftfa"], [1, 2], tmp_path / "c", tuned=True)
    tuning, (first, second) = compared.tuning, compared.rows
    assert [run.experiment.training(run.experiment.algorithm).lr for run in compared.runs] == [
        tuning.choice(name)["train.lr"] for name in ("fedavg", "fedavg", "ftfa", "ftfa")
    ]
    assert tuning.seeds == [1]
    own, base = ([run.summary["accuracy_mean"] for run in compared.of(name)] for name in ("ftfa", "fedavg"))
    assert first.difference is None
    assert second.difference == metrics.paired_difference(own, base)
    page = render(compared)
    assert "<th>vs fedavg</th>" in page
    assert ">Tuning</h2>" in page
    assert "no test row of a trial was read" in page
    told = json.loads((tmp_path / "c" / "tune" / "tune.json").read_text())
    assert (told["grids"]["ftfa"], told["on"]) == ({"train.lr": [0.0001, 0.3]}, "validation")
    assert told["choices"]["fedavg"]["edge"] == ["train.lr"]


# ----------------------------------------------------------------------------------------- the command line

TOML = """
name = "small"
compare = ["fedavg", "fedasync"]
[data]
source = "synthetic"
rows = 400
dimension = 8
classes = 4
clients = 8
[model]
name = "linear"
[stop]
rounds = 3
[run]
executor = "loop"
[tune]
trials = 2
refine = 0
seeds = [1]
grid.train.lr = [0.05, 0.5]
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command in this process, in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(TOML)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


def marks(folder):
    """What would change if a run were made again."""
    found = sorted(folder.rglob("*.json*"))
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found if path.name != "tune.json"}


def test_tune_goes_on_where_it_was(command, tmp_path):
    code, out, err = command("tune", "small.toml", "--jobs", "1")
    assert code == 0
    assert re.search(r"fedasync +│ +2 │ lr 0.0?5", out)
    assert "At an edge: fed" in out
    assert "run 4 of 4, about" in err
    folder = tmp_path / "runs" / "small-tune"
    names = {f"{name}-lr{rate}-1" for name in ("fedavg", "fedasync") for rate in ("0.05", "0.5")}
    assert {path.name for path in folder.iterdir()} == names | {"tune.json"}
    before = marks(folder)
    (folder / "fedasync-lr0.5-1" / "summary.json").unlink()
    code, out, _ = command("tune", "small.toml", "--json")
    assert code == 0
    assert set(json.loads(out)["choices"]) == {"fedavg", "fedasync"}
    after = marks(folder)
    assert {path.parent.name for path in after if after[path] != before[path]} == {"fedasync-lr0.5-1"}
    code, _, err = command("tune", "small.toml", "--set", "data.alpha=1", "-q")
    assert code == 2
    assert re.fullmatch(
        r"potluck: runs/small-tune/fedavg-lr0.05-1: holds a run with other settings; .*\n", err
    )
    assert command("tune", "small.toml", "--set", "data.alpha=1", "-q", "--force") == (0, "", "")
    assert marks(folder) != after
    assert "a tuning; the same `potluck tune`" in command("resume", "runs/small-tune")[2]


def test_compare_at_tuned_rates(command, tmp_path):
    code, out, _ = command("compare", "small.toml", "--tune", "--seeds", "1,2")
    assert code == 0
    assert re.search(r"│ *lr ┃|┃ *lr ┃", out)
    assert "vs fedavg" in out
    folder = tmp_path / "runs" / "small"
    assert (folder / "tune" / "tune.json").exists()
    before = marks(folder)
    (folder / "fedasync-2" / "summary.json").unlink()
    assert command("resume", "runs/small", "-q")[0] == 0
    after = marks(folder)
    assert {path.parent.name for path in after if after[path] != before[path]} == {"fedasync-2"}
    told = json.loads(command("show", "runs/small", "--json")[1])
    assert told["tuning"]["choices"]["fedavg"]["settings"]["train.lr"] in (0.05, 0.5)
    assert told["algorithms"][1]["difference"] is not None
    assert (
        command("compare", "small.toml", "--force", "-q")[0] == 0
    )  # it made all of it, so it may replace it
    assert not (folder / "tune").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithms", "fedavgg"], r"tune = 'fedavgg': no such algorithm; did you mean 'fedavg'\?"),
        (
            ["--algorithms", "fedavg,FedAvg"],
            r"tune = \['fedavg', 'fedavg'\]: 'fedavg' is named twice; leave .*",
        ),
        (["--set", "tune.lr=[0.1]"], r"--set: tune: lr = \[0.1\]: .*write \[tune.grid\] train.lr = \[...\]"),
        (["--set", "data.clients=399"], r"small.toml: data.clients = 399: .*"),
        (["--out", "small.toml/x"], r"out = '.*': can't be written .*"),
    ],
)
def test_wrong_tunings_are_one_line_and_leave_nothing(command, tmp_path, arguments, message):
    code, out, err = command("tune", "small.toml", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"potluck: {message}\n", err), err
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


@pytest.mark.parametrize("name", ["tune", "study"])
def test_help_teaches_by_example(command, name):
    code, out, _ = command(name, "--help")
    assert code == 0
    assert f"Example: potluck {name} " in out
