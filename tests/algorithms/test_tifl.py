"""TiFL: tiers by measured speed, chances by accuracy, credits."""

from dataclasses import replace

import pytest
from federations import LOCAL, STACKED, finished, small, values
from support import SPEC, Desk, local, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.tifl.algorithm import TiFL
from potluck.algorithms.tifl.device import Examine
from potluck.algorithms.tifl.tiers import find_chances, share_credits, sort_by_speed
from potluck.core.errors import ConfigError
from potluck.core.messages import Lost, Reply, Spent, Until
from potluck.core.rule import Got
from potluck.engine.schedule import StopAt
from potluck.jobs import SGD, Private, Train
from potluck.rules import Rounds

JOB = Train(SPEC, optim=SGD(0.1), batch=4)


def reply(task, seconds=0.0, w=0.0, weight=1.0, right=None):
    body = {"delta": numbers(w)} if right is None else {"right": right}
    return Reply(task, body, weight, {}, Spent(0.25 * seconds, 0.5 * seconds, 0.25 * seconds))


def timed(rule, ctx, seconds):
    """The rule's state after devices took so long."""
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    got = [reply(t, seconds[t.to], w=100.0) for t in tasks(commands)]
    return rule.merge(m, None, Got(got, []), ctx)


def desk(devices=6):
    return Desk(children=range(devices))


# ------------------------------------------------------------------------------------------------- formulas


def test_tiers_are_of_equal_size_and_the_fastest_first():
    seconds = {0: 5.0, 1: 1.0, 2: 3.0, 3: 1.0, 4: 9.0}
    assert sort_by_speed(seconds, 2) == ((1, 3, 2), (0, 4))
    assert sort_by_speed(seconds, 9) == ((1,), (3,), (2,), (0,), (4,))
    assert sort_by_speed({}, 5) == ()


def test_chances_by_rank():
    # n = 3, n(n+1)/2 = 6: the least accurate 3/6, then 2/6 and 1/6.
    assert find_chances([0.9, 0.5, 0.7], [True] * 3) == pytest.approx((1 / 6, 3 / 6, 2 / 6))
    # Without the second, n = 2 of 3.
    assert find_chances([0.9, 0.5, 0.7], [True, False, True]) == pytest.approx((1 / 3, 0, 2 / 3))
    assert find_chances([0.5, 0.5], [True, True]) == pytest.approx((2 / 3, 1 / 3))
    assert find_chances([0.5], [False]) == (0.0,)


def test_credits_are_equal_shares_of_the_rounds():
    assert share_credits(20, 5) == (4, 4, 4, 4, 4)
    # 23 / 5 = 4.6: the shares end at 4, 9, 13, 18 and 23, the slowest tier's first.
    assert share_credits(23, 5) == (5, 5, 4, 5, 4)
    assert share_credits(3, 5) == (1,) * 5  # who is alone there needs some


def test_a_device_examines_the_model_on_its_own_rows():
    # Class 1 where 2 x - 1 > 0: of x = 0, 1, 2 and 3, all but the first.
    at = local([0, 1, 2, 3], [0, 0, 1, 1], {"params": numbers(2, -1)})
    result = Examine(SPEC).run(at)
    assert result.body == {"right": 3}
    assert result.weight == 4
    assert Examine(SPEC).cost(at).ops == 8  # four rows, two products each


# ------------------------------------------------------------------------------------------------ the rule


def test_everybody_is_timed_first_and_nothing_is_learnt_by_it():
    ctx, rule = desk(), TiFL(2, JOB, tier_count=3)
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    assert sorted(t.to for t in tasks(commands)) == list(range(6))
    m, told = timed(rule, desk(), [6, 5, 4, 3, 2, 1])
    assert m.tiers == ((5, 4), (3, 2), (1, 0))
    assert m.params == numbers()
    assert m.round == 0
    assert m.chance == pytest.approx((1 / 3,) * 3)
    assert dict(notes(told))["tiers"] == {"sizes": [2, 2, 2], "seconds": [1.5, 3.5, 5.5]}


def test_timing_may_be_repeated():
    ctx, rule = desk(2), TiFL(2, JOB, tier_count=2, profile_rounds=2)
    m, _ = timed(rule, ctx, [1.0, 2.0])
    assert m.tiers == ()
    ctx = desk(2)
    m, commands = rule.plan(m, None, ctx)
    m, _ = rule.merge(m, None, Got([reply(t, [4.0, 1.0][t.to]) for t in tasks(commands)], []), ctx)
    assert m.tiers == ((1,), (0,))  # (2 + 1) / 2 and (1 + 4) / 2


def test_late_ones_come_last_and_those_who_refuse_never():
    ctx, rule = desk(4), TiFL(2, JOB, tier_count=2, deadline=7.0)
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    by = {t.to: t for t in tasks(commands)}
    assert Until(7.0) in commands
    got = Got([reply(by[3], 5.0)], [Lost(by[0], "late"), Lost(by[1], "refused"), Lost(by[2], "gone")])
    m, _ = rule.merge(m, None, got, ctx)
    assert m.tiers == ((3,), (0,))
    assert rule._find_strangers(m, desk(4)) == [2]  # only who left is asked again


def test_a_round_has_one_tier():
    rule = TiFL(2, JOB, tier_count=3)
    m, _ = timed(rule, desk(), [6, 5, 4, 3, 2, 1])
    seen = set()
    for seed in range(30):
        ctx = Desk(children=range(6), seed=seed)
        after, commands = rule.plan(m, None, ctx)
        assert {t.to for t in tasks(commands)} == set(m.tiers[after.tier])
        seen.add(after.tier)
    assert seen == {0, 1, 2}
    # Nobody of the first two tiers is there: it is the third's turn.
    after, commands = rule.plan(m, None, Desk(children=range(6), busy={5, 4, 3, 2}))
    assert after.tier == 2
    assert {t.to for t in tasks(commands)} == {0, 1}


def test_the_mean_of_a_round_by_hand():
    rule = TiFL(2, JOB, tier_count=1)
    m, _ = timed(rule, desk(2), [1, 2])
    m, commands = rule.plan(m, None, desk(2))
    first, second = tasks(commands)
    m, told = rule.merge(
        m, None, Got([reply(first, w=1, weight=1), reply(second, w=5, weight=3)], []), desk(2)
    )
    assert m.params["w"].item() == 4.0  # (1 * 1 + 3 * 5) / 4
    assert m.round == 1
    assert notes(told) == [("tier", 0)]


def test_accuracy_changes_chances():
    rule = TiFL(2, JOB, tier_count=3, interval=4, examined=1)
    m, _ = timed(rule, desk(), [6, 5, 4, 3, 2, 1])
    m = replace(m, round=4)
    m, commands = rule.plan(m, None, desk())
    asked = tasks(commands)
    assert [next(t for t, tier in enumerate(m.tiers) if a.to in tier) for a in asked] == [0, 1, 2]
    assert all(isinstance(a.job, Examine) for a in asked)
    # 9 of 10, 1 of 4, nobody: known before as 0.
    got = [reply(asked[0], weight=10, right=9), reply(asked[1], weight=4, right=1)]
    m, told = rule.merge(m, None, Got(got, [Lost(asked[2], "gone")]), desk())
    assert m.accuracy == (0.9, 0.25, 0.0)
    assert m.chance == pytest.approx((1 / 6, 2 / 6, 3 / 6))
    assert dict(notes(told))["tier_accuracy"] == [0.9, 0.25, 0.0]
    m, commands = rule.plan(m, None, desk())  # not again before four more rounds
    assert all(t.job is JOB for t in tasks(commands))


def test_devices_that_appear_later_are_timed_at_the_next_look():
    rule = TiFL(2, JOB, tier_count=2, interval=3)
    m, _ = timed(rule, Desk(children=range(4), busy={0}), [9, 1, 2, 3])
    assert m.tiers == ((1, 2), (3,))
    for _ in range(3):
        ctx = Desk(children=range(4), busy={0})
        m, commands = rule.plan(m, None, ctx)
        m, _ = rule.merge(m, None, Got([reply(t) for t in tasks(commands)], []), ctx)
    m, commands = rule.plan(m, None, desk(4))
    assert [t.to for t in tasks(commands)] == [0]
    m, _ = rule.merge(m, None, Got([reply(tasks(commands)[0], 1.5)], []), desk(4))
    assert m.tiers == ((1, 0), (2, 3))
    m, commands = rule.plan(m, None, desk(4))
    assert all(isinstance(t.job, Examine) for t in tasks(commands))


def test_credits_limit_a_tier():
    rule = TiFL(2, JOB, tier_count=2, credits=(3, 1), interval=100)
    m, _ = timed(rule, desk(4), [1, 1, 5, 5])
    drawn = []
    for k in range(8):
        m, commands = rule.plan(m, None, Desk(children=range(4), seed=k))
        drawn.append(m.tier)
        m, _ = rule.merge(m, None, Got([reply(t) for t in tasks(commands)], []), desk(4))
    # Four rounds use up all credits, then they are given anew.
    assert sorted(drawn[:4]) == sorted(drawn[4:]) == [0, 0, 0, 1]


def test_equal_credits_make_all_tiers_equally_frequent():
    rule = TiFL(2, JOB, tier_count=3, rounds=9, interval=100)
    m, _ = timed(rule, desk(), [1, 1, 5, 5, 9, 9])
    assert m.credits == (3, 3, 3)
    drawn = []
    for k in range(18):
        m, commands = rule.plan(m, None, Desk(children=range(6), seed=k))
        drawn.append(m.tier)
        m, _ = rule.merge(m, None, Got([reply(t) for t in tasks(commands)], []), desk())
    # Nine rounds use up all; then, in a longer run, they are given anew, and tiers are still equals.
    assert sorted(drawn[:9]) == sorted(drawn[9:]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert m.chance == pytest.approx((1 / 3,) * 3)


def test_credits_are_unlimited_if_one_says_so_or_the_rounds_are_unknown():
    for rule in (TiFL(2, JOB, tier_count=3, rounds=9, credits="unlimited"), TiFL(2, JOB, tier_count=3)):
        m, _ = timed(rule, desk(), [1, 1, 5, 5, 9, 9])
        assert m.credits is None


def test_credits_are_shared_by_the_tiers_that_there_are():
    m, _ = timed(TiFL(2, JOB, tier_count=5, rounds=20), desk(2), [1, 5])
    assert m.credits == (10, 10)


def test_those_who_are_there_need_not_wait_for_credit():
    rule = TiFL(2, JOB, tier_count=2, credits=(1, 5), interval=100)
    m, _ = timed(rule, desk(4), [1, 1, 5, 5])
    m = replace(m, credits=(0, 5))
    m, commands = rule.plan(m, None, Desk(children=range(4), busy={2, 3}))
    assert {t.to for t in tasks(commands)} == {0, 1}
    assert m.credits == (1, 5)


def test_slow_devices_are_not_mixed_with_fast_ones():
    """On the virtual clock: rounds of fast tiers are shorter."""
    federation = small(compute=4e5)
    rule = TiFL(2, LOCAL, tier_count=2, interval=5)
    sim = finished(federation, Rounds(rule), stop=StopAt(rounds=12), plan=STACKED)
    facts = values(sim, "tiers")[0]
    assert facts["sizes"] == [5, 5]
    assert facts["seconds"][0] < facts["seconds"][1]
    assert len(values(sim, "tier")) == 12
    assert len(values(sim, "tier_accuracy")) == 2  # after rounds 5 and 10


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"tier_count": 0}, "tier_count = 0"),
        ({"interval": 0}, "interval = 0"),
        ({"clients": 0}, "clients = 0"),
        ({"profile_rounds": 0}, "profile_rounds = 0"),
        ({"credits": [1, 2]}, "credits = .*5 numbers"),
        ({"tier_count": 2, "credits": [1, 0]}, "credits = .*from 1"),
        ({"credits": "none"}, r"credits = 'none'.*'equal', 'unlimited'"),
        ({"rounds": 0}, "rounds = 0: must be at least 1"),
    ],
)
def test_wrong_settings(wrong, told):
    with pytest.raises(ConfigError, match=told):
        algorithms.make("tifl", LOCAL, **wrong)


@pytest.mark.parametrize("wrong", [None, "none"])
def test_credits_are_said_clearly_in_python_too(wrong):
    with pytest.raises(ConfigError, match=r"credits = .*'unlimited' or 5 numbers"):
        TiFL(2, JOB, credits=wrong)


def test_privacy_would_not_cover_it():
    with pytest.raises(ConfigError, match=r"train\.privacy"):
        TiFL(local=replace(LOCAL, privacy=Private(1.0, 1.0)))
