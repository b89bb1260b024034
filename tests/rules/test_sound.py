"""What a merge made is looked at: what isn't finite is undone, and ends the run if it goes on like that."""

from dataclasses import field, replace
from math import inf, nan
from typing import NamedTuple

import pytest
import torch
from federations import LOCAL, LOOP, chained, finished, lines, simulate, small, values, weights
from support import Desk, answer, notes, numbers, tasks

from potluck import algorithms, fleet
from potluck.algorithms.fedasync import fedasync
from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec
from potluck.core.codec import value
from potluck.core.errors import DivergedError, RunError
from potluck.core.messages import Lost
from potluck.engine.schedule import EvaluateAt
from potluck.rules import Rounds
from potluck.rules.server_optim import Adaptive, Average
from potluck.rules.sound import find_cause, is_sound

HUGE = 1.7e308


class Pair(NamedTuple):
    left: object
    right: object


@value(name="tests.Held", eq=False)
class Held:
    """A state with something in every kind of place."""

    params: dict
    more: object = None
    plain: dict = field(default_factory=dict)


def tensor(*numbers):
    return torch.tensor(numbers)


# ------------------------------------------------------------------------------------------------- looking


@pytest.mark.parametrize("worst", [nan, inf, -inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda t: Held({"w": t}),
        lambda t: Held({}, [tensor(1.0), {"deep": (t,)}]),
        lambda t: Held({}, Held({"w": t})),
        lambda t: Held({}, Pair(1, t)),
        lambda t: Held({}, torch.nn.Parameter(t)),
        lambda t: {"w": t},
        lambda t: Held({}, {3: Held({"w": t}), 4: Held({})}),
    ],
)
def test_a_new_number_that_is_none_is_seen_wherever_it_lies(place, worst):
    good, bad = place(tensor(1.0, 2.0)), place(tensor(1.0, worst))
    assert is_sound(good, Held({}))
    assert is_sound(good, place(tensor(3.0, 2.0)))
    assert not is_sound(bad, Held({}))
    assert not is_sound(bad, good)
    assert is_sound(bad, bad)  # nothing is new


def test_only_what_a_merge_spoils_counts():
    # A rule may have reasons for an infinite number: a least loss so far, say. It may come anew every time.
    before = Held({"w": tensor(1.0)}, {"least": tensor(inf)})
    assert is_sound(Held({"w": tensor(2.0)}, {"least": tensor(inf)}), before)
    assert is_sound(Held({"w": tensor(2.0)}, {"least": tensor(5.0)}), before)
    assert not is_sound(Held({"w": tensor(inf)}, {"least": tensor(inf)}), before)
    # Where entries have changed their places, they are compared by name.
    moved = {"new": tensor(1.0), "least": tensor(inf)}
    assert is_sound(Held({"w": tensor(2.0)}, moved), before)


def test_large_numbers_are_numbers():
    most = torch.finfo(torch.float32).max
    assert is_sound(Held({"w": tensor(most, most)}), Held({}))  # whose sum isn't
    assert is_sound(Held({"n": torch.tensor([2**62])}, True, {1: "text", 2: None}), Held({}))
    assert is_sound(Held({"none": torch.zeros(0)}), Held({}))


def test_the_likeliest_cause_comes_first():
    assert "enormous: lower lr" in find_cause({3: 1e30, 4: 0.1})
    assert "1e+30 from 3, 0.1 from 4" in find_cause({3: 1e30, 4: 0.1})
    assert "; lower server_lr; or lower lr" in find_cause({3: 0.5})


# ------------------------------------------------------------------------------------------------- undoing


def begin(rule, **desk):
    ctx, loop = Desk(**desk), Rounds(rule)
    return ctx, loop, *loop.init(ctx)


def hold_round(loop, s, out, ctx, *updates):
    """All tasks of a round are answered by these updates."""
    asked = tasks(out)
    for task, w in zip(asked, updates, strict=True):
        s, out = loop.receive(s, Lost(task, "gone") if w is None else answer(task, w), ctx)
    return s, out


def test_an_undone_merge_is_one_in_which_all_answers_were_bad():
    rule = FedAvg(clients=3, server=Average(100.0))
    ctx, loop, s, out = begin(rule)
    s, out = hold_round(loop, s, out, ctx, 1.0, 2.0, 3.0)
    assert float(s.model.params["w"]) == 200.0
    before, asked = s.model.params, tasks(out)
    s, out = hold_round(loop, s, out, ctx, HUGE, None, 2.0)
    assert s.model.params is before
    assert (s.model.round, s.undone) == (2, 1)
    lost = [c for c in out if isinstance(c, Lost)]
    assert [(x.what.id, x.why) for x in lost] == [(asked[0].id, "bad"), (asked[2].id, "bad")]
    to = [asked[0].to, asked[2].to]
    assert ("undone", {"answers": 2, "nodes": to, "largest": [HUGE, 2.0]}) in notes(out)
    assert len(tasks(out)) == 3  # the next round is open
    s, out = hold_round(loop, s, out, ctx, 1.0, 1.0, 1.0)
    assert float(s.model.params["w"]) == 300.0
    assert s.undone == 0


def test_after_three_in_a_row_a_run_ends_and_rounds_without_answers_dont_count():
    ctx, loop, s, out = begin(FedAvg(clients=2, server=Average(1e10)))
    s, out = hold_round(loop, s, out, ctx, HUGE, 1.0)
    s, out = hold_round(loop, s, out, ctx, None, None)
    s = codec.decode(codec.encode(s))  # the count is part of the state
    s, out = hold_round(loop, s, out, ctx, 1.0, HUGE)
    good = s.model.params
    said = r"^round 4 of the cloud: 3 merges in a row .* 1.7e\+308 from \d, 1 from \d; updates are enormous"
    with pytest.raises(DivergedError, match=said):
        hold_round(loop, s, out, ctx, HUGE, 1.0)
    assert s.model.params is good


def test_a_stream_drops_one_answer():
    ctx, loop, s, out = begin(fedasync(clients=3, alpha=1.0, damping="constant"))
    a, b, c = tasks(out)
    s, _ = loop.receive(s, answer(a, HUGE), ctx)  # it can be taken in: finite
    assert float(s.model.params["w"]) == HUGE
    kept = s.model.params
    further = replace(b, send={"params": numbers(HUGE)})
    s, out = loop.receive(s, answer(further, HUGE), ctx)
    assert s.model.params is kept
    assert [x.what.id for x in out if isinstance(x, Lost)] == [b.id]
    assert (s.model.round, s.model.version) == (2, 1)
    s, _ = loop.receive(s, answer(c, 0.5), ctx)
    assert float(s.model.params["w"]) == 0.5


@value(name="tests.Falling")
class Falling(FedAvg):
    """A rule that breaks whether anybody answers or not."""

    def merge(self, m, lane, got, ctx):
        return replace(m, params=numbers(nan)), []


def test_a_rule_that_needs_no_answers_to_break_ends_the_run_at_once():
    ctx, loop, s, out = begin(Falling(clients=2))
    with pytest.raises(DivergedError, match="round 1 of the cloud: a merge of no answers at all made NaN"):
        hold_round(loop, s, out, ctx, 1.0, 1.0)


def test_a_parents_model_that_cant_be_taken_up_ends_the_run():
    from potluck.core.messages import Task

    @value(name="tests.Mixing")
    class Mixing(FedAvg):
        def adopt(self, m, task, ctx):
            return replace(m, params=numbers(inf))

    ctx, loop, s, _ = begin(Mixing(clients=2), parent=200)
    with pytest.raises(DivergedError, match="round 1 of node 100: taking up the parent's model made NaN"):
        loop.receive(s, Task(100, FedAvg().local, {"params": numbers(1.0)}, id=(None, 1, 0)), ctx)


# --------------------------------------------------------------------------------------------------- runs


def crowd(nodes, start=0.0):
    where = small(compute=4e5)
    liars = fleet.place_attackers(where.fleet, 0, kind="malformed", what="huge", nodes=nodes, start=start)
    return replace(where, fleet=liars)


ADAM = FedAvg(4, LOCAL, server=Adaptive("adam"))  # squares of huge numbers are infinite


def test_a_run_lives_through_single_huge_updates_and_counts_them_as_bad():
    sim = finished(crowd([3]), ADAM, rounds=12)
    undone = values(sim, "undone")
    assert undone
    assert all(u["answers"] == 4 and u["nodes"][0] == 3 and u["largest"][0] > 1e308 for u in undone)
    bad = 4 * len(undone)
    assert sim.accounts.lost == {"bad": bad}
    assert len(values(sim, "bad_update")) == bad
    assert sim.accounts.tasks == 12 * 4 - bad
    assert sim.round == 12
    assert float(weights(sim).abs().max()) < 10


def test_a_resumed_run_undoes_the_same():
    settings = dict(rounds=8, plan=LOOP)
    straight = finished(crowd([3]), ADAM, **settings)
    resumed, _ = chained(crowd([3]), ADAM, **settings)
    assert values(straight, "undone")
    assert lines(resumed) == lines(straight)
    assert torch.equal(weights(resumed), weights(straight))


def test_a_run_of_huge_updates_alone_ends_with_its_last_good_model():
    sim = simulate(crowd([n for n in range(10) if n]), ADAM, rounds=9)
    with pytest.raises(DivergedError, match="round 3 of the cloud: 3 merges in a row"):
        sim.run()
    assert torch.isfinite(weights(sim)).all()
    assert len(values(sim, "undone")) == 2
    assert issubclass(DivergedError, RunError)


class Own:
    """An algorithm that isn't a rule: no loop looks at what it does, but evaluation does."""

    def __init__(self):
        self.inner = Rounds(FedAvg(4, LOCAL))

    def init(self, ctx):
        return self.inner.init(ctx)

    def receive(self, s, e, ctx):
        s, out = self.inner.receive(s, e, ctx)
        if s.model.round >= 2:
            s.model = replace(s.model, params={n: p * nan for n, p in s.model.params.items()})
        return s, out

    def serve(self, s, node, ctx):
        return self.inner.serve(s, node, ctx)

    def round(self, s):
        return self.inner.round(s)

    def waiting(self, s, ctx):
        return self.inner.waiting(s, ctx)


def test_no_run_ends_well_with_a_model_that_is_none():
    with pytest.raises(DivergedError, match="the model that is served as 'global' has numbers that are NaN"):
        finished(small(compute=4e5), Own(), rounds=4, often=EvaluateAt(rounds=100))


@pytest.mark.parametrize("rate", [1e30, 1e200])
def test_a_server_rate_beyond_single_precision_is_told_as_what_it_is(rate):
    from federations import pool

    where = small(compute=4e5, data=pool(dtype=torch.float32))
    with pytest.raises(DivergedError, match="lower server_lr; or lower lr"):
        finished(where, algorithms.make("fedavg", LOCAL, clients=4, server=Average(rate * 1e10)), rounds=9)
