"""HybridFL: slack factors from counts, quotas that end rounds, and what stands in for who is missing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, finished, small, values, weights
from support import SPEC, Desk, answer, cancelled, close, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.hierfl import hierfl
from potluck.algorithms.hybridfl import Region, Slack, estimate_answers, hybridfl
from potluck.core.errors import ConfigError
from potluck.core.messages import Answer, Lost, Task, Until
from potluck.core.rule import Got
from potluck.fleet import Intervals
from potluck.jobs import Train
from potluck.rules import Rounds

ME, CLOUD = 100, 99


def region(portion=0.3, **more):
    return Region(FedAvg(99, Train(SPEC), **more), portion)


def told(w, serial):
    return Task(ME, Train(), {"params": numbers(w)}, id=(None, serial, 0))


def gather(rule, ctx, m, start, answers=(), gone=0, late=0):
    """One round of a region that begins there: these answer (change, rows), then so many don't."""
    m = rule.adopt(m, told(start, 1), ctx)
    m, commands = rule.plan(m, None, ctx)
    ctx.busy.clear()
    sent = sorted(tasks(commands), key=lambda task: task.to)
    heard = [answer(task, w, weight=rows) for task, (w, rows) in zip(sent, answers, strict=False)]
    rest = iter(sent[len(heard) :])
    lost = [Lost(next(rest), "gone") for _ in range(gone)] + [Lost(next(rest), "late") for _ in range(late)]
    m, commands = rule.merge(m, None, Got(heard, lost), ctx)
    return m, dict(notes(commands))["slack"], len(sent)


# ---------------------------------------------------------------------------------------- slack factors


def test_slack_factor_is_least_squares_over_the_rounds_so_far():
    slack = Slack()
    assert slack.factor == 1.0
    # Of 10 devices 3 are asked and 1.5 would answer: (0.3 x 0.15) / 0.3^2 = 0.5.
    slack = slack.observe(3, 1.5, 10)
    assert slack.factor == pytest.approx(0.5)
    # Then 6 and 4.5: (0.045 + 0.6 x 0.45) / (0.09 + 0.36) = 0.315 / 0.45 = 0.7.
    slack = slack.observe(6, 4.5, 10)
    assert slack.factor == pytest.approx(0.7)
    # Then 5 and none: 0.315 / (0.45 + 0.25) = 0.45.
    slack = slack.observe(5, 0.0, 10)
    assert slack.factor == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("products", "squares", "asked"),
    [
        (0.0, 0.0, 3),  # nothing is known: the quota itself
        (1.0, 2.0, 6),  # 3 / 0.5
        (0.7, 1.0, 5),  # 3 / 0.7 = 4.3
        (0.6, 1.0, 5),  # 3 / 0.6 = 5, not 6 for the last digit's sake
        (0.1, 1.0, 10),  # 30 were needed, but there are 10
        (0.0, 1.0, 10),  # nobody ever answered
    ],
)
def test_more_are_asked_the_fewer_answer(products, squares, asked):
    assert Slack(products, squares).count_asked(3, 10) == asked


def test_who_is_cut_off_by_the_quota_tells_nothing():
    sent = [Task(i, Train(), {}) for i in range(10)]

    def got(answered, gone, late):
        lost = ["gone"] * gone + ["late"] * late
        tail = sent[answered : answered + len(lost)]
        heard = [answer(task) for task in sent[:answered]]
        return Got(heard, [Lost(*each) for each in zip(tail, lost, strict=True)])

    assert estimate_answers(got(3, 0, 0), 3) == 3
    assert estimate_answers(got(3, 0, 3), 3) == 6  # nobody is known to be gone: all six would come
    assert estimate_answers(got(3, 1, 2), 3) == pytest.approx(4.5)  # 3 of 4 fates, of 6 asked
    assert estimate_answers(got(2, 1, 2), 3) == 2  # the deadline came first: late is as good as gone
    assert estimate_answers(got(2, 0, 0), 3) == 2  # two were there, and both answered
    assert estimate_answers(got(0, 2, 1), 3) == 0


def test_a_region_learns_whom_to_ask_in_three_rounds():
    rule, ctx = region(0.3), Desk(children=range(10), parent=CLOUD, me=ME)
    m = rule.start(ctx)
    # Three are asked, one answers and two leave: factor 1/3, so that nine are asked.
    m, said, asked = gather(rule, ctx, m, 0.0, [(0.0, 1.0)], gone=2)
    assert (asked, said) == (3, {"factor": 1.0, "asked": 3, "quota": 3, "answered": 1})
    # Three answer, three leave, three are cut off: 3 x 9 / 6 = 4.5 would have answered.
    m, said, asked = gather(rule, ctx, m, 0.0, [(0.0, 1.0)] * 3, gone=3, late=3)
    assert (asked, said["factor"]) == (9, pytest.approx(1 / 3))
    # (0.3 x 0.1 + 0.9 x 0.45) / (0.09 + 0.81) = 0.435 / 0.9; 3 / 0.4833 = 6.2.
    m, said, asked = gather(rule, ctx, m, 0.0, [(0.0, 1.0)] * 3, late=4)
    assert (asked, said["factor"]) == (7, pytest.approx(0.435 / 0.9))
    # All 7 would have come: (0.435 + 0.7 x 0.7) / (0.9 + 0.49) = 0.925 / 1.39, so 4.5.
    assert m.slack.factor == pytest.approx(0.925 / 1.39)
    assert m.slack.count_asked(3, 10) == 5


# --------------------------------------------------------------------------------------------- the quota


def test_a_quota_ends_the_round_and_the_rest_is_called_off():
    rounds, ctx = Rounds(region(0.5)), Desk(children=range(4), parent=CLOUD, me=ME)
    state, _ = rounds.init(ctx)
    state.model = replace(state.model, slack=Slack(0.5, 1.0))  # half of them drop out
    state, said = rounds.receive(state, told(1.0, 1), ctx)
    sent = tasks(said)
    assert len(sent) == 4  # a quota of 2, by 0.5
    state, said = rounds.receive(state, answer(sent[0], 2.0), ctx.later())
    assert said == []
    state, said = rounds.receive(state, answer(sent[3], 2.0), ctx.later())
    assert sorted(cancelled(said)) == [sent[1].id, sent[2].id]
    (back,) = [c for c in said if isinstance(c, Answer)]
    # Two of four came with (1 + 2), the cloud's 1 stands in for the others: 2, a change of 1; rows of two.
    assert close(back.body["delta"], numbers(1.0))
    assert back.weight == 2.0


def test_a_deadline_is_kept_beside_the_quota():
    rule, ctx = region(0.3, deadline=7.0), Desk(children=range(10))
    _, commands = rule.plan(rule.start(ctx), None, ctx)
    assert [c for c in commands if isinstance(c, Until)] == [Until(7.0, 3)]


# ------------------------------------------------------------------------------------------- aggregation


def test_the_last_regional_model_stands_in_for_those_asked_in_vain():
    rule, ctx = region(1.0), Desk(children=range(3), parent=CLOUD, me=ME)
    m = rule.start(ctx)
    # Rows 10, 20 and 30; changes 6, 3, 2 from 1: 1 + (60 + 60 + 60) / 60 = 4.
    m, _, _ = gather(rule, ctx, m, 1.0, [(6.0, 10.0), (3.0, 20.0), (2.0, 30.0)])
    assert close(m.inner.params, numbers(4.0))
    assert rule.report(m, told(1.0, 1), ctx)[1] == 60.0
    # The cloud says 10; devices 0 and 1 add 3 and 6, that is 10 + (30 + 120) / 30 = 15 for half of the rows;
    # the region's 4 for the other half: 9.5. The cloud weighs that by the rows that came: 30.
    m, _, _ = gather(rule, ctx, m, 10.0, [(3.0, 10.0), (6.0, 20.0)], gone=1)
    assert close(m.inner.params, numbers(9.5))
    delta, covered = rule.report(m, told(10.0, 1), ctx)
    assert close(delta["delta"], numbers(-0.5))
    assert covered == 30.0
    # Nobody comes: all is the region's last model, and the cloud gives it no weight.
    m, _, _ = gather(rule, ctx, m, 20.0, gone=3)
    assert close(m.inner.params, numbers(9.5))
    assert rule.report(m, told(20.0, 1), ctx)[1] == 0.0


def test_who_never_answered_has_the_mean_of_the_others_rows():
    rule, ctx = region(1.0), Desk(children=range(3), parent=CLOUD, me=ME)
    # 2 + (10 x 3 + 30 x 7) / 40 = 8 for 40 rows of 60 (the third: 20 rows), the cloud's 2 for the others: 6.
    m, _, _ = gather(rule, ctx, rule.start(ctx), 2.0, [(3.0, 10.0), (7.0, 30.0)], gone=1)
    assert close(m.inner.params, numbers(6.0))


def test_the_cloud_weighs_edges_by_the_rows_that_came():
    rule, ctx = hybridfl(Train(SPEC)).at("cloud"), Desk(children=range(2))
    m, commands = rule.plan(rule.start(ctx), None, ctx)
    one, two = tasks(commands)
    m, _ = rule.merge(m, None, Got([answer(one, 4.0, weight=30.0), answer(two, 8.0, weight=10.0)], []), ctx)
    assert close(m.params, numbers(5.0))  # (30 x 4 + 10 x 8) / 40


# ---------------------------------------------------------------------------------------- whole runs


def unreliable():
    """Two edges of ten: those of the second are away a part of each two seconds, each at another time."""
    away = [[(t + i / 5, t + i / 5 + 1.2) for t in np.arange(-2.0, 600.0, 2.0)] for i in range(10)]
    spans = [[(0.0, np.inf)]] * 10 + away
    return small([10] * 20, edges=2, availability=Intervals.of(spans), compute=4e5)


def test_more_are_asked_where_devices_drop_out_and_rounds_end_sooner():
    sim = finished(unreliable(), hybridfl(LOCAL, portion=0.3), rounds=12)
    assert sim.accounts.lost["gone"] > 0
    steady, shaky = (values(sim, "slack", group=node) for node in (21, 22))
    assert {told["factor"] for told in steady} == {1.0}
    assert {told["asked"] for told in steady} == {3}
    assert all(told["factor"] < 1 for told in shaky[3:])
    assert np.mean([told["asked"] for told in shaky[3:]]) > 3.5
    assert all(told["answered"] <= told["quota"] == 3 for told in steady + shaky)
    waits = finished(unreliable(), hierfl(LOCAL), rounds=12)
    assert sim.now < 0.8 * waits.now


def test_all_of_reliable_devices_is_hierfl():
    federation = small(edges=2)
    plain, hybrid = (finished(federation, make, rounds=3) for make in (hierfl(LOCAL), hybridfl(LOCAL, 1.0)))
    assert torch.equal(weights(plain), weights(hybrid))
    assert plain.now == hybrid.now


@pytest.mark.parametrize("portion", [0.0, 1.5])
def test_a_portion_is_above_0_and_at_most_1(portion):
    with pytest.raises(ConfigError, match="portion"):
        algorithms.make("hybridfl", LOCAL, portion=portion)
