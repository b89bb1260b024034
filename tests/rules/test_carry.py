"""Carrying over: all that an edge learns goes into the cloud's model, and once, whatever is lost."""

import pytest
from edges_by_hand import Hand, TwoEdges, halved, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from support import close, numbers

from potluck.algorithms.fededge.algorithm import fededge
from potluck.core.errors import ConfigError
from potluck.core.messages import Cancel

STEP = st.integers(-8, 8)  # exact in binary, so that nothing is hidden by a tolerance
# What an edge learns while the cloud is silent, and in the round that follows; what becomes of its answer.
ROUND = st.tuples(st.lists(STEP, max_size=2), STEP, st.sampled_from(["told", "lost", "missed", "off"]))


def begun(**settings):
    """Two edges after the first global round: from (0, 0), one told (2, 0), the other (0, 4)."""
    two = TwoEdges.of(**settings)
    two.tell()
    two.hear(two.left, two.left.learn(2.0, 0.0))
    two.hear(two.right, two.right.learn(0.0, 4.0))
    assert close(two.params, numbers(1.0, 2.0))
    return two


def ended(two, left, right):
    """The cloud's model comes in mid-round, which then comes to these changes; all answers arrive."""
    two.tell()
    for edge, change in ((two.left, left), (two.right, right)):
        two.hear(edge, edge.learn(*change))


def test_all_that_two_edges_learn_goes_into_the_next_global_model():
    """One learns 1 + 1 while the cloud is silent and 1 more, the other 2: (3, 0), (0, 2) on top of (1, 2)."""
    two = begun()
    for _ in range(2):
        assert two.left.learn(1.0) == []
    ended(two, (1.0, 0.0), (0.0, 2.0))
    assert close(two.params, numbers(1.0 + 3.0 / 2, 2.0 + 2.0 / 2))
    # The edges go on from that global model which they know, with what they learnt since.
    assert close(two.left.open[0].send["params"], numbers(1.0 + 3.0, 2.0))
    assert close(two.right.open[0].send["params"], numbers(1.0, 2.0 + 2.0))


def test_half_and_half_puts_half_of_it_there():
    """(5, 0) and (0, 6) by then: half of their mean, (1.25, 1.5), and half of (1, 2)."""
    two = begun(mix="half")
    for _ in range(2):
        two.left.learn(1.0)
    ended(two, (1.0, 0.0), (0.0, 2.0))
    assert close(two.params, numbers(1.25 + 0.5, 1.5 + 1.0))


def test_nothing_is_told_twice_in_answer_after_answer():
    two = begun()
    for _ in range(3):  # (2, 0) and (0, 4) each time
        ended(two, (2.0, 0.0), (0.0, 4.0))
    assert close(two.params, numbers(4.0, 8.0))
    ended(two, (0.0, 0.0), (0.0, 0.0))  # nobody learns anything
    assert close(two.params, numbers(4.0, 8.0))
    ended(two, (0.0, 0.0), (0.0, 0.0))
    assert all(close(edge.open[0].send["params"], two.params) for edge in two.edges)  # all of one mind


def test_a_lost_answer_is_lost_and_the_next_one_tells_what_came_after():
    two = begun()
    two.tell()
    two.left.learn(2.0)  # answered, but it never arrives
    two.hear(two.left, [])
    two.hear(two.right, two.right.learn(0.0, 4.0))
    assert close(two.params, numbers(1.0, 6.0))  # of those who answered
    ended(two, (1.0, 0.0), (0.0, 0.0))
    assert close(two.params, numbers(1.5, 6.0))  # without the 2 that were lost


def test_an_edge_that_missed_a_global_model_tells_all_that_it_learnt_meanwhile():
    two = begun()
    two.tell(two.right)  # what was sent to the other is lost on its way down
    two.left.learn(2.0)
    two.hear(two.left, [])
    two.hear(two.right, two.right.learn(0.0, 4.0))
    assert close(two.params, numbers(1.0, 6.0))
    ended(two, (1.0, 0.0), (0.0, 0.0))
    assert close(two.params, numbers(1.0 + 3.0 / 2, 6.0))


def test_what_was_mixed_but_not_told_is_told_with_the_next_answer():
    """Two rounds between answers; the task is called off after the first, so nobody hears of the second."""
    edge = Hand(plain(rounds=2))
    edge.told(0.0, 0.0, 1)
    assert edge.learn(2.0) == []
    edge.hear(Cancel((None, 1, 0)))
    assert edge.learn(2.0) == []
    edge.told(0.0, 8.0, 2)
    assert edge.learn(1.0) == []
    (told,) = edge.learn(1.0)
    assert close(told.body["delta"], numbers(6.0))


def test_a_task_that_is_called_off_after_the_first_answer_is_not_told_either():
    edge = Hand(plain(rounds=2))
    edge.told(0.0, 0.0, 1)
    edge.learn(1.0)
    assert close(edge.learn(1.0)[0].body["delta"], numbers(2.0))
    edge.told(0.0, 8.0, 2)  # in mid-round, and taken up when that ends
    edge.learn(1.0)
    edge.hear(Cancel((None, 2, 0)))
    assert edge.learn(1.0) == []
    assert close(edge.open[0].send["params"], numbers(2.0, 8.0))  # mixed all the same
    edge.told(0.0, 16.0, 3)
    edge.learn(1.0)
    (told,) = edge.learn(1.0)
    assert close(told.body["delta"], numbers(4.0))  # 1 + 1 before, 1 + 1 after


@settings(max_examples=30, deadline=None)
@given(rounds=st.lists(st.tuples(ROUND, ROUND), min_size=1, max_size=4))
def test_the_cloud_has_each_step_once_whatever_is_lost(rounds):
    """An edge's step counts once it is told and arrives; until it is told it stays with the edge."""
    two = begun()
    told, untold = numbers(1.0, 2.0)["w"], {edge.me: 0.0 for edge in two.edges}
    for each in rounds:
        arrived = []
        for edge, (silent, last, fate) in zip(two.edges, each, strict=True):
            for step in silent:
                assert edge.learn(step) == []
            task = two.asked[edge.me]
            if fate != "missed":
                edge.hear(task)
            if fate == "off":  # called off before the round ends
                edge.hear(Cancel(task.id))
            answers = edge.learn(last)
            untold[edge.me] += sum(silent) + last
            assert len(answers) == (fate in ("told", "lost"))
            if fate == "told":
                arrived.append(untold[edge.me])
            if answers:
                untold[edge.me] = 0.0
            two.hear(edge, answers if fate == "told" else [])
        told = told + (sum(arrived) / len(arrived) if arrived else 0.0)
        assert close(two.params, {"w": told, "b": numbers(0.0, 2.0)["b"]})


@pytest.mark.parametrize("view, expected", [("own", (5.0, 0.0)), ("mixed", (3.0, 4.0))])
def test_the_edges_view_is_its_model_before_mixing_or_after(view, expected):
    edge = Hand(plain(edge_view=view))
    edge.told(0.0, 0.0, 1)
    edge.learn(2.0)
    assert close(edge.params, numbers(2.0))
    edge.told(0.0, 4.0, 2)
    edge.learn(3.0)
    assert close(edge.params, numbers(*expected))
    assert close(edge.open[0].send["params"], numbers(3.0, 4.0))  # training goes on from the mixed one
    edge.learn(1.0)  # while the cloud is silent: there is nothing unmixed
    assert close(edge.params, numbers(4.0, 4.0))


def test_a_view_before_mixing_can_be_had_with_half_and_half():
    edge = Hand(plain(mix="half"))
    edge.told(0.0, 0.0, 1)
    edge.learn(2.0)
    edge.told(0.0, 4.0, 2)
    edge.learn(0.0)
    assert close(edge.params, numbers(2.0))
    paper = Hand(halved())
    paper.told(0.0, 0.0, 1)
    paper.learn(2.0)
    paper.told(0.0, 4.0, 2)
    paper.learn(0.0)
    assert close(paper.params, numbers(1.0, 2.0))


@pytest.mark.parametrize(
    "settings, said",
    [
        (dict(mix="third"), "mix = 'third'"),
        (dict(edge_view="cloud"), "edge_view = 'cloud'"),
        (dict(upload_before_mix=True), "upload_before_mix = True"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError) as error:
        fededge(**settings)
    assert str(error.value).startswith(said)
