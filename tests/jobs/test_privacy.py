import dataclasses
import importlib.util
import json
import math
import sys

import pytest
import torch
from federations import LOCAL, LOOP, STACKED, WORKERS, chained, finished, lines, small, values, weights
from scipy.optimize import brentq
from scipy.stats import norm

from potluck import algorithms
from potluck.algorithms.pyramidfl.device import Thin
from potluck.cli import tables
from potluck.core import keys
from potluck.core.errors import ConfigError
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.plan import ExecutionPlan
from potluck.execute.reference import SENDING
from potluck.experiment import Experiment, accountant
from potluck.experiment.prepare import prepare
from potluck.experiment.runs import run
from potluck.fleet import Intervals
from potluck.jobs import SGD, CrossEntropy, Private, fine_tune, privacy

PRIVATE = Private(clip=0.5, sigma=0.8)
SECRET = dataclasses.replace(LOCAL, privacy=PRIVATE)
REPLAYED = ExecutionPlan("stacked", chunk=3, graphs=True)


def length(delta):
    return math.sqrt(sum(float(d.double().square().sum()) for d in delta.values()))


# ----------------------------------------------------------------------------------------------- mechanism


def test_long_updates_are_clipped_as_a_whole_and_short_ones_left_alone():
    still = Private(clip=1.0, sigma=1e-12)
    long = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}  # of length 5
    sent = still.privatise(long, keys.as_tensor(1))
    assert sent["a"].tolist() == pytest.approx([0.6, 0.0], abs=1e-7)
    assert sent["b"].tolist() == [[pytest.approx(0.8)]]
    short = {"a": torch.tensor([0.3, 0.0]), "b": torch.tensor([[0.4]])}
    assert still.privatise(short, keys.as_tensor(1))["a"].tolist() == pytest.approx([0.3, 0.0], abs=1e-7)
    assert {d.dtype for d in sent.values()} == {torch.float32}


def test_noise_has_its_deviation_differs_between_keys_and_parameters_and_repeats():
    nothing = {"a": torch.zeros(200, 100), "b": torch.zeros(20_000)}
    sent = Private(clip=2.0, sigma=0.7).privatise(nothing, keys.as_tensor(3))
    for part in sent.values():
        assert float(part.mean()) == pytest.approx(0.0, abs=0.04)
        assert float(part.std()) == pytest.approx(1.4, rel=0.03)  # sigma x clip
    flat = [part.reshape(-1) for part in sent.values()]
    assert abs(float(torch.corrcoef(torch.stack(flat))[0, 1])) < 0.03
    again, other = (Private(2.0, 0.7).privatise(nothing, keys.as_tensor(k)) for k in (3, 4))
    assert torch.equal(again["a"], sent["a"])
    assert abs(float(torch.corrcoef(torch.stack([flat[0], other["a"].reshape(-1)]))[0, 1])) < 0.03


def test_noise_maps_over_clients():
    deltas = {"a": torch.randn(4, 3, 2, dtype=torch.float64), "b": torch.randn(4, 5, dtype=torch.float64)}
    several = torch.stack([keys.as_tensor(k) for k in range(4)])
    mapped = torch.func.vmap(PRIVATE.privatise)(deltas, several)
    for i in range(4):
        alone = PRIVATE.privatise({n: d[i] for n, d in deltas.items()}, several[i])
        for name, part in alone.items():
            torch.testing.assert_close(mapped[name][i], part, rtol=0, atol=1e-12)


def test_an_update_that_is_no_number_stays_none():
    assert PRIVATE.privatise({"a": torch.tensor([float("nan"), 1.0])}, keys.as_tensor(0))["a"].isnan().all()


# ---------------------------------------------------------------------------------------------- executions


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedyogi", "fedasync", "fedbuff", "scaffold", "ftfa"])
def test_executors_agree(name):
    local = dataclasses.replace(SECRET, optim=SGD(0.1))
    where, rule = small(compute=4e5), algorithms.make(name, local)
    settings = dict(stop=StopAt(rounds=3), often=EvaluateAt(rounds=2))
    loop, workers, stacked, replayed = (
        finished(where, rule, plan=plan, **settings) for plan in (LOOP, WORKERS, STACKED, REPLAYED)
    )
    assert lines(loop) == lines(workers)
    assert torch.equal(weights(loop), weights(workers))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    torch.testing.assert_close(weights(replayed), weights(loop), rtol=0, atol=1e-10)
    open_ = finished(
        where, algorithms.make(name, dataclasses.replace(local, privacy=None)), plan=LOOP, **settings
    )
    assert not torch.allclose(weights(open_), weights(loop), atol=1e-3)
    assert values(loop, "private_updates")
    assert not values(open_, "private_updates")


def test_resumed_at_every_event_equals_straight():
    where, rule = small(compute=4e5), algorithms.make("fedavg", SECRET, clients=4)
    expected = finished(where, rule, rounds=3, plan=STACKED)
    sim, _ = chained(where, rule, rounds=3, plan=STACKED)
    assert lines(sim) == lines(expected)
    assert torch.equal(weights(sim), weights(expected))


def test_what_is_sent_is_the_clipped_update_and_its_tasks_own_noise():
    where = small()
    heard = []

    class Listening:
        def __init__(self, rule):
            self.rule = rule

        def __getattr__(self, name):
            return getattr(self.rule, name)

        def merge(self, m, lane, got, ctx):
            heard.extend(got.replies)
            return self.rule.merge(m, lane, got, ctx)

    sim = finished(where, Listening(algorithms.make("fedavg", SECRET, clients=4)), rounds=1, seed=9)
    quiet = len(heard)
    plain = dataclasses.replace(SECRET, privacy=None)
    finished(where, Listening(algorithms.make("fedavg", plain, clients=4)), rounds=1, seed=9)
    for private, bare in zip(heard[:quiet], heard[quiet:], strict=True):
        assert private.metrics == {}  # a loss would tell of rows too
        assert "loss" in bare.metrics
        serial, place = private.task.id[1:]
        seed = keys.derive(9, private.task.to, sim.root, serial, place)
        key = keys.as_tensor(keys.derive(seed, SENDING))
        shrink = min(1.0, 0.5 / length(bare.body["delta"]))
        for i, (name, d) in enumerate(bare.body["delta"].items()):
            noise = 0.5 * 0.8 * keys.normal(keys.fold_in(key, i), tuple(d.shape), torch.float64)
            torch.testing.assert_close(private.body["delta"][name], d * shrink + noise, rtol=0, atol=1e-12)


def test_every_update_that_begins_to_leave_is_counted():
    where = small(compute=4e5)
    sim = finished(where, algorithms.make("fedavg", SECRET, clients=4, overcommit=2.0), rounds=4)
    counted = sim.accounts.private[0.8, 1e-6]
    assert sum(counted.values()) >= 16  # those that are too late while they upload count too
    assert values(sim, "private_updates")[-1] == {
        "sigma": 0.8,
        "delta": 1e-6,
        "updates": max(counted.values()),
    }
    blinking = Intervals.of([[(t / 16, t / 16 + 0.03) for t in range(80)]] * 10)  # gone before any upload
    away = small(availability=blinking, compute=4e5)
    gone = finished(away, algorithms.make("fedavg", SECRET, clients=4), stop=StopAt(rounds=3, seconds=5))
    assert gone.accounts.lost["gone"] >= 4
    assert gone.accounts.private == {}


# ------------------------------------------------------------------------------------------------- refusals


def test_parts_that_tell_more_than_the_change_are_refused():
    for name in ("qfedavg", "ifca"):
        with pytest.raises(ConfigError, match=r"train\.privacy = .*leave train\.privacy out"):
            algorithms.make(name, SECRET)
    thin = dataclasses.replace(SECRET, objective=Thin(CrossEntropy(), 0.5))
    assert thin.privacy is PRIVATE  # a part of a private update is private
    assert fine_tune(SECRET).privacy is None  # it stays at home


@pytest.mark.parametrize(("key", "number"), [("clip", 0.0), ("sigma", 0.0), ("delta", 1.0), ("sigma", -1.0)])
def test_bad_settings_are_named(key, number):
    with pytest.raises(ConfigError, match=rf"train\.privacy\.{key} = "):
        Private(**{"clip": 1.0, "sigma": 1.0, key: number})
    with pytest.raises(ConfigError, match=rf"train\.privacy\.{key} = "):
        Experiment(train={"privacy": {"sigma": 1.0, key: number}})


def test_nobody_gets_noise_that_was_not_asked_for():
    told = (
        r"train\.privacy\.sigma: must be given: deviation of the noise .* such as 10: .* epsilon 2\.9 .* 105"
    )
    for given in ({}, {"clip": 0.5}, {"clip": 1.0, "delta": 1e-5}):
        with pytest.raises(ConfigError, match=told):
            Experiment(train={"privacy": given})
    with pytest.raises(ConfigError, match=r"fedavg\.train\.privacy\.sigma: must be given"):
        prepare(Experiment(algorithms={"fedavg": {"train": {"privacy": {"clip": 1.0}}}}))
    with pytest.raises(TypeError, match="sigma"):
        Private(clip=1.0)
    assert Experiment(train={"privacy": {"sigma": 10.0}}).train.privacy.clip == 1.0
    # What the message and the module say is what the accountant finds.
    for sigma, said in ((0.6, 105), (1.0, 49), (5.0, 6.4), (10.0, 2.9), (20.0, 1.4)):
        assert accountant.epsilon([(sigma, 10)], 1e-6) == pytest.approx(said, rel=0.025)
        assert f"{said:g} with" in privacy.__doc__


# ---------------------------------------------------------------------------------------------- accounting


def exact(sigma, delta):
    """Epsilon of one Gaussian release (Balle and Wang 2018, theorem 8)."""

    def excess(e):
        return norm.cdf(0.5 / sigma - e * sigma) - math.exp(e + norm.logcdf(-0.5 / sigma - e * sigma)) - delta

    return brentq(excess, 0, 600)


# Auxo's paper pairs delta 1e-6 and epsilon 2, 4, 8 with sigma 1.0, 0.77, 0.6. An accountant says otherwise:
# epsilon of 1, 10 and 100 updates, for replacement, and against an update of nothing but noise.
AUXO = [
    (1.0, (10.997, 49.319, 294.172), (4.887, 19.424, 96.717)),
    (0.77, (15.154, 71.988, 459.873), (6.598, 27.293, 145.213)),
    (0.6, (20.781, 104.837, 713.068), (8.841, 38.231, 217.233)),
]


@pytest.mark.parametrize(("sigma", "replaced", "zeroed"), AUXO)
def test_epsilon_of_auxos_noise(sigma, replaced, zeroed):
    for count, two, one in zip((1, 10, 100), replaced, zeroed, strict=True):
        assert accountant.epsilon([(sigma, count)], 1e-6) == pytest.approx(two, abs=1e-3)
        assert accountant.epsilon([(sigma, count)], 1e-6, distance=1.0) == pytest.approx(one, abs=1e-3)
    assert accountant.epsilon([(sigma, 1)], 1e-6) == pytest.approx(exact(sigma / 2, 1e-6), abs=1e-6)


def test_epsilon_is_the_accountants():
    import dp_accounting as dp

    event = dp.GaussianDpEvent(4.0)
    tight = dp.pld.PLDAccountant().compose(event, 3).get_epsilon(1e-5)
    loose = dp.rdp.RdpAccountant().compose(event, 3).get_epsilon(1e-5)
    found = accountant.epsilon([(8.0, 3)], 1e-5)
    assert found == pytest.approx(tight, abs=1e-3)
    assert found < loose
    mixed = accountant.epsilon([(8.0, 2), (8.0, 1)], 1e-5)
    assert mixed == pytest.approx(found)
    assert accountant.epsilon([], 1e-5) == 0.0
    assert accountant.epsilon([(8.0, 3), (2.0, 1)], 1e-5) > found


TINY = dict(
    data={"source": "synthetic", "rows": 300, "clients": 6, "partition": "iid"},
    train={"privacy": {"clip": 0.2, "sigma": 2.0}},
    stop={"rounds": 3},
    algorithms={"fedavg": {"clients": 3}},
)


def test_a_run_reports_its_privacy(tmp_path):
    experiment = Experiment(**TINY)
    done = run(experiment, tmp_path / "run")
    told = done.summary["privacy"]
    most = told["updates"]
    assert 2 <= most <= 3  # 9 updates of 6 devices
    assert told["epsilon"] == pytest.approx(accountant.epsilon([(2.0, most)], 1e-6))
    assert (told["delta"], told["sigma"]) == (1e-6, 2.0)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"] == told
    with tables.console.capture() as screen:
        tables.console.print(tables.show_run(done))
    assert f"epsilon {told['epsilon']:.3g} at delta 1e-06: {most} updates" in screen.get()
    assert (
        Experiment.from_file(tmp_path / "run" / "experiment.toml").train.privacy
        == experiment.resolve().train.privacy
    )
    open_ = run(experiment.with_values(train={}))
    assert "privacy" not in open_.summary


def test_without_the_extra_the_error_names_it(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "dp_accounting" else found(n, *a)
    )
    monkeypatch.delitem(sys.modules, "dp_accounting", raising=False)
    with pytest.raises(ConfigError, match=r"train\.privacy: .*pip install 'potluck\[privacy\]'"):
        run(Experiment(**TINY))
    record = {"metric": "private_updates", "value": {"sigma": 1.0, "delta": 1e-6, "updates": 2}}
    told = accountant.summarise_privacy([record])
    assert told["epsilon"] is None
    assert "potluck[privacy]" in tables._tell_privacy(told)
