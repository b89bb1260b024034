"""Edges: rounds while the cloud is silent, mixing, other rules inside of them, and what is served."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from edges_by_hand import Hand, halved
from federations import (
    LOCAL,
    LOOP,
    SIZES,
    STACKED,
    chained,
    finished,
    lines,
    simulate,
    small,
    values,
    weights,
)
from support import SPEC, Desk, Line, close, local, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.algorithm import fededge
from potluck.algorithms.fededge.device import Anchored
from potluck.algorithms.fedprox import fedprox
from potluck.algorithms.fedpvr.algorithm import fedpvr
from potluck.algorithms.fedpvr.device.own_part import OwnPart
from potluck.algorithms.ftfa import ftfa
from potluck.algorithms.hierfl import hierfl
from potluck.algorithms.hybridfl import hybridfl
from potluck.algorithms.maverick.algorithm import maverick
from potluck.algorithms.maverick.device import Contrast
from potluck.algorithms.maverick.negatives import Learning
from potluck.algorithms.moon.algorithm import moon
from potluck.algorithms.moon.device import Moon
from potluck.algorithms.oort.selection import Oort
from potluck.core.errors import ConfigError, StalledError
from potluck.core.messages import Cancel, Lost
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.execute.reference import Item, train
from potluck.fleet import Intervals
from potluck.jobs import SGD, CrossEntropy, Kept, Prox, Remember, Train
from potluck.rules import edges
from potluck.rules.edges import OwnModels
from potluck.rules.guard import guard
from potluck.rules.robust import Clip

pytestmark = pytest.mark.slow

WHOLE = partial(hybridfl, portion=1.0)  # asks all of an edge's, as the others do
ALL = {"fededge": fededge, "hierfl": hierfl, "hybridfl": WHOLE, "maverick": maverick}
PLAIN = replace(LOCAL, optim=SGD(0.1))

# ---------------------------------------------------------------------------------------------- by the clock


def test_the_first_answer_follows_one_round_and_the_next_round_follows_at_once():
    edge = Hand(halved())
    answers, sent, _ = edge.told(1.0, 0.0, 1)
    assert (answers, len(sent)) == ([], 2)
    assert close(sent[0].send["params"], numbers(1.0))
    assert edge.trained(sent[:1], 2.0) == ([], [], {})
    (told,), sent, said = edge.trained(sent[1:], 2.0)
    assert close(told.body["delta"], numbers(2.0))  # there is nothing to mix yet
    assert told.weight == 1.0
    assert len(sent) == 2
    assert close(sent[0].send["params"], numbers(3.0))
    assert said == {"local_rounds": 1}


def test_rounds_go_on_until_the_cloud_speaks_and_then_end_before_mixing():
    edge = Hand(halved())
    _, sent, _ = edge.told(0.0, 0.0, 1)
    _, sent, _ = edge.trained(sent, 1.0)
    for _ in range(3):  # the cloud is silent
        answers, sent, said = edge.trained(sent, 1.0)
        assert (answers, len(sent), said) == ([], 2, {})
    assert edge.told(0.0, 4.0, 2) == ([], [], {})  # in mid-round
    assert close(edge.params, numbers(4.0))
    assert edge.trained(sent[:1], 1.0) == ([], [], {})
    (told,), sent, said = edge.trained(sent[1:], 1.0)
    # Half of (5, 0) and half of (0, 4); told as the way there from the global model.
    assert close(told.body["delta"], numbers(2.5, -2.0))
    assert close(sent[0].send["params"], numbers(2.5, 2.0))
    assert said["local_rounds"] == 4
    assert said["mixed"] == pytest.approx(41**0.5)  # the distance of (5, 0) and (0, 4)


def test_upload_before_mixing():
    edge = Hand(halved(upload_before_mix=True))
    _, sent, _ = edge.told(0.0, 0.0, 1)
    _, sent, _ = edge.trained(sent, 2.0)
    edge.told(0.0, 4.0, 2)
    (told,), sent, _ = edge.trained(sent, 0.0)
    assert close(told.body["delta"], numbers(2.0, -4.0))  # its own (2, 0)
    assert close(sent[0].send["params"], numbers(1.0, 2.0))  # but it goes on with the mixed one


def test_devices_are_shown_the_global_model_that_was_mixed_in_last():
    edge = Hand(halved(learns=Learning(mu_p=1.0)))
    _, sent, _ = edge.told(1.0, 0.0, 1)
    assert close(sent[0].send["global"], numbers(1.0))
    _, sent, _ = edge.trained(sent, 2.0)
    assert close(sent[0].send["global"], numbers(1.0))
    edge.told(0.0, 4.0, 2)
    _, sent, _ = edge.trained(sent, 0.0)
    assert close(sent[0].send["global"], numbers(0.0, 4.0))
    assert sent[0].send is sent[1].send
    assert "global" not in Hand(halved()).told(1.0, 0.0, 1)[1][0].send


def test_a_lost_device_holds_nobody_up():
    edge = Hand(halved())
    _, sent, _ = edge.told(0.0, 0.0, 1)
    edge.ctx.busy.clear()
    edge.hear(Lost(sent[0], "gone"))
    (told,), sent, _ = edge.trained(sent[1:], 3.0)
    assert close(told.body["delta"], numbers(3.0))
    edge.told(1.0, 0.0, 2)
    for task in sent:
        edge.ctx.busy.discard(task.to)
        answers, again, _ = edge.hear(Lost(task, "gone"))
    assert close(answers[0].body["delta"], numbers(1.0))  # half of 3 and half of 1, from 1
    assert len(again) == 2


def test_an_edge_whose_devices_left_answers_for_the_rounds_it_held():
    edge = Hand(halved())
    _, sent, _ = edge.told(0.0, 0.0, 1)
    _, sent, _ = edge.trained(sent, 2.0)
    edge.ctx.children = range(0)
    assert edge.trained(sent, 2.0)[1] == []  # nobody is there
    (told,), sent, said = edge.told(0.0, 0.0, 2)
    assert close(told.body["delta"], numbers(2.0))
    assert (sent, said["local_rounds"]) == ([], 1)
    # Without a round since then there is nothing to tell: it waits for somebody.
    answers, sent, _ = edge.told(1.0, 0.0, 3)
    assert (answers, sent) == ([], [])
    edge.ctx.children = range(2)
    answers, sent, said = edge.hear(Cancel("nothing"))  # a call to look again
    assert (answers, len(sent)) == ([], 2)
    (told,), _, said = edge.trained(sent, 0.0)
    assert close(told.body["delta"], numbers(0.5))  # half of 2 and half of 1, from 1
    assert said["local_rounds"] == 1


def test_a_task_that_is_called_off_is_mixed_in_all_the_same():
    edge = Hand(halved(rounds=2))
    _, sent, _ = edge.told(0.0, 0.0, 1)
    _, sent, _ = edge.trained(sent, 2.0)
    edge.hear(Cancel((None, 1, 0)))
    answers, sent, said = edge.trained(sent, 2.0)
    assert (answers, said) == ([], {"local_rounds": 2})
    edge.told(0.0, 0.0, 2)
    _, sent, _ = edge.trained(sent, 0.0)
    (told,), _, _ = edge.trained(sent, 0.0)
    assert close(told.body["delta"], numbers(2.0))  # half of 4


def slowed(federation, devices, times):
    federation.fleet.true.compute[devices] *= times
    return federation


def test_faster_edges_hold_more_rounds_and_hold_nobody_up():
    even = dict(compute_spread=1.0, link_spread=1.0, latency=(0.05, 0.05), compute=1e5)
    federation = slowed(small([10] * 9, edges=3, **even), slice(0, 3), 6.0)
    sim = finished(federation, fededge(LOCAL), rounds=6)
    slow, *fast = (values(sim, "local_rounds", group=node) for node in (10, 11, 12))
    assert set(slow) == {1}
    for counts in fast:
        assert counts[0] == 1
        assert all(4 <= e <= 7 for e in counts[1:])  # a round of the slow edge takes about six of theirs
    # The slow edge always has the cloud's model before its round ends: it trains without a break.
    ends = [r["time"] for r in sim.records if r["metric"] == "local_rounds" and r["group"] == 10]
    assert np.diff(ends) == pytest.approx(np.full(len(ends) - 1, ends[1] - ends[0]))
    assert len(ends) >= 6


def test_an_edge_without_anybody_online_is_waited_for():
    spans = [[(0.0, np.inf)]] * 5 + [[(30.0, np.inf)]] * 5
    sim = finished(small(edges=2, availability=Intervals.of(spans)), fededge(LOCAL), rounds=2)
    assert sim.now > 30
    first, second = (values(sim, "local_rounds", group=node) for node in (11, 12))
    assert first[0] == second[0] == 1
    assert first[1] > 10  # it went on meanwhile
    assert sim.accounts.took_part.all()


def test_a_run_ends_when_nobody_comes_to_an_edge(monkeypatch):
    spans = [[(0.0, np.inf)]] * 5 + [[(0.0, 3.0)]] * 5
    federation = small(edges=2, availability=Intervals.of(spans), compute=1e5)
    monkeypatch.setattr(edges, "PATIENCE", 30)
    sim = simulate(federation, fededge(LOCAL), rounds=50)
    with pytest.raises(StalledError, match="edge 1"):
        sim.run()
    assert sim.points[11].own.state.model.since == 30


# ---------------------------------------------------------------------------------------------- fixed numbers


def test_a_fixed_number_of_rounds_and_not_one_more():
    edge = Hand(halved(rounds=3))
    _, sent, _ = edge.told(0.0, 0.0, 1)
    for _ in range(2):
        answers, sent, said = edge.trained(sent, 1.0)
        assert (answers, len(sent), said) == ([], 2, {})
    (told,), sent, said = edge.trained(sent, 1.0)
    assert close(told.body["delta"], numbers(3.0))
    assert said == {"local_rounds": 3}
    for _ in range(2):
        _, sent, _ = edge.trained(sent, 1.0)
    assert edge.trained(sent, 1.0) == ([], [], {})  # three more: it waits for the cloud
    (told,), sent, said = edge.told(2.0, 0.0, 2)
    assert close(told.body["delta"], numbers(2.0))  # half of 6 and half of 2, from 2
    assert (len(sent), said["local_rounds"]) == (2, 3)
    edge.told(0.0, 0.0, 3)  # too early: it still has its three to hold
    answers, sent, _ = edge.trained(sent, 0.0)
    assert (answers, len(sent)) == ([], 2)
    answers, sent, _ = edge.trained(sent, 0.0)
    assert (answers, len(sent)) == ([], 2)
    (told,), _, said = edge.trained(sent, 0.0)
    assert close(told.body["delta"], numbers(2.0))
    assert said["local_rounds"] == 3


@pytest.mark.parametrize("make", [fededge, maverick])
def test_each_edge_has_its_own_number(make):
    sim = finished(small(edges=3), make(LOCAL, local_rounds=(4, 1, 2)), rounds=3)
    for node, held in zip((11, 12, 13), (4, 1, 2), strict=True):
        assert set(values(sim, "local_rounds", group=node)) == {held}
        assert len(values(sim, "local_rounds", group=node)) >= 3


@pytest.mark.parametrize("held", [(2,), (2, 2, 2)])
def test_a_list_names_every_edge(held):
    with pytest.raises(ConfigError, match=r"local_rounds = .*edges"):
        simulate(small(edges=2), fededge(LOCAL, local_rounds=held)).start()


def test_the_global_model_is_damped_by_mixing():
    """One edge, one local round: W_G(t + 1) = (W_G(t) + W_I) / 2, and all of W_I without mixing first."""
    federation = small([6, 8], edges=1)
    paper = partial(fededge, LOCAL, local_rounds=1, robust=None, mix="half")
    first = finished(federation, paper(), rounds=1)
    again = finished(federation, paper(upload_before_mix=True), rounds=1)
    assert torch.equal(weights(first), weights(again))  # both tell the outcome of the first round
    mixed, bare = (finished(federation, paper(upload_before_mix=early), rounds=2) for early in (False, True))
    torch.testing.assert_close(weights(mixed), (weights(first) + weights(bare)) / 2, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------ resume, bytes


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize(
    "settings",
    [
        dict(local_rounds=(2, 1), mix="half", upload_before_mix=True),
        dict(local_rounds=(2, 1)),
        dict(inner=moon(LOCAL)),
        dict(inner=fedpvr(LOCAL)),
    ],
    ids=["published", "fixed", "moon", "fedpvr"],
)
def test_resumed_at_every_event_equals_straight(settings, plan):
    spans = [[(0.0, np.inf)] if i % 3 else [(t, t + 1.5) for t in np.arange(0, 90, 3.0)] for i in range(10)]
    federation = small(edges=2, availability=Intervals.of(spans), compute=4e5)
    more = dict(stop=StopAt(rounds=3, seconds=60), plan=plan, often=EvaluateAt(rounds=1))
    straight = finished(federation, fededge(LOCAL, **settings), **more)
    assert straight.accounts.lost.get("gone", 0) > 0
    again, events = chained(federation, fededge(LOCAL, **settings), **more)
    assert events > 20
    assert lines(again) == lines(straight)


def test_bytes_of_each_tier():
    federation = small(edges=2)
    sim = finished(federation, fededge(LOCAL, local_rounds=2), rounds=3)
    one = 8 * sum(p.numel() for p in sim.find_models()["global"][1].values())
    answers = (
        3 * 2
    )  # of edges; devices: two rounds for each answer, and what came of those that were cut short
    up, down = sim.accounts.up, sim.accounts.down
    assert (up["edge"], down["edge"]) == (answers * one, answers * one)
    assert 2 * answers * 5 * one <= up["device"] <= down["device"] < (2 * answers + 4) * 5 * one
    more = finished(federation, fededge(LOCAL, local_rounds=2, inner=fedprox(LOCAL)), rounds=3)
    assert more.accounts.up["edge"] == answers * one
    assert more.accounts.down["device"] > 1.8 * down["device"]  # the global model goes along
    near = finished(federation, fededge(LOCAL, local_rounds=2, inner=fedprox(LOCAL), anchor="edge"), rounds=3)
    assert near.accounts.down["device"] < 1.2 * down["device"]


# -------------------------------------------------------------------------------------- plain hierarchies


def test_one_edge_round_is_the_average_of_all():
    federation, full = small(edges=2), replace(PLAIN, batch=max(SIZES))  # one step: no order of rows matters
    flat = finished(federation, FedAvg(99, full), rounds=3)
    for make in (hierfl, WHOLE):
        sim = finished(federation, make(full), rounds=3)
        torch.testing.assert_close(weights(sim), weights(flat), rtol=0, atol=1e-12)
        assert sim.accounts.tasks == 3 * len(SIZES)


def test_edge_rounds_and_devices_of_an_edge():
    sim = finished(small(edges=2), hierfl(LOCAL, edge_rounds=3, clients=2), rounds=2)
    assert sim.accounts.tasks == 2 * 3 * 2 * 2
    with pytest.raises(ConfigError, match="edge_rounds = 0"):
        hierfl(LOCAL, edge_rounds=0)


# ---------------------------------------------------------------------------------------- other rules inside

INSIDE = {
    "fedavg": FedAvg(5, LOCAL),
    "fedprox": fedprox(LOCAL, mu=1.0),
    "moon": moon(LOCAL, mu=5.0),
    "fedpvr": fedpvr(LOCAL),
    "local_head": fedpvr(LOCAL, local_head=True),
    "ftfa": ftfa(LOCAL),
}


@pytest.mark.parametrize("plan", [LOOP, STACKED], ids=["loop", "stacked"])
@pytest.mark.parametrize("name", INSIDE)
def test_rules_run_inside_and_serve_the_same_views(name, plan):
    sim = finished(small(edges=2), fededge(LOCAL, INSIDE[name], 2), plan=plan, rounds=3)
    assert sim.round == 3
    assert set(values(sim, "local_rounds")) == {2}
    for node in range(10):
        views = list(sim.serve(node))
        assert views == ["personal", "edge", *(["tuned"] if name == "ftfa" else []), "global"]
        job, memory = sim.serve(node)["personal"].job, sim.memories.get(node, None)
        used, _ = job.begin(sim.federation.models[job.model], sim.serve(node)["personal"].send, memory, None)
        assert close(used, memory["personal"])
        assert used.keys() == sim.serve(node)["edge"].send["params"].keys()
    if name != "fedavg":
        bare = finished(small(edges=2), fededge(LOCAL, INSIDE["fedavg"], 2), plan=plan, rounds=3)
        assert torch.allclose(weights(sim), weights(bare), rtol=0, atol=1e-6) == (name == "ftfa")


def test_devices_of_a_round_can_be_chosen():
    inner = fedprox(LOCAL, select=Oort())
    sim = finished(small(edges=2), fededge(LOCAL, inner, 1, clients=2), rounds=3)
    assert sim.accounts.tasks >= 3 * 2 * 2
    everybody = finished(small(edges=2), fededge(LOCAL, inner, 1), rounds=1)
    assert everybody.accounts.took_part.all()


@pytest.mark.parametrize("name", ["scaffold", "fedasync", "auxo", "hierfl"])
def test_rules_that_cannot_be_inside_are_refused(name):
    with pytest.raises(ConfigError, match="inner"):
        fededge(PLAIN, algorithms.make(name, PLAIN))


def test_cloud_and_edges_have_one_model():
    other = FedAvg(local=replace(LOCAL, model=SPEC))
    with pytest.raises(ConfigError, match=r"inner\.local\.model"):
        fededge(LOCAL, other)


@pytest.mark.parametrize("name", ALL)
def test_an_experiment_may_judge_on_top(name):
    sim = finished(small(edges=2), guard(ALL[name](LOCAL), Clip(1e-3)), rounds=2)
    assert sim.round == 2
    assert max(told["changed"] for told in values(sim, "guarded")) == 5  # all of an edge's


def test_a_file_can_say_it_all():
    told = {
        "inner": {"kind": "moon", "mu": 0.5},
        "local_rounds": [2, 1],
        "robust": {"kind": "AdaptiveKrum", "mode": "gap"},
    }
    made = algorithms.make("fededge", LOCAL, **told)
    edge = made.at("edge").inner
    assert (edge.rounds, edge.inner.robust.mode) == ((2, 1), "gap")
    job = edge.inner.inner.inner.local
    assert edge.learns.take(job).objective == Anchored(Moon(0.5))
    assert algorithms.complete("fededge", **told)["local_rounds"] == [2, 1]
    assert "local_rounds" not in algorithms.complete("fededge")
    with pytest.raises(ConfigError, match="anchor"):
        algorithms.make("fededge", LOCAL, anchor="cloud")


# ---------------------------------------------------------------------------------------------- device side


def test_anchored_draws_to_the_global_model_and_begins_with_the_edge():
    sent = {"params": numbers(1.0, 2.0), "global": numbers(5.0, 6.0)}
    assert close(Prox().hold(sent, None, None), numbers(1.0, 2.0))
    assert close(Anchored(Prox()).hold(sent, None, None), numbers(5.0, 6.0))
    assert close(Anchored(Prox()).start(sent, None, None), numbers(1.0, 2.0))
    # At x = 0, w has no slope but the pull's: it moves by lr mu (w_G - w).
    job = Train(objective=Anchored(Prox(mu=1.0)), optim=SGD(0.5), batch=1)
    result = train(Item(job, local([0.0], [0], {**sent, "params": numbers(1.0), "global": numbers(5.0)})))
    assert float(result.body["delta"]["w"]) == pytest.approx(0.5 * (5 - 1))


def test_anchored_contrast_sees_the_global_model():
    class Angle(Line):
        def features(self, params, x, key=None):
            return torch.cat([x, params["w"] * x], dim=-1)

    sent = {"params": numbers(1.0), "global": numbers(3.0)}
    at = local([1.0], [1], sent)
    batch = type("B", (), {"x": at.x})()
    keep = {"personal": numbers(-2.0)}
    seen = Anchored(Moon()).look(None, Angle(), sent, keep, batch)
    expected = Moon().look(None, Angle(), {"params": numbers(3.0)}, keep, batch)
    assert close(seen, expected)
    assert close(Anchored(Moon()).blank(sent), {"personal": numbers(3.0)})  # of which nothing pulls away


def test_remember_keeps_the_whole_model_beside_what_the_objective_keeps():
    sent = {"params": numbers(1.0, 2.0)}
    job = Train(objective=Remember(OwnPart(("b",))), optim=SGD(0.5), batch=1)
    mine = {"personal": numbers(9.0, 9.0), "inner": {"personal": {"b": torch.tensor([7.0]).double()}}}
    result = train(Item(job, local([1.0], [1], sent, mine)))
    # Began with the edge's w and its own b: p(1) = 1 / (1 + e^-8), both slopes p - 1, times the rate.
    step = 0.5 / (1 + np.exp(8.0))
    assert close(result.keep["personal"], numbers(1.0 + step, 7.0 + step))
    assert float(result.keep["inner"]["personal"]["b"]) == pytest.approx(7.0 + step)
    assert result.body["delta"].keys() == {"w"}
    fresh = train(Item(Train(objective=Remember(), optim=SGD(0.5), batch=1), local([1.0], [1], sent)))
    trained = {name: p + fresh.body["delta"][name] for name, p in sent["params"].items()}
    assert close(fresh.keep["personal"], trained)
    assert fresh.keep["inner"] is None
    assert close(Kept().start(sent, fresh.keep, None), trained)


@pytest.mark.parametrize("objective", [Moon(), Contrast(), Anchored(Moon())])
def test_what_is_kept_anyway_is_not_kept_twice(objective):
    rule, ctx = OwnModels(FedAvg(1, Train(SPEC, objective))), Desk()
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert tasks(commands)[0].job.objective == objective
    plain = OwnModels(FedAvg(2, Train(SPEC)))
    _, commands = plain.plan(plain.start(ctx), None, ctx)
    one, two = tasks(commands)
    assert one.job is two.job  # so that they are trained as one
    assert one.job.objective == Remember(CrossEntropy())


@pytest.mark.parametrize("name", ALL)
def test_views_are_the_same_for_all(name):
    sim = simulate(small(edges=2), ALL[name](LOCAL))
    sim.start()
    assert list(sim.serve(3)) == ["personal", "edge", "global"]
    assert list(sim.serve(sim.root)) == ["global"]
    first = {r["view"] for r in sim.records if r["metric"] == "accuracy_mean"}
    assert first == {"personal", "edge", "global"}
