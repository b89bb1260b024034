from dataclasses import replace

import every
import numpy as np
import pytest
import test_contract
import torch
from campaign.malformed import outcome
from federations import (
    LOCAL,
    LOOP,
    SIZES,
    STACKED,
    WORKERS,
    chained,
    finished,
    lines,
    simulate,
    small,
    values,
    weights,
)
from interrupted import same
from refused import lost

from potluck import algorithms, fleet
from potluck.algorithms.auxo import device
from potluck.core.errors import ConfigError, DivergedError
from potluck.core.job import Cost, Result
from potluck.core.messages import Task
from potluck.engine.checks import find_problem
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.experiment.runs import run
from potluck.fleet import ATTACKS, FLAWS, MISREPORTS, Attack
from potluck.jobs import SGD
from potluck.simulate.attack import falsify, forge
from potluck.simulate.evaluate import summarise

pytestmark = pytest.mark.slow

PLAIN = replace(LOCAL, optim=SGD(0.1))


def crowd(kind="sign_flip", *, key=3, who=None, edges=None, sizes=SIZES, **how):
    federation = small(sizes, compute=4e5, edges=edges)
    return replace(
        federation,
        fleet=fleet.place_attackers(federation.fleet, key, kind=kind, **(who or {"share": 0.3}), **how),
    )


def told(kind, update, *, seed=1, **how):
    """What an attacker sends in place of an update, as a list."""
    honest = Result({"delta": {"w": update}}, 7.0, {"mine": 1}, {"loss": 0.5}, True)
    false = falsify(honest, honest.body, True, Attack(kind, **how), seed)
    assert (false.weight, false.metrics) == (7.0, {"loss": 0.5})
    assert not false.finite  # so that it is looked at
    return false.body["delta"]["w"].tolist()


# ---------------------------------------------------------------------------------------------------- lies


def test_signs_are_flipped_and_updates_scaled():
    update = torch.tensor([3.0, -4.0])
    assert told("sign_flip", update) == [-3.0, 4.0]
    assert told("sign_flip", update, scale=2.0) == [-6.0, 8.0]
    assert told("scaling", update, scale=5.0) == [15.0, -20.0]
    assert update.tolist() == [3.0, -4.0]  # the device's own


def test_noise_is_as_large_as_the_update_says():
    update = torch.full((20_000,), 2.0, dtype=torch.float64)  # root mean square 2
    off = torch.tensor(told("noise", update, scale=0.5)) - 2.0
    assert float(off.std()) == pytest.approx(1.0, rel=0.02)
    assert abs(float(off.mean())) < 0.03
    assert told("noise", update) == told("noise", update) != told("noise", update, seed=2)


def test_free_riders_send_nothing_of_what_they_trained():
    update = torch.full((20_000,), 2.0)
    assert set(told("free_ride", update)) == {0.0}
    noise = told("free_ride", update, scale=0.1)
    assert noise == told("free_ride", -5 * update, scale=0.1)
    assert float(torch.tensor(noise).std()) == pytest.approx(0.1, rel=0.02)
    honest = Result({"delta": update}, keep={"mine": update})
    assert falsify(honest, honest.body, True, Attack("free_ride"), 1).keep is None
    assert falsify(honest, honest.body, True, Attack("noise"), 1).keep is honest.keep


FORGED = "forge_affinity"  # of answers that say where a device belongs; all others are true


@pytest.mark.parametrize("kind", ["sign_flip", "scaling", "noise", "free_ride"])
def test_whole_numbers_forms_and_other_answers_stay_true(kind):
    body = {"delta": [torch.ones(3), torch.ones(0)], "bits": torch.tensor([3, 4]), "control": torch.ones(2)}
    honest = Result(body, finite=True)
    false = falsify(honest, body, True, Attack(kind), 1)
    assert find_problem(false, Cost(sends=body), trusted=True) is None
    assert false.body["bits"] is body["bits"]
    assert not torch.equal(false.body["delta"][0], body["delta"][0])
    assert not torch.equal(false.body["control"], body["control"])
    assert falsify(honest, body, False, Attack(kind), 1) is honest


def test_an_overflowing_lie_is_refused():
    body = {"delta": torch.full((3,), 3e38)}
    assert (
        find_problem(
            falsify(Result(body, finite=True), body, True, Attack("scaling"), 1),
            Cost(sends=body),
            trusted=True,
        )
        is not None
    )


# ------------------------------------------------------------------------------------------------- malformed

BODIES = {
    "update": {"delta": {"w": torch.ones(2, 3), "b": torch.ones((), dtype=torch.float64)}},
    "whole numbers": {"counts": torch.ones(4, dtype=torch.int64)},
    "list": [torch.ones(2), torch.zeros(0)],
    "one entry": {"delta": torch.ones(1)},
    "a number": {"changed": 0.5},
    "bytes": b"abc",
    "text": {"name": "a"},
    "none": {},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("what", [None, *FLAWS])
def test_every_flaw_of_every_body_is_found(what, body):
    honest = Result(body, finite=True)
    assert find_problem(honest, Cost(sends=body), trusted=True) is None
    for promised in (body, None):  # a job that promises no form is checked for numbers alone
        for seed in range(12):
            false = falsify(honest, promised, seed % 2 == 0, Attack("malformed", what=what), seed)
            assert find_problem(false, Cost(sends=promised), trusted=True) is not None


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("metrics", [{}, {"loss": 0.5, "rows": 3.0}], ids=["told nothing", "told losses"])
@pytest.mark.parametrize("what", [None, *MISREPORTS])
def test_every_misreport_is_found(what, metrics, body):
    honest, promised = (
        Result(body, 7.0, None, metrics, True),
        Cost(sends=body, weight=7.0, metrics=(*metrics,)),
    )
    assert find_problem(honest, promised, trusted=False) is None
    for seed in range(12):
        for result in (honest, replace(honest, weight=0.0)):
            false = falsify(result, body, seed % 2 == 0, Attack("misreport", what=what), seed)
            assert find_problem(false, promised, trusted=True) is not None


@pytest.mark.parametrize("weight", [0.0, 0, 6.5, 7, 7.0, np.float32(7.0), np.int64(7)])
def test_a_weight_may_be_any_number_up_to_the_largest_possible(weight):
    assert find_problem(Result({}, weight), Cost(sends={}, weight=7.0), trusted=False) is None


@pytest.mark.parametrize(
    "weight", [7.001, 8, 10**400, -0.5, float("inf"), float("nan"), 1j, "7", None, [7.0]]
)
def test_a_weight_beyond_the_largest_possible_is_refused(weight):
    for most in (7.0, float("inf")):
        assert find_problem(Result({}, weight), Cost(sends={}, weight=7.0), trusted=True) is not None
        if weight not in (7.001, 8):
            assert find_problem(Result({}, weight), Cost(sends={}, weight=most), trusted=True) is not None


def test_metrics_are_those_that_the_job_declares():
    def judge(metrics, weight=1.0):
        cost = Cost(sends={}, metrics=("loss", "rows"))
        return find_problem(Result({}, weight, metrics=metrics), cost, trusted=True)

    both = {"rows": 3, "loss": 0.5}
    assert judge(both) is None
    assert judge({"loss": 0.5}) == "without metrics rows"
    assert judge({"loss": 0.5}, weight=0.0) is None  # nothing to measure
    assert judge({}, weight=0.0) is None
    assert judge({**both, "more": 1.0}, weight=0.0) == "metric 'more': the job tells loss, rows"
    assert judge({"rows": -1e30, "loss": 1e30}) is None  # a square of it is still a number
    for worst in (float("nan"), float("-inf"), 1.1e30, 10**400, "0.5", None, torch.tensor(0.5), [0.5], 1j):
        assert judge({**both, "loss": worst}) == "metric loss is no number between -1e+30 and 1e+30"
    for table in (None, [("loss", 0.5)], "loss", 0.5):
        assert judge(table) is not None


def test_whole_numbers_lie_between_0_and_those_that_the_job_promises():
    def judge(count, counts):
        body = {"right": count, "counts": torch.tensor(counts), "sure": torch.tensor([True])}
        promised = {"right": 5, "counts": torch.tensor([5, 5]), "sure": torch.tensor([False])}
        return find_problem(Result(body), Cost(sends=promised), trusted=False)

    assert judge(5, [0, 5]) is None
    assert judge(np.int64(0), [5, 0]) is None
    for count, counts in ((6, [0, 0]), (-1, [0, 0]), (2.5, [0, 0]), (0, [0, 6]), (0, [-1, 5])):
        assert judge(count, counts) == "whole numbers below 0 or above what the job promised"
    for count in (10**400, float("nan"), np.float32("nan")):
        assert judge(count, [0, 0]) == "NaN or infinite numbers"
    for count in (1j, "5", None, torch.tensor(5)):
        assert judge(count, [0, 0]) is not None


def test_flaws_are_drawn_by_task():
    body = BODIES["update"]
    made = [str(falsify(Result(body), body, True, Attack("malformed"), seed).body) for seed in range(200)]
    assert len(set(made)) > 15  # of eleven flaws, in different places
    assert made == [str(falsify(Result(body), body, True, Attack("malformed"), s).body) for s in range(200)]


def test_a_huge_number_is_well_formed():
    body = BODIES["update"]
    for seed in range(12):
        false = falsify(Result(body), body, True, Attack("malformed", what="huge"), seed)
        assert find_problem(false, Cost(sends=body), trusted=True) is None
        assert max(float(t.abs().max()) for t in false.body["delta"].values()) > 1e38


@pytest.mark.parametrize("body", [torch.ones(2), [], "", b"", 0, 1.0, {"delta": None}, {"delta": {"w": "1"}}])
def test_a_body_may_be_anything_and_is_refused(body):
    assert find_problem(Result(body), Cost(sends=BODIES["update"]), trusted=False) is not None


@pytest.mark.parametrize("worst", [float("nan"), float("inf")])
def test_finite_numbers_are_promised_by_our_own_executors_alone(worst):
    body = {"delta": {"w": torch.tensor([1.0, worst])}}
    claimed = Result(body, finite=True)
    assert find_problem(claimed, Cost(sends=body), trusted=False) == "NaN or infinite numbers"
    assert (
        find_problem(claimed, Cost(sends=body), trusted=True) is None
    )  # they have looked: it isn't done twice
    assert find_problem(Result(body), Cost(sends=body), trusted=True) == "NaN or infinite numbers"
    with pytest.raises(TypeError):  # nobody can leave open whom he believes
        find_problem(claimed, Cost(sends=body))


def test_plain_values_have_a_form_too():
    # Whoever unpacks it counts on its length.
    assert find_problem(Result(b"ab"), Cost(sends=b"abc"), trusted=False) is not None
    assert find_problem(Result({"n": "three"}), Cost(sends={"n": 3}), trusted=False) is not None
    assert (
        find_problem(Result({"n": None}), Cost(sends={"n": ""}), trusted=False) is None
    )  # a text stands for any plain value
    assert find_problem(Result({"n": 3.5}), Cost(sends={"n": 4.0}), trusted=False) is None
    assert find_problem(Result({"n": np.int64(3)}), Cost(sends={"n": 3.0}), trusted=False) is None


@pytest.mark.parametrize("plan", ["loop", "stacked"])
@pytest.mark.parametrize("name", ["fedavg", "fedasync", "scaffold"])
def test_malformed_updates_leave_what_lost_ones_leave(name, plan):
    with lost():
        expected = outcome(name, plan, None, 200)
    assert sum(r["metric"] == "bad_update" for r in expected["records"]) == 200
    assert same(outcome(name, plan, None, 200), expected)


@pytest.mark.parametrize("what", FLAWS)
def test_updates_of_one_flaw_leave_what_lost_ones_leave(what):
    with lost():
        expected = outcome("scaffold", "loop", None, 50)
    assert same(outcome("scaffold", "loop", what, 50), expected)


def test_an_attackers_word_that_its_numbers_are_finite_counts_for_nothing(monkeypatch):
    with lost():
        expected = outcome("fedavg", "loop", "nan", 50)
    monkeypatch.setattr(
        "potluck.simulate.devices.falsify", lambda *given: replace(falsify(*given), finite=True)
    )
    assert same(outcome("fedavg", "loop", "nan", 50), expected)


def test_one_update_that_slips_through_would_be_seen(monkeypatch):
    with lost():
        expected = outcome("fedavg", "loop", None, 50)
    monkeypatch.setattr("potluck.engine.checks.finite", lambda tree: True)
    with pytest.raises(DivergedError):  # what slips through is merged, and that is looked at
        outcome("fedavg", "loop", "nan", 50)
    for room in ("simulate.devices", "engine.checks"):
        monkeypatch.setattr(
            f"potluck.{room}.find_problem", lambda result, cost, trusted: "bad" if cost.sends else None
        )
    with pytest.raises(AssertionError):  # nobody did
        outcome("fedavg", "loop", None, 50)
    monkeypatch.undo()
    assert not same(outcome("fedavg", "loop", None, 51), expected)


# ------------------------------------------------------------------------------------------------------- who


def test_who_attacks_goes_by_key():
    one, again, other = (crowd(key=key, sizes=(3,) * 20).fleet.attackers for key in (3, 3, 4))
    assert one.sum() == 6
    assert (one == again).all()
    assert (one != other).any()
    assert crowd(who={"share": 0.001}).fleet.attackers.sum() == 1  # one at least


def test_so_many_of_every_edge():
    found = crowd(who={"per_edge": 3}, edges=4, sizes=(3,) * 42).fleet  # 10 or 11 devices each
    assert [found.attackers[found.edge == e].sum() for e in range(4)] == [3] * 4
    places = {tuple(np.flatnonzero(found.attackers[found.edge == e])) for e in range(4)}
    assert len(places) > 1  # not the same places of every edge


def test_these_attack():
    assert np.flatnonzero(crowd(who={"nodes": [1, 7]}).fleet.attackers).tolist() == [1, 7]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "signflip", "share": 0.2}, r"attack\.kind = 'signflip'.*sign_flip"),
        ({"kind": "noise"}, "one of share, per_edge and nodes"),
        ({"kind": "noise", "share": 0.2, "nodes": [1]}, "one of share, per_edge and nodes"),
        ({"kind": "noise", "share": 1.0}, r"attack\.share = 1\.0"),
        ({"kind": "noise", "share": 0.99}, "leave somebody honest"),
        ({"kind": "noise", "nodes": []}, r"attack\.nodes = \[\]"),
        ({"kind": "noise", "nodes": [10]}, r"attack\.nodes = 10: devices are 0 to 9"),
        ({"kind": "noise", "per_edge": 3}, r"attack\.per_edge = 3: there are no edges"),
        ({"kind": "noise", "share": 0.2, "scale": 0.0}, r"attack\.scale = 0\.0"),
        ({"kind": "free_ride", "share": 0.2, "scale": -1.0}, r"attack\.scale = -1\.0"),
        ({"kind": "malformed", "share": 0.2, "scale": 1.0}, "has no scale"),
        ({"kind": "malformed", "share": 0.2, "what": "nann"}, r"attack\.what = 'nann'.*'nan'"),
        ({"kind": "noise", "share": 0.2, "what": "nan"}, r"attack\.what = 'nan'"),
        ({"kind": "noise", "share": 0.2, "start": -1.0}, r"attack\.start = -1\.0"),
        (
            {"kind": "fang", "share": 0.2, "scale": 2.0},
            r"attack\.scale = 2\.0: fang has no scale; leave it out",
        ),
        (
            {"kind": "alie", "share": 0.2, "scale": 0.0},
            r"attack\.scale = 0\.0: give a finite number, above 0",
        ),
        ({"kind": "alie", "share": 0.2, "knows": "al"}, r"attack\.knows = 'al': no such knowledge.*'all'"),
        ({"kind": "noise", "share": 0.2, "knows": "all"}, r"attack\.knows = 'all': noise asks.*leave it out"),
        (
            {"kind": "backdoor", "share": 0.2, "knows": "all"},
            r"attack\.knows = 'all': backdoor.*leave it out",
        ),
        ({"kind": "min_sum", "share": 0.2, "what": "st"}, r"attack\.what = 'st': no such direction.*'std'"),
        ({"kind": "alie", "share": 0.2, "what": "std"}, r"attack\.what = 'std': is of kind.*'min_sum'"),
        ({"kind": "forge_affinity", "share": 0.2, "what": "gathr"}, r"no such aim.*'gather'"),
        ({"kind": "forge_affinity", "share": 0.2, "scale": 0.0}, r"attack\.scale = 0\.0"),
        ({"kind": "fang", "share": 0.2, "target": 1}, r"attack\.target = 1: is of kind = 'backdoor'"),
        ({"kind": "fang", "share": 0.2, "patch": 2}, r"attack\.patch = 2: is of kind = 'backdoor'"),
        (
            {"kind": "fang", "share": 0.2, "poisoned": 0.5},
            r"attack\.poisoned = 0\.5: is of kind = 'backdoor'",
        ),
        ({"kind": "backdoor", "share": 0.2, "start": 5.0}, r"attack\.start = 5\.0.*leave it out"),
        ({"kind": "backdoor", "share": 0.2, "target": -1}, r"attack\.target = -1: give a class"),
        ({"kind": "backdoor", "share": 0.2, "target": 1.5}, r"attack\.target = 1\.5.*whole number"),
        ({"kind": "backdoor", "share": 0.2, "patch": 0}, r"attack\.patch = 0: give the pixels"),
        ({"kind": "backdoor", "share": 0.2, "poisoned": 0.0}, r"attack\.poisoned = 0\.0: give the share"),
    ],
)
def test_bad_settings_are_named(settings, said):
    with pytest.raises(ConfigError, match=said):
        fleet.place_attackers(small().fleet, 1, **settings)


def test_an_edge_with_too_few_devices_is_named():
    with pytest.raises(ConfigError, match=r"per_edge = 6: an edge has 5 devices only"):
        crowd(who={"per_edge": 6}, edges=2)


# ------------------------------------------------------------------------------------------------------ runs


@pytest.mark.parametrize("kind", ATTACKS)
def test_executors_and_resumed_runs_tell_the_same_lies(kind):
    rule, settings = algorithms.make("scaffold", PLAIN, clients=6), dict(stop=StopAt(rounds=3))
    if kind == FORGED:
        rule = algorithms.make("auxo", PLAIN, clients=6, cohorts=3, fewest=2, found=["0", "1", "2"])
    federation = crowd(kind)
    loop, workers, stacked = (
        finished(federation, rule, plan=plan, **settings) for plan in (LOOP, WORKERS, STACKED)
    )
    assert lines(loop) == lines(workers)
    assert torch.equal(weights(loop), weights(workers))
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
    for plan, straight in ((LOOP, loop), (STACKED, stacked)):
        resumed, _ = chained(federation, rule, plan=plan, **settings)
        assert lines(resumed) == lines(straight)
        assert torch.equal(weights(resumed), weights(straight))
    honest = finished(small(compute=4e5), rule, plan=LOOP, **settings)
    assert not torch.equal(weights(honest), weights(loop))
    # A lie takes no time; but who lies about where it belongs trains there, among others.
    assert honest.now == loop.now or kind == FORGED


def test_one_round_of_sign_flips_by_hand():
    # All take part once: the change is the mean of everybody's, by rows. Let A be what 2 and 6 add to it and
    # B what all others add: honest A + B, with 2 and 6 lying B - A, with 2 and 6 doubled 2A + B.
    rule, two = algorithms.make("fedavg", PLAIN, clients=10), {"nodes": [2, 6]}
    begun = simulate(small(compute=4e5), rule)
    begun.start()

    def change(federation):
        return weights(finished(federation, rule, rounds=1)) - weights(begun)

    honest, flipped = change(small(compute=4e5)), change(crowd(who=two))
    doubled = change(crowd("scaling", who=two, scale=2.0))
    a, b = (honest - flipped) / 2, (honest + flipped) / 2
    torch.testing.assert_close(doubled, 2 * a + b, rtol=0, atol=1e-12)
    rest = {"nodes": [n for n in range(10) if n not in (2, 6)]}
    torch.testing.assert_close(change(crowd(who=rest)), a - b, rtol=0, atol=1e-12)
    torch.testing.assert_close(change(crowd("free_ride", who=rest)), a, rtol=0, atol=1e-12)
    assert float(a.abs().max()) > 0.01
    begun.close()


def test_affinity_is_forged_where_it_is_asked_for():
    leaves = ["0", "1", "2"]
    true = device.pack_request(
        {"cohort": "1", "affinity": 0.2, "side": {2: 1}, "times": 3, "rewards": {"1": 0.2}}, leaves, True
    )
    sent = {"leaves": leaves, "epsilon": 0.0}
    asked = Task(4, device.CheckIn(every=True), sent)

    def lie(seed=1, body=true, **how):
        false = forge(asked, Result(body, finite=True), Attack(FORGED, **how), seed)
        assert (len(false.body), false.finite) == (len(body), False)
        return device.unpack_request(false.body, leaves)

    gathered = {"cohort": "0", "affinity": 1.0, "side": {}, "times": 3}
    assert lie(what="gather") == gathered | {"rewards": {"0": 1.0, "1": -1.0, "2": -1.0}}
    claims = [lie(seed, scale=2.5) for seed in range(30)]
    assert {claim["cohort"] for claim in claims} == set(leaves)
    own = next(claim for claim in claims if claim["cohort"] == "1")  # there, the side that it has
    assert own == {
        "cohort": "1",
        "affinity": 2.5,
        "side": {2: 1},
        "times": 3,
        "rewards": {"0": -2.5, "1": 2.5, "2": -2.5},
    }
    new = {"cohort": "2", "affinity": 0.0, "side": {}, "times": 0, "rewards": {}}
    assert lie(body=device.pack_request(new, leaves, True))["times"] == 1
    assert forge(Task(4, PLAIN, sent), Result(true), Attack(FORGED), 1) is None


def test_what_doesnt_ask_where_devices_belong_hears_no_forged_affinity():
    rule = algorithms.make("fedavg", LOCAL, clients=6)
    honest, forged = (finished(one, rule, rounds=2) for one in (small(compute=4e5), crowd(FORGED)))
    assert torch.equal(weights(honest), weights(forged))


def test_lies_begin_when_they_are_said_to():
    rule, settings = algorithms.make("fedavg", LOCAL, clients=10), dict(rounds=4, often=EvaluateAt(rounds=1))
    honest = finished(small(compute=4e5), rule, **settings)
    start = 1.0001 * min(r["time"] for r in honest.records if r["round"] == 1)
    late = finished(crowd(start=start), rule, **settings)
    never = finished(crowd(start=1e9), rule, **settings)
    assert torch.equal(weights(never), weights(honest))
    assert not torch.equal(weights(late), weights(honest))
    losses = [values(sim, "global_loss") for sim in (honest, late)]
    assert losses[0][:2] == losses[1][:2]  # before training and after the first round
    assert losses[0][2] != losses[1][2]


def test_means_are_over_honest_devices_and_everybody_is_on_record():
    sim = finished(crowd(who={"nodes": [0, 4, 5]}), algorithms.make("ftfa", LOCAL, clients=5), rounds=2)
    assert values(sim, "attackers") == [[0, 4, 5]]
    assert [r["metric"] for r in sim.records].index("attackers") == 0
    end = [r for r in sim.records if r["round"] == 2]
    views = {r["view"] for r in end if r["metric"] == "accuracy_mean"}
    assert views
    for view in views:
        own = {r["node"]: r["value"] for r in end if r["metric"] == "accuracy" and r["view"] == view}
        assert sorted(own) == list(range(10))
        honest = summarise(np.array([own[n] for n in range(10) if n not in (0, 4, 5)]))
        for name, number in honest.items():
            assert values(sim, f"accuracy_{name}", view=view, round=2) == [number]
    first = next(r["value"] for r in end if r["metric"] == "accuracy_mean")
    assert sim.accuracy == pytest.approx(first)


def test_a_panel_of_attackers_is_refused():
    rule, one = algorithms.make("fedavg", LOCAL, clients=2), EvaluateAt(panel=1)
    (node,) = simulate(crowd(), rule, often=one).panel
    with pytest.raises(ConfigError, match=r"evaluate\.panel = 1"):
        finished(crowd(who={"nodes": [int(node)]}), rule, often=one)


def test_attackers_hurt():
    rule = algorithms.make("fedavg", replace(LOCAL, epochs=2), clients=10)
    good = finished(small(compute=4e5), rule, rounds=10, plan=STACKED).accuracy
    half = {"share": 0.5}
    for how in (
        {"kind": "sign_flip"},
        {"kind": "fang", "knows": "own"},
        {"kind": "fang_krum"},
        {"kind": "ipm"},
    ):
        assert finished(crowd(who=half, **how), rule, rounds=10, plan=STACKED).accuracy < good - 0.15


@pytest.mark.parametrize("name", algorithms.names())
@pytest.mark.parametrize("kind", ["sign_flip", "malformed", "min_max"])
def test_every_algorithm_lives_through_it(name, kind):
    where = every.crowd()
    where = replace(where, fleet=fleet.place_attackers(where.fleet, 3, kind=kind, share=0.3))
    sim = test_contract.run(name, where=where)
    assert sim.round >= 3
    assert torch.isfinite(weights(sim)).all()
    # Who sends nothing but what is refused never took part in anything.
    assert sim.accounts.took_part[where.fleet.attackers].any() == (kind != "malformed")


def test_an_experiment_says_who_attacks(tmp_path):
    tables = dict(
        data={"source": "synthetic", "rows": 300, "clients": 10},
        fleet={"edges": 2, "attack": {"kind": "sign_flip", "per_edge": 2, "scale": 2.0, "start": 1.0}},
        stop={"rounds": 1},
    )
    experiment = Experiment(**tables)
    done = run(experiment, tmp_path / "run")
    found = build_federation(experiment.resolve()).fleet
    assert found.attack == Attack("sign_flip", 2.0, 1.0)
    assert [found.attackers[found.edge == e].sum() for e in (0, 1)] == [2, 2]
    assert [r["value"] for r in done.lines if r["metric"] == "attackers"] == [
        np.flatnonzero(found.attackers).tolist()
    ]
    assert Experiment.from_file(tmp_path / "run" / "experiment.toml").fleet.attack == experiment.fleet.attack
    other = build_federation(experiment.with_values(seed=2).resolve()).fleet
    assert (other.attackers != found.attackers).any()


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        *[("kind", "flip"), ("share", 1.0), ("per_edge", 0), ("start", -1.0), ("scale", -1.0)],
        *[("knows", "some"), ("target", -1), ("patch", 0), ("poisoned", 0.0), ("poisoned", 1.5)],
    ],
)
def test_an_experiment_names_what_is_wrong(key, bad):
    with pytest.raises(ConfigError, match=rf"fleet\.attack\.{key}"):
        Experiment(fleet={"attack": {"kind": "noise", key: bad}})


def test_edges_that_the_data_make_have_their_attackers():
    tables = dict(
        data={"source": "synthetic", "rows": 600, "partition": "user_devices", "users": 8},
        fleet={"edges": 2, "attack": {"kind": "noise", "per_edge": 3}},
    )
    found = build_federation(Experiment(**tables).resolve()).fleet
    assert [found.attackers[found.edge == e].sum() for e in (0, 1)] == [3, 3]
