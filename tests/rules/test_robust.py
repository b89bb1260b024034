"""Robust aggregation: the rules by hand, what must always hold, and around whole algorithms."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, chained, finished, lines, pool, small, values, weights
from support import Desk, answer, close, notes, numbers

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.messages import Lost, Reply, Spent, Task
from potluck.core.rule import Got
from potluck.data import reserve_rows
from potluck.engine.judges import place_judge
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment import Experiment, run
from potluck.experiment.prepare import make_rule, prepare, resolve_run
from potluck.experiment.study import Arm, Scale, Study
from potluck.fleet import Attack
from potluck.jobs import SGD
from potluck.report.anomalies import find_culprits, measure_precision, measure_recall, read_anomalies
from potluck.rules import Rounds, as_algorithm
from potluck.rules.guard import RobustRule, RobustTiers, guard
from potluck.rules.robust import (
    AdaptiveKrum,
    Clip,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
    krum_scores,
    list_judges,
    squared_distances,
)
from potluck.rules.wrap import is_cohort, is_inner, unwrap

pytestmark = pytest.mark.slow

SENT = {"params": numbers()}
FIVE = [(0, 0), (1, 0), (0, 1), (1, 1), (10, 10)]
SEVEN = [(0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5), (10, 10), (-6, 0)]
SELECTORS = [
    Krum(share=0.3),
    MultiKrum(share=0.3),
    AdaptiveKrum(),
    AdaptiveKrum("gap"),
    AdaptiveKrum("fixed_f"),
]
ALL = [*SELECTORS, TrimmedMean(0.3), Median(), Clip()]


def told(points, send=SENT, **more):
    """Replies whose deltas are these points, of devices 0, 1, ..."""
    return [answer(Task(i, LOCAL, send), *map(float, p), **more) for i, p in enumerate(points)]


def who(replies):
    return [r.task.to for r in replies]


def point(reply):
    return [float(reply.body["delta"][name]) for name in ("w", "b")]


def cluster(seed, benign=7, flipped=3, size=2, lie=-1.0):
    """Updates that agree up to noise, and the opposite of such; who is which is mixed."""
    rng = np.random.default_rng(seed)
    good = np.array([3.0, 4.0])[:size] + 0.3 * rng.normal(size=(benign + flipped, size))
    bad = rng.permutation(benign + flipped)[:flipped]
    good[bad] *= lie
    return good, sorted(int(i) for i in bad)


# ------------------------------------------------------------------------------------------------- by hand


def test_krum_scores_by_hand():
    squares = squared_distances([numbers(*map(float, p)) for p in FIVE])
    assert squares[0].tolist() == [0, 1, 1, 2, 200]
    assert krum_scores(squares, 1).tolist() == [2, 2, 2, 2, 343]  # 81 + 81 + 81 + 100: 162 + 181
    squares = squared_distances([numbers(*map(float, p)) for p in SEVEN])
    expected = [2.5, 2.5, 2.5, 2.5, 1.5, 523.5, 115.5]
    assert krum_scores(squares, 2) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("robust", [MultiKrum(share=0.3), AdaptiveKrum(), AdaptiveKrum("fixed_f")])
def test_the_odd_and_how_far_they_are(robust):
    five, seven = robust.judge(told(FIVE)), robust.judge(told(SEVEN))
    assert (who(five.kept), who(five.odd)) == ([0, 1, 2, 3], [4])
    assert five.far == pytest.approx([13.44433], abs=1e-4)
    assert (who(seven.kept), who(seven.odd)) == ([0, 1, 2, 3, 4], [5, 6])
    assert seven.far == pytest.approx([13.44247, 6.53461], abs=1e-4)
    shares = np.array(seven.far) / sum(seven.far)
    assert shares == pytest.approx([0.67289, 0.32711], abs=1e-4)
    assert five.judged
    assert seven.judged


def test_gap_cuts_at_the_largest_jump_among_the_worst():
    assert who(AdaptiveKrum("gap").judge(told(SEVEN)).odd) == [5]  # 2.5 to 115.5 is less than to 523.5
    # 49 + 50 + 56.5 = 155.5 and 64 + 65 + 72.5 = 201.5: the jump from 2.5 is the larger one.
    assert who(AdaptiveKrum("gap").judge(told([*SEVEN[:5], (8, 0), (-8, 0)])).odd) == [5, 6]


def test_adaptive_krum_finds_nobody_where_nobody_stands_out():
    # Corners of a square and its middle: scores 2, 2, 2, 2, 1 (f = 1); none is above twice the median.
    verdict = AdaptiveKrum().judge(told([(0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5)]))
    assert (len(verdict.kept), verdict.odd, verdict.far, verdict.judged) == (5, [], [], True)
    alike = told([(1, 2)] * 6)
    for mode in ("adaptive", "gap"):
        assert AdaptiveKrum(mode).judge(alike).odd == []
    assert len(AdaptiveKrum("fixed_f").judge(alike).odd) == 1


def test_ties_go_by_order():
    assert who(MultiKrum().judge(told([(1, 2)] * 6)).odd) == [5]
    third = [(x / 3, y / 3) for x, y in FIVE[:4]] + [(7, 7)]  # equal up to rounding
    assert point(Krum().judge(told(third)).kept[3]) == [0, 0]


def test_krum_gives_everybody_the_best_update():
    verdict = Krum(share=0.3).judge(told(SEVEN))
    assert [point(r) for r in verdict.kept] == [[0.5, 0.5]] * 5
    assert who(verdict.odd) == [5, 6]
    assert [point(r) for r in verdict.odd] == [[10, 10], [-6, 0]]


def test_a_share_of_the_updates_may_be_odd():
    # Eight on a line, 0 to 7, and two far away: 0.2 x 10 = 2 may be odd, so 10 - 2 - 2 = 6 neighbours count.
    ten = told([(x, 0) for x in (0, 1, 2, 3, 4, 5, 6, 7, 100, 200)])
    squares = squared_distances([r.body["delta"] for r in ten])
    # 0: 1 + 4 + 9 + 16 + 25 + 36; 3: 1 + 1 + 4 + 4 + 9 + 9; 8: 93^2 to 98^2; 9: 100^2, and 193^2 to 197^2.
    expected = [91, 56, 35, 28, 28, 35, 56, 91, 54_739, 200_135]
    assert krum_scores(squares, 2).tolist() == expected
    for found in (MultiKrum().judge(ten), Krum().judge(ten)):
        assert (who(found.kept), who(found.odd)) == ([0, 1, 2, 3, 4, 5, 6, 7], [8, 9])
    assert [point(r) for r in Krum().judge(ten).kept] == [[3, 0]] * 8  # the first of the two best
    assert len(MultiKrum(share=0.3).judge(ten).odd) == 3  # 0.3 x 10 isn't 2.9999
    assert len(MultiKrum(share=0.29).judge(ten).odd) == 2
    assert len(MultiKrum(share=0.49).judge(ten).odd) == 3  # 4, but no more than 3 can be withstood
    assert MultiKrum(share=0.1).judge(ten[:9]).odd == []  # 0.9 of an update
    # Adaptive-Krum looks at as many as can be withstood, 3, and leaves out those that stand out.
    assert len(AdaptiveKrum("fixed_f").judge(ten).odd) == 3
    assert who(AdaptiveKrum().judge(ten).odd) == [8, 9]


def test_attackers_can_be_given():
    assert who(MultiKrum(1).judge(told(SEVEN)).odd) == [5]
    assert MultiKrum(0).judge(told(SEVEN)).odd == []
    assert who(MultiKrum(3).judge(told(SEVEN)).odd) == [5, 6]  # of seven no more than two can be withstood


@pytest.mark.parametrize(("robust", "n"), [(k, 4) for k in SELECTORS])
def test_too_few_are_left_alone(robust, n):
    replies = told(cluster(1, n)[0][:n])
    verdict = robust.judge(replies)
    assert verdict.kept == replies
    assert (verdict.odd, verdict.judged, verdict.changed) == ([], False, 0)


def test_median_and_trimmed_mean_by_hand():
    points = [(1, 50), (2, -9), (9, 3), (4, 4), (-70, 5)]
    for r in Median().judge(told(points)).kept:
        assert point(r) == [2, 4]
    for r in TrimmedMean(0.2).judge(told(points)).kept:  # without -70 and 9; without -9 and 50
        assert point(r) == pytest.approx([7 / 3, 4])
    for r in Median().judge(told(points[:4])).kept:  # the mean of the two in the middle
        assert point(r) == [3, 3.5]
    assert TrimmedMean(0.2).judge(told(points[:4])).changed == 0  # a fifth of four is nobody
    assert len(TrimmedMean(0.3).judge(told(FIVE * 2)).kept) == 10
    assert point(TrimmedMean(0.3).judge(told([(i**3, 0) for i in range(10)])).kept[0])[0] == pytest.approx(
        (27 + 64 + 125 + 216) / 4
    )


def test_clipping_by_hand():
    points = [(3, 4), (0.3, 0.4), (-6, 8)]
    kept = Clip(2.5).judge(told(points)).kept
    assert [point(r) for r in kept] == [[1.5, 2.0], [0.3, 0.4], pytest.approx([-1.5, 2.0])]
    verdict = Clip().judge(told(points))  # norms 5, 0.5, 10: the median is 5
    assert [point(r) for r in verdict.kept] == [[3, 4], [0.3, 0.4], [-3, 4]]
    assert (verdict.odd, verdict.changed, verdict.judged) == ([], 1, False)


@pytest.mark.parametrize("robust", ALL, ids=repr)
def test_where_nobody_answered_there_is_nothing_to_judge(robust):
    verdict = robust.judge([])
    assert (verdict.kept, verdict.odd, verdict.far, verdict.judged) == ([], [], [], False)


@pytest.mark.parametrize("robust", SELECTORS, ids=repr)
def test_updates_too_long_to_measure_are_odd(robust):
    """Squares of 1.8e308 overflow, and infinity less infinity is no number."""
    points = [(3, 0), (4, 0), (3, 1), (4, 1), (3.5, 0.5), (np.finfo(float).max, 0), (0, -np.finfo(float).max)]
    verdict = robust.judge(told(points))
    assert who(verdict.odd) == [5, 6]
    assert np.isfinite(verdict.far).all()


def test_only_floating_point_numbers_count():
    replies = [
        Reply(
            r.task, {"delta": r.body["delta"] | {"count": torch.tensor(10**6 * i)}, "n": i}, 1.0, {}, Spent()
        )
        for i, r in enumerate(told(FIVE))
    ]
    assert who(AdaptiveKrum().judge(replies).odd) == [4]
    assert int(Clip(1e-3).judge(replies).kept[4].body["delta"]["count"]) == 4 * 10**6
    for robust in (Median(), Krum()):
        for i, r in enumerate(robust.judge(replies).kept):
            assert int(r.body["delta"]["count"]) == 10**6 * i
            assert r.body["n"] == i


def test_other_updates_of_a_body_go_with_it():
    """SCAFFOLD's control variates are as easily poisoned."""
    replies = [answer(r.task, *point(r), control=numbers(100.0 * i)) for i, r in enumerate(told(SEVEN))]
    assert all(float(r.body["control"]["w"]) == 300 for r in Median().judge(replies).kept)
    assert all(float(r.body["control"]["w"]) == 400 for r in Krum().judge(replies).kept)
    assert float(Clip(1e-3).judge(replies).kept[6].body["control"]["w"]) == 600


# ---------------------------------------------------------------------------------------- what always holds


@pytest.mark.parametrize("robust", ALL, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_order_does_not_matter(robust, seed):
    replies = told(cluster(seed)[0])
    there = robust.judge(replies)
    mixed = [replies[i] for i in np.random.default_rng(seed).permutation(len(replies))]
    here = robust.judge(mixed)
    assert sorted(who(here.odd)) == who(there.odd)
    found = {r.task.to: point(r) for r in here.kept}
    assert found == {r.task.to: pytest.approx(point(r)) for r in there.kept}


@pytest.mark.parametrize("robust", ALL, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_everybody_is_kept_or_odd(robust, seed):
    points, _ = cluster(seed, 9, 4)
    replies = told(points)
    verdict = robust.judge(replies)
    assert sorted(who(verdict.kept) + who(verdict.odd)) == who(replies)
    assert (who(verdict.kept), who(verdict.odd)) == (sorted(who(verdict.kept)), sorted(who(verdict.odd)))
    assert len(verdict.far) == len(verdict.odd)
    assert sum(r.weight for r in verdict.kept) == len(verdict.kept)
    assert [point(r) for r in replies] == points.tolist(), "an update was changed in place"


@pytest.mark.parametrize("robust", SELECTORS, ids=repr)
@pytest.mark.parametrize("seed", range(5))
def test_sign_flippers_are_rejected(robust, seed):
    points, bad = cluster(seed)
    assert who(robust.judge(told(points)).odd) == bad  # 3 of 10: as many as are looked for


@pytest.mark.parametrize("robust", [Krum(), TrimmedMean(0.3), Median()], ids=repr)
@pytest.mark.parametrize(("seed", "lie"), [*itertools.product(range(3), (-1.0, 100.0, -1e6))])
def test_what_is_merged_lies_among_the_benign(robust, seed, lie):
    points, bad = cluster(seed, lie=lie)
    benign = np.delete(points, bad, axis=0)
    for r in robust.judge(told(points)).kept:
        assert (benign.min(0) <= point(r)).all()
        assert (point(r) <= benign.max(0)).all()


@pytest.mark.parametrize("robust", [*SELECTORS, TrimmedMean(0.3), Median()], ids=repr)
def test_it_matters_not_where_the_cluster_lies(robust):
    points, away = cluster(2)[0], np.array([50, -20])
    here, there = robust.judge(told(points)), robust.judge(told(points + away))
    assert who(here.odd) == who(there.odd)
    assert here.far == pytest.approx(there.far)
    for a, b in zip(here.kept, there.kept, strict=True):
        assert point(b) == pytest.approx(np.array(point(a)) + away)


@pytest.mark.parametrize("lie", [1e8, 1e-9])
def test_a_liar_far_off_blurs_nobody_else(lie):
    """Distances between benign updates stay exact, however long a liar's update is."""
    points, bad = cluster(4, lie=lie)
    squares = squared_distances([numbers(*p) for p in points])
    exact = ((points[:, None] - points[None]) ** 2).sum(-1)
    rest = [i for i in range(len(points)) if i not in bad]
    assert squares[np.ix_(rest, rest)] == pytest.approx(exact[np.ix_(rest, rest)], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Krum(-1), "attackers = -1"),
        (lambda: Krum(share=0.5), "share = 0.5"),
        (lambda: MultiKrum(2, share=0.3), "attackers = 2: leave out it or share = 0.3"),
        (lambda: AdaptiveKrum("adaptiv"), "mode = 'adaptiv'.*'adaptive'"),
        (lambda: TrimmedMean(0.5), "share = 0.5"),
        (lambda: Clip(0.0), "norm = 0.0"),
    ],
)
def test_bad_settings_are_named(make, key):
    with pytest.raises(ConfigError, match=key):
        make()


# ------------------------------------------------------------------------------------------ around a rule


def average(robust, points, **weights):
    """FedAvg's model after one guarded round; the commands."""
    rule, desk = RobustRule(FedAvg(), robust), Desk()
    got = Got([dataclasses.replace(r, **weights) for r in told(points)], [])
    m, commands = rule.merge(rule.start(desk), None, got, desk)
    return m, commands


def test_fedavg_merges_what_is_kept():
    m, commands = average(AdaptiveKrum(), SEVEN)
    assert close(m.params, numbers(0.5, 0.5))  # the mean of the first five
    said = dict(notes(commands))
    assert said["anomalous"] == [5, 6]
    assert said["guarded"] == {"replies": 7, "odd": 2, "changed": 0, "judged": [0, 1, 2, 3, 4, 5, 6]}
    assert m.weight == 5
    assert [c.group for c in commands] == [100, 100]  # no lane has a name: the aggregator has
    m, commands = average(Median(), SEVEN)
    assert close(m.params, numbers(0.5, 0.5))
    assert (m.weight, "anomalous" in dict(notes(commands))) == (7, False)
    m, _ = average(Clip(1.0), [(3, 4)])
    assert close(m.params, numbers(0.6, 0.8))


def test_the_refused_are_lost_to_the_rule():
    class Listening(FedAvg):
        def merge(self, m, lane, got, ctx):
            self.heard.append(got)
            return m, []

    Listening.heard = []
    rule, gone = RobustRule(Listening(), MultiKrum()), Lost(Task(9, LOCAL, SENT), "gone")
    rule.merge(None, "lane", Got(told(FIVE), [gone]), Desk())
    (got,) = Listening.heard
    assert who(got.replies) == [0, 1, 2, 3]
    assert [(e.what.to, e.why) for e in got.lost] == [(9, "gone"), (4, "bad")]


def test_what_is_no_update_passes():
    robust, desk = RobustRule(FedAvg(), Clip(1e-3)), Desk()
    opaque = Reply(Task(1, LOCAL, {}), {"holds": 3}, 1.0, {}, Spent())
    own = told([(3, 4)])[0]
    own = dataclasses.replace(own, task=Task(desk.here, LOCAL, SENT))  # the server's own work
    empty = answer(Task(2, LOCAL, SENT), 3.0, 4.0, weight=0.0)
    seen = []

    class Seeing:
        def merge(self, m, lane, got, ctx):
            seen.extend(got.replies)
            return m, []

    _, commands = dataclasses.replace(robust, inner=Seeing()).merge(
        None, None, Got([opaque, own, empty], []), desk
    )
    assert seen == [opaque, own, empty]
    assert commands == []


def test_updates_are_judged_among_those_of_the_same_model():
    """Five near (0, 0) and five near (100, 100), which would be odd among the others."""
    far = [(x + 100, y + 100) for x, y in FIVE]
    near, other = told(FIVE), told(far, {"params": numbers()})
    other = [dataclasses.replace(r, task=dataclasses.replace(r.task, to=r.task.to + 5)) for r in other]
    seen = []

    class Seeing:
        def merge(self, m, lane, got, ctx):
            seen.extend(who(got.replies))
            return m, []

    mixed = [r for pair in zip(near, other, strict=True) for r in pair]
    _, commands = RobustRule(Seeing(), MultiKrum()).merge(None, "train", Got(mixed, []), Desk())
    assert seen == [0, 5, 1, 6, 2, 7, 3, 8]
    assert dict(notes(commands))["anomalous"] == [4, 9]
    assert commands[0].group == "train"


def test_in_all_else_it_is_the_inner_rule():
    rule = RobustRule(algorithms.make("fedavg", LOCAL, clients=3), Median())
    assert unwrap(rule).clients == 3
    assert rule.resize(7, 0.5) == RobustRule(rule.inner.resize(7, 0.5), Median())
    assert is_cohort(rule)
    assert is_inner(rule)
    stream = RobustRule(algorithms.make("fedasync", LOCAL), Median())
    assert not is_cohort(stream)
    assert not is_inner(stream)
    rule.fits(small())
    with pytest.raises(ConfigError, match="given"):
        RobustRule(algorithms.make("heterofl", LOCAL, given=[0]), Median()).fits(small())
    assert codec.decode(codec.encode(rule)) == rule


def test_where_the_guard_stands():
    fedavg = algorithms.make("fedavg", LOCAL)
    robust = Median()
    assert guard(fedavg, robust) == RobustRule(fedavg, robust)
    assert guard(Rounds(fedavg), robust) == Rounds(RobustRule(fedavg, robust))
    assert isinstance(guard(algorithms.make("scaffold", PLAIN), robust), RobustRule)
    for name in ("auxo", "cfl", "flhc", "flexcfl"):  # their groups judge, each its own
        rule = guard(algorithms.make(name, LOCAL, **({"inner": "fedyogi"} if name == "cfl" else {})), robust)
        assert type(rule) is type(algorithms.make(name, LOCAL))
        assert isinstance(rule.inner, RobustRule)
        assert unwrap(rule.inner).local == LOCAL
    assert guard(RobustRule(fedavg, Krum()), robust) == RobustRule(fedavg, robust)  # nothing is judged twice
    with pytest.raises(ConfigError, match=r"robust: Watching is an algorithm without a rule"):
        guard(Watching(), robust)


PLAIN = dataclasses.replace(LOCAL, optim=SGD(0.1))


class Watching:
    def receive(self, s, e, ctx):
        return s, []


class TwoTiers:
    """Edges that train in rounds below a cloud that averages them."""

    tiers = ("edge",)

    def at(self, tier):
        return FedAvg(clients=10 if tier == "edge" else 2, local=LOCAL)


def test_of_tiers_the_lowest_is_guarded():
    both = guard(TwoTiers(), AdaptiveKrum("fixed_f"))
    assert isinstance(both, RobustTiers)
    assert both.at("cloud") == TwoTiers().at("cloud")
    assert both.at("edge") == RobustRule(TwoTiers().at("edge"), AdaptiveKrum("fixed_f"))
    sim = finished(small((5,) * 12, edges=2), both, rounds=2)
    assert len(values(sim, "anomalous")) >= 4  # f = 1 of 6 devices, each edge, each round
    assert {len(nodes) for nodes in values(sim, "anomalous")} == {1}
    groups = {r["group"] for r in sim.records if r["metric"] == "anomalous"}
    assert len(groups) == 2


@pytest.mark.parametrize(
    ("edge", "user", "tiers", "where"),
    [
        ([0] * 6 + [1] * 6, [-1] * 12, ("edge",), "edge"),  # six devices each
        ([0] * 8 + [1] * 4, [-1] * 12, ("edge",), "edge"),  # nobody has five, so it stays where it was
        (np.arange(12) // 2, [-1] * 12, ("edge",), "cloud"),  # two devices each, but six edges
        (np.arange(12) // 6, np.arange(12) // 2, ("edge",), "edge"),  # three people each; two edges
        (np.arange(12) // 12, np.arange(12) // 2, ("edge",), "edge"),  # six people
        (np.arange(12) // 12, np.arange(12) // 2, ("edge", "user"), "edge"),  # whose hubs it hears
        ([-1] * 12, np.arange(12) // 2, ("user",), "cloud"),  # six users: their hubs judge nobody
        ([-1] * 12, np.arange(12) // 6, ("user",), "cloud"),  # two: even so
        (np.arange(12) // 2, np.arange(12) // 2, ("edge", "user"), "cloud"),  # one person an edge
    ],
)
def test_judges_hear_enough_different_people(edge, user, tiers, where):
    fleet = small((5,) * 12).fleet
    whose = {"edge": np.array(edge, np.int32), "user": np.array(user, np.int32)}
    placed = place_judge(
        RobustTiers(type("Some", (TwoTiers,), {"tiers": tiers})(), Krum()),
        dataclasses.replace(fleet, **whose),
    )
    assert placed.tier == where
    assert isinstance(placed.at(where), RobustRule)
    others = {"cloud", *tiers} - {where}
    assert not any(isinstance(placed.at(tier), RobustRule) for tier in others)


def test_of_users_it_is_said_that_they_are_no_devices():
    fleet = dataclasses.replace(small((5,) * 12).fleet, user=np.arange(12, dtype=np.int32) // 2)
    lied = dataclasses.replace(fleet, attack=Attack("sign_flip", scale=9.0), attackers=np.arange(12) < 2)
    users = algorithms.make("shufflefl", LOCAL, shuffle=False)
    sim = finished(
        dataclasses.replace(small((5,) * 12), fleet=lied), place_judge(guard(users, Median()), lied), rounds=2
    )
    assert {r["group"] for r in sim.records if r["metric"] == "guarded"} == {sim.root}
    krum = place_judge(guard(users, Krum(attackers=1)), lied)
    sim = finished(dataclasses.replace(small((5,) * 12), fleet=lied), krum, rounds=2)
    refused = values(sim, "anomalous_members")
    assert refused
    assert all(sim.topology.members("user").start in nodes for nodes in refused)  # whose devices both lie
    assert not values(sim, "anomalous")
    assert {tuple(v["judged"]) for v in values(sim, "guarded")} == {()}


class Recalling:
    """What remembers, whatever else it is."""

    recalls = ("mine",)


def test_what_is_recalled_is_so_around_a_judge_too():
    one = type("One", (Recalling, FedAvg), {"__slots__": ()})(10, LOCAL)
    two = type("Two", (Recalling, TwoTiers), {})()
    assert guard(one, Clip()).recalls == guard(two, Clip()).recalls == ("mine",)
    assert guard(FedAvg(10, LOCAL), Clip()).recalls == guard(TwoTiers(), Clip()).recalls == ()


# ---------------------------------------------------------------------------------------- whole algorithms

SIZES = (6,) * 12
STOP = StopAt(rounds=4)


class Flipping:
    """A rule among whose devices some send the opposite of what they have learnt, and more of it."""

    def __init__(self, inner, bad, lie=-5.0):
        self.inner, self.bad, self.lie = inner, bad, lie

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def merge(self, m, lane, got, ctx):
        return self.inner.merge(m, lane, Got([self.turned(r) for r in got.replies], got.lost), ctx)

    def turned(self, r):
        if r.task.to not in self.bad or "delta" not in r.body:
            return r
        return dataclasses.replace(
            r, body={**r.body, "delta": {k: self.lie * v for k, v in r.body["delta"].items()}}
        )


def made(name):
    few = {"clients": 12, "models": 2, "force": (1, 3), "first_rounds": 1, "groups": 2, "eps1": 100.0}
    few |= {"pretrain_scale": 2, "pretrain_steps": 2, "eps2": 0.0, "min_round": 1, "rounds": 8, "cohorts": 2}
    known = {p.name for p in algorithms.describe(name).parameters}
    for local in (LOCAL, PLAIN):
        try:
            return algorithms.make(name, local, **{k: v for k, v in few.items() if k in known})
        except ConfigError:
            continue
    raise AssertionError(name)


def crowd():
    return small(SIZES, data=reserve_rows(pool(), 0.05, 1), compute=4e5, users=4, edges=2)


def simulated(rule, plan=LOOP, **more):
    return finished(crowd(), rule, stop=STOP, plan=plan, often=EvaluateAt(rounds=2), **more)


@pytest.mark.parametrize("name", ["fedavg", "fedyogi", "scaffold"])
def test_attackers_are_found_by_any_rule(name):
    bad = {2, 5, 11}
    rule = made(name)
    honest, hit = simulated(rule), simulated(Flipping(rule, bad))
    for robust in (MultiKrum(3), AdaptiveKrum()):
        saved = simulated(Flipping(RobustRule(rule, robust), bad))
        for nodes in values(saved, "anomalous"):
            assert set(nodes) == bad
        assert len(values(saved, "anomalous")) == 4  # every round

        def off(sim):
            return float((weights(sim) - weights(honest)).norm())

        assert off(saved) < off(hit) / 2


@pytest.mark.parametrize("robust", [Krum(), MultiKrum(), AdaptiveKrum(), TrimmedMean(), Median(), Clip(0.01)])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ifca", "classter", "auxo", "cfl", "dmpfl", "oort"])
def test_every_kind_runs_around(name, robust):
    rule = made(name)
    plain, sim = simulated(rule), simulated(guard(rule, robust))
    assert sim.finished
    assert torch.isfinite(weights(sim)).all()
    counts = values(sim, "guarded")
    assert counts
    touched = sum(c["odd"] + c["changed"] for c in counts)
    # Elsewhere twelve devices are shared out, perhaps too few to each model; and adaptive may find nobody.
    if name in ("fedavg", "scaffold", "oort") and not isinstance(robust, AdaptiveKrum):
        assert touched
    assert bool(touched) != torch.equal(weights(sim), weights(plain))


@pytest.mark.parametrize("name", ["fedavg", "ifca", "classter"])
@pytest.mark.parametrize("robust", [AdaptiveKrum("fixed_f"), Median()])
def test_resumed_at_every_event_equals_straight(name, robust):
    rule = guard(made(name), robust)
    expected = simulated(rule)
    sim, events = chained(crowd(), rule, stop=STOP, plan=LOOP, often=EvaluateAt(rounds=2))
    assert events >= 12
    assert lines(sim) == lines(expected)
    assert torch.equal(weights(sim), weights(expected))


@pytest.mark.parametrize("robust", ALL, ids=repr)
def test_loop_and_stacks_agree(robust):
    rule = guard(made("fedavg"), robust)
    loop, stacked = simulated(rule), simulated(rule, STACKED)
    assert values(loop, "guarded") == values(stacked, "guarded")
    assert values(loop, "anomalous") == values(stacked, "anomalous")
    torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)


def test_one_by_one_only_clipping_tells():
    rule = made("fedasync")
    plain = simulated(rule)
    for robust in (MultiKrum(), Median(), Clip()):
        assert torch.equal(weights(simulated(RobustRule(rule, robust))), weights(plain))
    assert not torch.equal(weights(simulated(RobustRule(rule, Clip(0.01)))), weights(plain))


# ------------------------------------------------------------------------------------------ an experiment


TABLES = {
    "data": {"source": "synthetic", "rows": 400, "clients": 12, "partition": "iid"},
    "stop": {"rounds": 2},
    "algorithms": {"fedavg": {"clients": 12}},
}


@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        ({"kind": "Krum"}, "krum", Krum()),
        ({"kind": "multi-krum", "attackers": 2}, "multi_krum", MultiKrum(2)),
        ({"kind": "multi-krum", "share": 0.3}, "multi_krum", MultiKrum(share=0.3)),
        ({"kind": "AdaptiveKrum", "mode": "gap"}, "adaptive_krum", AdaptiveKrum("gap")),
        ({"kind": "trimmed mean", "share": 0.3}, "trimmed_mean", TrimmedMean(0.3)),
        ({"kind": "median"}, "median", Median()),
        ({"kind": "clip", "norm": 2.0}, "clip", Clip(2.0)),
    ],
)
def test_an_experiment_names_its_judge(said, kind, part):
    wanted = Experiment(**TABLES, robust=said)
    full, rule = resolve_run(wanted), make_rule(wanted)
    assert (full.robust.kind, full.robust.part()) == (kind, part)
    assert rule == guard(rule.inner, part)
    assert as_algorithm(rule)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"kind": "adaptive_crum"}, "robust.kind = 'adaptive_crum': .*'adaptive_krum'"),
        (
            {"kind": "median", "share": 0.1},
            "share = 0.1: is of kind 'krum' or 'multi_krum' or 'trimmed_mean', not 'median'",
        ),
        ({"kind": "adaptive_krum", "share": 0.1}, "or 'trimmed_mean', not 'adaptive_krum'"),
        ({"kind": "krum", "attackers": 2, "share": 0.2}, "attackers = 2, share = 0.2: both say how many"),
        ({"kind": "clip", "attackers": 1}, "'krum' or 'multi_krum' or 'adaptive_krum', not 'clip'"),
        ({"kind": "trimmed_mean", "share": 0.5}, "robust.share = 0.5"),
        ({"kind": "adaptive_krum", "mode": "gop"}, "robust.mode = 'gop': .*'gap'"),
        ({"share": 0.1}, "robust.kind"),
        ({"kind": "krum", "f": 3}, "robust.f = 3: no such key"),
    ],
)
def test_a_wrong_table_is_told(said, message):
    with pytest.raises(ConfigError, match=message):
        Experiment(robust=said)


def test_the_judge_is_part_of_a_run(tmp_path):
    plain = prepare(Experiment(**TABLES))
    krum = prepare(Experiment(**TABLES, robust={"kind": "adaptive_krum"}))
    gap = prepare(Experiment(**TABLES).with_overrides(["robust.kind=adaptive_krum", "robust.mode=gap"]))
    assert len({plain.identity, krum.identity, gap.identity}) == 3
    assert 'kind = "adaptive_krum"\nmode = "adaptive"\n' in krum.experiment.to_toml()
    assert "robust" not in plain.experiment.to_toml()
    done = run(gap.experiment, tmp_path / "run")
    assert Experiment.from_file(tmp_path / "run" / "experiment.toml").robust == gap.experiment.robust
    assert len([r for r in done.lines if r["metric"] == "guarded"]) == 2


@pytest.mark.parametrize(("said", "full"), [({}, "share = 0.2"), ({"attackers": 1}, "attackers = 1")])
def test_what_is_written_of_krum_can_be_read_again(said, full, tmp_path):
    written = tmp_path / "experiment.toml"
    written.write_text(resolve_run(Experiment(**TABLES, robust={"kind": "krum", **said})).to_toml())
    assert f'[robust]\nkind = "krum"\n{full}\n\n' in written.read_text()
    assert Experiment.from_file(written).robust.part() == Krum(**said)


def test_rules_made_in_python_are_guarded_too():
    done = run(Experiment(**TABLES, robust={"kind": "median"}), algorithm=FedAvg(12, LOCAL_MLP))
    assert [r["value"]["changed"] for r in done.lines if r["metric"] == "guarded"] == [12, 12]
    assert done.experiment.algorithm == "FedAvg"


LOCAL_MLP = dataclasses.replace(LOCAL, model=dataclasses.replace(LOCAL.model, width=1.0))


def test_arms_of_a_study_may_have_their_own():
    arms = [Arm("mean", "fedavg"), Arm("median", "fedavg", changes={"robust": {"kind": "median"}})]
    study = Study("t", "q", arms, Scale(TABLES, seeds=[1]), Scale(TABLES))
    plan = study.plan("quick")
    first, second = (plan.experiment(arm, "", 1) for arm in plan.arms)
    assert first.robust is None
    assert second.robust.kind == "median"


# ---------------------------------------------------------------------------------- what was found, and not


class Told:
    """A finished run of which only records matter."""

    def __init__(self, *said):
        self.lines = [
            {"round": i, "time": float(i), "metric": metric, "value": value, "group": "g"}
            for i, (metric, value) in enumerate(said)
        ]


def test_precision_and_recall_by_hand():
    judged = ("guarded", {"judged": [0, 1, 2, 3, 4]})
    done = Told(("attackers", [0, 1, 9]), judged, ("anomalous", [1, 2]), judged, ("anomalous", [0, 1]))
    assert [(odd.round, odd.group, odd.nodes) for odd in read_anomalies(done)] == [
        (2, "g", [1, 2]),
        (4, "g", [0, 1]),
    ]
    assert measure_precision(done) == 3 / 4  # 2 was innocent
    assert measure_recall(done) == 3 / 4  # 0 got through once; 9 was never judged
    flips = Told(("flippers", [2]), judged, ("anomalous", [1, 2]))
    assert (measure_precision(flips), measure_recall(flips)) == (1 / 2, 1)
    both = Told(("flippers", [2]), ("attackers", [1]))
    assert find_culprits(both.lines) == {1}


def test_nothing_known_nothing_told():
    judged = ("guarded", {"judged": [0, 1, 2, 3, 4]})
    unknown, nobody = Told(judged, ("anomalous", [1])), Told(("attackers", [0]), judged)
    never = Told(("attackers", [0]), ("guarded", {"judged": []}))
    assert (measure_precision(unknown), measure_recall(unknown)) == (None, None)
    assert (measure_precision(nobody), measure_recall(nobody)) == (None, 0.0)
    assert (measure_precision(never), measure_recall(never)) == (None, None)


def test_flippers_of_a_run_are_counted(tmp_path):
    tables = {**TABLES, "data": {**TABLES["data"], "flip": {"share": 0.25, "kind": "next"}}}
    train = {"epochs": 10}  # else all updates are noise
    done = run(Experiment(**tables, train=train, robust={"kind": "multi_krum", "attackers": 3}))
    assert len(find_culprits(done.lines)) == 3
    assert measure_precision(done) == measure_recall(done) > 0.5  # three are refused, and three flip


def test_kinds_are_all_there():
    assert sorted(list_judges()) == ["adaptive_krum", "clip", "krum", "median", "multi_krum", "trimmed_mean"]
