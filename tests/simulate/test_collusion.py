"""Colluders' updates by hand, and that each depends on what honest devices send."""

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from federations import (
    LOCAL,
    LOOP,
    SIZES,
    STACKED,
    chained,
    dealt,
    finished,
    lines,
    pool,
    simulate,
    small,
    under_way,
    weights,
)

from potluck import algorithms, fleet
from potluck.core.job import Cost, Result
from potluck.core.messages import Reply, Task
from potluck.engine.checks import find_problem
from potluck.engine.schedule import EvaluateAt
from potluck.fleet import COLLUDING, Attack, OnOff
from potluck.jobs import SGD
from potluck.rules.robust import Krum
from potluck.simulate.collusion import craft, find_gamma, find_lambda, find_z
from potluck.simulate.devices import Devices

pytestmark = pytest.mark.slow

HEARS = [kind for kind in COLLUDING if kind != "backdoor"]  # whose own update is scaled, whatever others send
CREW = [0, 2, 7]
PLAIN = replace(LOCAL, optim=SGD(0.1))


def made(kind, honest, own, **how):
    """What colluders send, given updates as lists."""
    bodies = [
        [{"delta": {"w": torch.tensor(update, dtype=torch.float64)}} for update in side]
        for side in (honest, own)
    ]
    sent = craft(Attack(kind, **how), *bodies, seeds=range(1, len(own) + 1))
    assert [body["delta"]["w"].tolist() for side in bodies for body in side] == [*honest, *own]  # untouched
    return [body["delta"]["w"].tolist() for body in sent]


# ---------------------------------------------------------------------------------------------- by hand


def test_a_little_is_enough():
    # The paper's example: n = 50, m = 24 need s = 26 - 24 = 2 supporters; (26 - 2) / 26 = 0.923 is z = 1.43.
    assert find_z(50, 24) == pytest.approx(1.43, abs=0.005)
    assert find_z(20, 4) == pytest.approx(NormalDist().inv_cdf(9 / 16))  # s = 7: (16 - 7) / 16
    assert find_z(20, 2) == 0  # s = 9: half of 18
    assert find_z(20, 1) == 0  # s = 10: 9 of 19 would help
    assert find_z(10, 6) == find_z(10, 5 + 1) == pytest.approx(NormalDist().inv_cdf(3 / 4))  # s = 1 at least
    assert find_z(1, 1) == find_z(2, 1) == 0
    # Means 2 and 5, deviations 1 and 0.
    assert made("alie", [[1, 5], [3, 5]], [[9, 9]], scale=2.0) == [[0, 5]]
    # Five of ten: s = 1, (5 - 1) / 5 = 0.8 is 0.8416. Of 0, 0, 0, 0, 5: mean 1, deviation 2.
    five = made("alie", [[0], [0], [0], [0], [5]], [[7]] * 5)
    assert five == [[pytest.approx(1 - 2 * 0.8416, abs=1e-4)]] * 5
    # Knowing their own alone: mean 6, deviation 2.
    assert made("alie", [[1], [3]], [[4], [8]], scale=2.0, knows="own") == [[2], [2]]


def test_inner_products_turn():
    assert made("ipm", [[1, 5], [3, 5]], [[9, 9], [8, 8]]) == [[-1, -2.5]] * 2
    assert made("ipm", [[1, 5], [3, 5]], [[9, 9]], scale=2.0) == [[-4, -10]]
    assert made("ipm", [[1, 5], [3, 5]], [[9, 9], [7, 7]], knows="own") == [[-4, -4]] * 2


def test_updates_leave_the_mean_as_far_as_honest_ones_are_apart():
    # 0, 1, 5: mean 2. Squared distances 1, 16, 25; their sums 26, 17, 41.
    honest = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    one, root = -torch.ones(1, dtype=torch.float64), 7**0.5  # the deviation: (4 + 1 + 9) / 2 = 7
    assert find_gamma(honest, one, every=True) == pytest.approx(2, abs=2e-5)  # from 5: 3 + gamma <= 5
    # u = 2 - gamma: u^2 + (u - 1)^2 + (u - 5)^2 = 3 u^2 - 12 u + 26 <= 17 from u = 1 on.
    assert find_gamma(honest, one, every=False) == pytest.approx(1, abs=2e-5)
    assert find_gamma(honest, root * one, every=True) == pytest.approx(2 / root, abs=2e-5)
    for what in (None, "std", "unit", "sign"):
        sent = made("min_max", honest.tolist(), [[9.0]] * 2, what=what)
        assert sent == [[pytest.approx(0, abs=1e-4)]] * 2
        assert made("min_sum", honest.tolist(), [[9.0]], what=what) == [[pytest.approx(1, abs=1e-4)]]
    mine = made("min_max", [[7.0], [8.0]], honest.tolist(), knows="own")
    assert mine == [[pytest.approx(0, abs=1e-4)]] * 3


def test_distances_are_of_what_judges_compare():
    def send(control):
        honest = [
            {"control": torch.tensor([control * x]), "delta": torch.tensor([x])} for x in (0.0, 1.0, 5.0)
        ]
        (body,) = craft(Attack("min_max"), honest, [honest[0]], [1])
        return body["control"].item(), body["delta"].item()

    assert send(1.0) == (pytest.approx(0, abs=1e-4), pytest.approx(0, abs=1e-4))
    assert send(100.0) == (pytest.approx(0, abs=1e-2), pytest.approx(0, abs=1e-4))  # mean 200, gamma the same


def test_fang_draws_beyond_all_honest_ones():
    # Columns: honest, honest, own; where the mean of all goes; what is drawn from.
    # 1, 3, 2: up, above zero: half of the least to the least. -1, 3, 1: up: twice the least to the least.
    # -4, -2, -3 and -3, 1, -1: the same, down. Zeros stay. -1, 0, 4: up, by the colluder's own.
    honest = [[1, -1, -4, -3, 0, -1], [3, 3, -2, 1, 0, 0]]
    one, two = made("fang", honest, [[2, 1, -3, -1, 0, 4]] * 2)
    assert one != two
    for sent in (one, two):
        for number, (least, most) in zip(
            sent, [(0.5, 1), (-2, -1), (-2, -1), (1, 2), (0, 0), (-2, -1)], strict=True
        ):
            assert least <= number <= most
    many = torch.tensor(made("fang", [[1.0] * 20_000, [3.0] * 20_000], [[2.0] * 20_000])[0])
    assert float(many.min()) == pytest.approx(0.5, abs=1e-3)
    assert float(many.max()) == pytest.approx(1.0, abs=1e-3)


def test_fang_with_partial_knowledge_draws_3_to_4_deviations_against_the_direction():
    # Their own: mean 2, deviation 1.
    for (number,) in made("fang", [[50], [60]], [[1], [3]], knows="own"):
        assert -2 <= number <= -1
    # One colluder: root mean square sqrt((9 + 16) / 4) = 2.5. 3 goes to 3 - 7.5 ... 3 - 10, -4 the other way.
    ((up, down, still, rounding),) = made("fang", [[1] * 4, [2] * 4], [[3, -4, 0, 1e-12]], knows="own")
    assert -7.0 < up < -4.5
    assert 3.5 < down < 6.0
    assert (still, rounding) == (0.0, pytest.approx(1e-12))


def test_fang_finds_the_step_at_which_krum_errs():
    benign = torch.tensor([[-0.2], [0.2], [0.6], [1.0]], dtype=torch.float64)
    up = torch.ones(1, dtype=torch.float64)
    # Theorem 1: 1.0 (the longest) + 0.8 (two nearest of 0.2) / (6 - 2 x 2 - 1) = 1.8. Krum sums two squared
    # distances, of which one is 0 between both copies: (1.8 - 0.2)^2 = 2.56 and 0.49 are above the 0.32 of
    # 0.2; at 0.45 it is 0.0625, below the 0.125 of -0.2, to which the copies are nearest now.
    assert find_lambda(benign, up, 2) == (pytest.approx(0.45), True)
    first, other = made("fang_krum", benign.tolist(), [[0.4], [0.5]])
    assert first == [pytest.approx(-0.45)]
    assert 0 < abs(other[0] - first[0]) <= 0.01
    _, near = made("fang_krum", benign.tolist(), [[0.4], [0.5]], scale=1e-6)
    assert 0 < abs(near[0] - first[0]) <= 1e-6
    # Partial knowledge, four colluders: 1.0 + 0.8 / 2 = 1.4. One copy is picked from 0.175 on: its
    # 0.025^2 + 0.375^2 = 0.141 is below the 0.025^2 + 0.4^2 = 0.161 of -0.2 (at 0.35 it is 0.325 to 0.183).
    sent = made("fang_krum", [[8.0], [9.0]], benign.tolist(), knows="own")
    assert sent[0] == [pytest.approx(-0.175)]
    # One beside honest ones that are all on one side is never picked, and the search ends.
    length, picked = find_lambda(benign + 1.2, up, 1)
    assert (length <= 1e-5, picked) == (True, False)


def test_krum_picks_what_was_crafted_against_it():
    draw = torch.Generator().manual_seed(3)
    honest = (0.3 + torch.randn(16, 30, generator=draw, dtype=torch.float64)).tolist()
    own = (0.3 + torch.randn(4, 30, generator=draw, dtype=torch.float64)).tolist()
    sent = made("fang_krum", honest, own)

    def pick(crew):
        task = Task(0, None, {})
        replies = [
            Reply(task, {"delta": torch.tensor(u, dtype=torch.float64)}, 1.0, {}, None)
            for u in [*crew, *honest]
        ]
        return Krum(attackers=4).judge(replies).kept[0].body["delta"].tolist()

    assert pick(own) in honest + own
    assert pick(sent) in sent
    mean = torch.tensor(honest + own).mean(0)
    assert (torch.tensor(sent[0]) * mean <= 0).all()  # against it, number by number


def test_a_backdoor_outweighs_everybody():
    # Three honest, two colluders: times 5 / 2.
    assert made("backdoor", [[1], [2], [3]], [[2], [-4]]) == [[5], [-10]]
    assert made("backdoor", [[1], [2], [3]], [[2], [-4]], scale=4.0) == [[8], [-16]]


def test_who_hears_of_one_update_alone():
    alone = {kind: made(kind, [], [[3.0, -4.0]])[0] for kind in COLLUDING}
    for kind in ("alie", "min_max", "min_sum", "backdoor"):
        assert alone[kind] == [3, -4]
    assert alone["ipm"] == [-1.5, 2]
    # Root mean square sqrt(12.5) = 3.54: 3 to 4 of it. Krum's bound: 5 / sqrt(2), against both directions.
    assert 3 - 4 * 3.54 <= alone["fang"][0] <= 3 - 3 * 3.53
    assert alone["fang_krum"] == [pytest.approx(-(12.5**0.5)), pytest.approx(12.5**0.5)]
    one = made("min_max", [[5.0, 5.0]], [[3.0, -4.0], [1.0, -4.0]])  # one honest update shows no deviation
    assert one == made("min_max", [], [[3.0, -4.0], [1.0, -4.0]])


@pytest.mark.parametrize("kind", COLLUDING)
def test_whole_numbers_and_forms_stay_true(kind):
    def body(x):
        return {
            "delta": [torch.full((3,), x), torch.ones(0)],
            "bits": torch.tensor([3, 4]),
            "control": torch.full((2,), 2 * x, dtype=torch.float64),
        }

    honest, own = [body(1.0), body(2.0), body(4.0)], [body(5.0), body(6.0)]
    for true, false in zip(own, craft(Attack(kind), honest, own, [1, 2]), strict=True):
        assert find_problem(Result(false), Cost(sends=true), trusted=False) is None
        assert false["bits"] is true["bits"]
        assert not torch.equal(false["delta"][0], true["delta"][0])
        assert not torch.equal(false["control"], true["control"])
    nothing = [{"counts": torch.tensor([1])}] * 2
    assert craft(Attack(kind), nothing, nothing, [1, 2]) == nothing


# ------------------------------------------------------------------------- on whose updates a lie depends


HONEST = [[1.0, -2.0, 3.0], [2.0, -1.0, 5.0], [4.0, -4.0, 1.0], [0.5, -1.5, 2.0]]
OWN = [[1.5, -2.5, 2.5], [2.5, -1.0, 2.0]]


@pytest.mark.parametrize("changed", range(4))
@pytest.mark.parametrize("kind", HEARS)
def test_one_honest_update_moves_what_colluders_send(kind, changed):
    other = [[3 * x for x in update] if i == changed else update for i, update in enumerate(HONEST)]
    before, after = (made(kind, honest, OWN) for honest in (HONEST, other))
    if kind != "fang":  # which goes by the outermost
        assert all(a != b for a, b in zip(before, after, strict=True))
    assert made(kind, HONEST, OWN, knows="own") == made(kind, other, OWN, knows="own")


def test_the_outermost_honest_updates_move_fang():
    # All of them together: the least of the first and third number, the largest of the second.
    for changed, number in ((3, 0), (1, 1), (2, 2)):
        other = [[0.9 * x for x in update] if i == changed else update for i, update in enumerate(HONEST)]
        before, after = (made("fang", honest, OWN)[0] for honest in (HONEST, other))
        assert after[number] == pytest.approx(0.9 * before[number])


def test_how_many_are_honest_moves_a_backdoor():
    assert made("backdoor", HONEST, OWN)[0] == [3 * x for x in OWN[0]]  # 6 / 2
    assert made("backdoor", HONEST[:2], OWN)[0] == [2 * x for x in OWN[0]]  # 4 / 2


def crowd(kind, *, nodes=CREW, data=None, edges=None, availability=None, **how):
    more = {} if availability is None else {"availability": availability}
    federation = small(SIZES, data=data, compute=4e5, edges=edges, **more)
    return replace(
        federation, fleet=fleet.place_attackers(federation.fleet, 3, kind=kind, nodes=nodes, **how)
    )


@pytest.fixture
def sent(monkeypatch):
    """What every device sends, last of all, and what it would have."""
    found, falsify = {}, Devices._falsify

    def watch(self, flight, item, result, attack):
        false = falsify(self, flight, item, result, attack)
        found[item.to] = (result if false is None else false).body["delta"], result.body["delta"]
        return false

    monkeypatch.setattr(Devices, "_falsify", watch)

    def run(federation):
        found.clear()
        finished(federation, algorithms.make("fedavg", PLAIN, clients=len(SIZES)), rounds=1, plan=LOOP)
        flat = {
            node: [torch.cat([t.reshape(-1) for t in tree.values()]) for tree in both]
            for node, both in found.items()
        }
        return {n: f for n, (f, _) in flat.items()}, {n: t for n, (_, t) in flat.items()}

    return run


def spoil(node):
    """The pool, with other labels of a device's train rows."""
    rows = torch.from_numpy(dealt(pool(), SIZES).rows(node, "train").copy())
    y = pool().y.clone()
    y[rows] = (y[rows] + 1) % 4
    return replace(pool(), y=y)


@pytest.mark.parametrize("kind", COLLUDING)
def test_in_a_run_one_honest_devices_rows_move_what_colluders_send(kind, sent):
    (false, true), (moved, changed) = sent(crowd(kind)), sent(crowd(kind, data=spoil(6)))
    assert sorted(false) == list(range(len(SIZES)))
    for node in range(len(SIZES)):
        assert torch.equal(true[node], changed[node]) == (node != 6)
        if node not in CREW:
            assert torch.equal(false[node], true[node])
        else:
            assert not torch.equal(false[node], true[node])
            assert torch.equal(false[node], moved[node]) == (kind == "backdoor")
    if kind == "backdoor":  # of which only the factor depends on others: n / m, however many are honest
        torch.testing.assert_close(false[2], true[2] * 10 / 3)
        fewer, own = sent(crowd(kind, nodes=[0, 2]))
        torch.testing.assert_close(fewer[2], own[2] * 5)
    else:
        private = [sent(crowd(kind, knows="own", data=data))[0] for data in (None, spoil(6))]
        assert all(torch.equal(private[0][node], private[1][node]) for node in CREW)


def test_in_a_run_colluders_send_what_the_formula_says(sent):
    false, true = sent(crowd("ipm"))
    mean = torch.stack([true[node] for node in range(len(SIZES)) if node not in CREW]).mean(0)
    for node in CREW:
        torch.testing.assert_close(false[node], -0.5 * mean)


# ------------------------------------------------------------------------------------------------- runs


def watched(sim):
    """A simulation that has run to its end; what colluders agree on leaves with its flights."""
    sim.start()
    crew, waited = sim.devices.crew.state, 0
    while sim.step():
        waiting = [fid for group in crew.groups.values() for fid in group]
        assert {*crew.lies, *waiting} <= {flight.id for flight in under_way(sim)}
        assert all(crew.groups.values())
        waited = max(waited, len(crew.lies))
    assert (crew.groups, crew.lies) == ({}, {})
    sim.close()
    return waited


@pytest.mark.parametrize("kind", COLLUDING)
def test_executors_and_a_run_that_is_resumed_at_every_event_agree(kind):
    rule, federation = algorithms.make("fedavg", PLAIN, clients=8), crowd(kind)
    straight = finished(federation, rule, plan=LOOP)
    resumed, events = chained(federation, rule, plan=LOOP)
    assert events == 3 * 8  # between a barrier's answers, too
    assert lines(resumed) == lines(straight)
    assert torch.equal(weights(resumed), weights(straight))
    stacked = finished(federation, rule, plan=STACKED)
    torch.testing.assert_close(weights(stacked), weights(straight), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", COLLUDING)
@pytest.mark.parametrize("name", ["fedasync", "fedbuff", "hierfl"])
def test_tasks_that_come_alone_and_edges(name, kind):
    federation = crowd(kind, edges=2 if name == "hierfl" else None)
    sim = simulate(federation, algorithms.make(name, PLAIN), rounds=4)
    assert watched(sim) <= len(CREW)
    assert torch.isfinite(weights(sim)).all()


@pytest.mark.parametrize(
    ("fate", "late"), [({"overcommit": 1.6}, None), ({}, OnOff(period=2.0, share=0.7, key=3))]
)
def test_who_is_cancelled_or_leaves_takes_no_part(fate, late):
    rule, federation = algorithms.make("fedavg", PLAIN, clients=6, **fate), crowd("alie", availability=late)
    sim = simulate(federation, rule, rounds=6)
    assert 0 < watched(sim) <= len(CREW)
    assert sim.accounts.lost["gone" if late else "late"] > 0
    resumed, _ = chained(federation, rule, rounds=6)
    assert torch.equal(weights(resumed), weights(sim))


@pytest.mark.parametrize("kind", HEARS)
def test_colluders_tell_the_truth_until_they_begin(kind):
    rule = algorithms.make("fedavg", PLAIN, clients=10)
    often = EvaluateAt(rounds=1)
    honest = finished(small(compute=4e5), rule, often=often)
    never = finished(crowd(kind, start=1e9), rule, often=often)
    assert torch.equal(weights(never), weights(honest))
    assert (never.devices.crew.state.groups, never.devices.crew.state.lies) == ({}, {})
    first = min(r["time"] for r in honest.records if r["round"] == 1)
    later = finished(crowd(kind, start=1.0001 * first), rule, often=often)
    assert not torch.equal(weights(later), weights(honest))
    assert later.now == honest.now


def test_without_colluders_there_is_no_crew():
    rule = algorithms.make("fedavg", PLAIN, clients=10)
    for federation in (small(compute=4e5), crowd("sign_flip")):
        assert simulate(federation, rule).devices.crew is None
