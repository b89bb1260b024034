"""Rules inside groups: what they say is put into a group, and what comes of it is taken out again."""

import pytest
from federations import LOCAL, finished, small
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Desk, answer, numbers

from potluck import algorithms
from potluck.algorithms.auxo.algorithm import Auxo
from potluck.algorithms.auxo.state import CohortState, Crowd
from potluck.algorithms.fedpvr.algorithm import fedpvr
from potluck.core.messages import Lost, Move, Note, Task, Until
from potluck.core.rule import Got
from potluck.jobs import Train
from potluck.rules.grouped import GroupRounds, Groups
from potluck.rules.guard import guard
from potluck.rules.inside import into, out
from potluck.rules.robust import Median

ME, JOB, SENT = 100, Train(), numbers(1.0)


def ask(node, tag=None, slot=None):
    return Task(node, JOB, SENT, tag, slot)


def said(task):
    return (task.to, task.job, task.send, task.tag, task.slot, task.id)


def test_tasks_of_a_group_are_in_its_own_memories_with_a_remark_beside_the_tag():
    first, second = ask(3, "mine"), ask(4, slot="head")
    one, two, until = into("01", [first, second, Until(5.0, 2)], ME, {3: "came early"})
    assert (one.to, one.job, one.send) == (3, JOB, SENT)
    assert (one.tag, one.slot) == (("mine", "came early"), ("01", None))
    assert (two.tag, two.slot) == ((None, None), ("01", "head"))
    assert until == Until(5.0, 2)


@pytest.mark.parametrize(
    ("group", "inner", "noted"),
    [
        ("01", None, "01"),
        ("01", ME, "01"),  # what a rule notes of itself
        ("01", "", "01"),
        ("01", 2, "01 / 2"),  # of a class, a tier, a device
        ("01", "half", "01 / half"),
        ("", None, None),  # everybody: as if there were no groups
        ("", ME, ME),
        ("", 2, 2),
    ],
)
def test_notes_of_a_group_bear_its_name(group, inner, noted):
    (note,) = into(group, [Note("guarded", 7, inner)], ME)
    assert (note.name, note.value, note.group) == ("guarded", 7, noted)


slots = st.none() | st.integers(0, 3) | st.text(max_size=2) | st.tuples(st.text(max_size=2), st.none())
asking = st.lists(st.tuples(st.integers(0, 9), slots, slots), max_size=5)


@settings(deadline=None, max_examples=50)
@given(asking, st.sampled_from(["", "0", "01", "a b"]), st.dictionaries(st.integers(0, 9), st.text()))
def test_out_of_a_group_comes_what_was_put_into_it(asked, group, remarks):
    tasks = [ask(*each) for each in asked]
    inside = into(group, tasks, ME, remarks)
    got = out(Got([answer(t, 2.0) for t in inside], [Lost(t, "late") for t in inside]))
    assert [said(r.task) for r in got.replies] == [said(t) for t in tasks]
    assert [(said(x.what), x.why) for x in got.lost] == [(said(t), "late") for t in tasks]
    assert [r.body["delta"]["w"].item() for r in got.replies] == [2.0] * len(tasks)


def test_a_group_in_a_group_is_taken_out_of_the_outer_one_first():
    task = ask(3, "mine", "head")
    (twice,) = into("far", into("0", [task], ME, {3: "a"}), ME, {3: "b"})
    assert (twice.tag, twice.slot) == ((("mine", "a"), "b"), ("far", ("0", "head")))
    once = out(Got([answer(twice, 1.0)], []))
    assert said(out(once).replies[0].task) == said(task)


def test_moves_that_came_to_nothing_are_no_group_s():
    lost = Lost(Move(0, 1, ((2, 3),)), "gone")
    assert out(Got([], [lost])) == Got([], [lost])


# ------------------------------------------------------------------------------------------- those who group


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("auxo", {"criterion": {"kind": "faithful"}, "cohorts": 2, "force": (2,), "first_split": 1}),
        ("cfl", {"eps1": 1e6, "eps2": 0.0, "min_round": 1, "clients": 10}),
    ],
)
def test_judges_note_whose_updates_they_judged(name, settings):
    """At first of the rule that everybody trains by, as without groups; after a split, of a group."""
    sim = finished(small(), guard(algorithms.make(name, LOCAL, **settings), Median()), rounds=6)
    groups = [r["group"] for r in sim.records if r["metric"] == "guarded"]
    assert groups[0] == sim.root
    assert {"0", "1"} <= set(groups)
    assert {type(group) for group in groups if group != sim.root} == {str}


def test_devices_use_what_they_keep_of_their_group():
    """A head of one's own is in the memory that training put it in."""
    rule, ctx = fedpvr(local_head=True), Desk()
    state = rule.start(ctx)
    cohorts = {name: CohortState(state, None) for name in ("0", "1")}
    views = Auxo(rule).serve(Crowd(cohorts, {}, {}), 1, ctx)
    assert {name: task.slot for name, task in views["personal"].tasks.items()} == {
        "0": ("0", None),
        "1": ("1", None),
    }
    groups = Groups(None, {"0": state, "1": state}, {}, {1: "1"}, {"1": 1}, {})
    (view,) = GroupRounds(rule, JOB).serve(groups, 1, ctx).values()
    assert view.slot == ("1", None)
