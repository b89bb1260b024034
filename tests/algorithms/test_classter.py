"""ClassTer's numbers and rules by hand: assignment, counters, the hinge, distillation when it is due."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SPEC, Desk, Line, close, notes, numbers, tasks

from potluck import algorithms
from potluck.algorithms.classter.assignment import assign_classes, imbalance
from potluck.algorithms.classter.convergence import Convergence
from potluck.algorithms.classter.device.distil import Loudest
from potluck.algorithms.classter.staleness import CriticalHinge, Durations, Progress
from potluck.algorithms.classter.state import Member
from potluck.core.messages import Lost, Reply, Spent, Until
from potluck.core.rule import Got
from potluck.jobs import SGD, LabelSet, Train
from potluck.jobs.switch import Switch, Threshold

ONE = replace(SPEC, outputs=1)
LEARN = Train(SPEC, optim=SGD(0.5), batch=4)


class Three(Line):
    """The general model, of three classes by its word."""

    classes = 3


def rule(name="classter", local=LEARN, **params):
    return algorithms.make(name, local, **{"clients": 3, "mode": "published", **params})


def begun(name="classter", **params):
    r, desk = rule(name, **params), Desk(models={SPEC: Three(), ONE: Line()})
    return r, desk, r.start(desk)


def said(task, *classes, rows=10.0):
    """A device's answer when it enrols."""
    holds = torch.zeros(task.job.classes, dtype=torch.bool)
    holds[list(classes)] = True
    return Reply(task, {"holds": holds}, rows, {}, Spent())


def trained(task, w=0.0, weight=1.0, loss=1.0, fall=0.0, seconds=1.0):
    """A device's answer when it has trained; its model is (w, 0) away from what was sent."""
    metrics = {"loss": loss, "fall": fall}
    return Reply(task, {"delta": numbers(w)}, weight, metrics, Spent(compute=seconds))


def all_enrolled(m, rows=10.0, classes=(0, 1, 2)):
    return replace(m, members={node: Member(classes, rows) for node in range(10)})


# ------------------------------------------------------------------------------------------------ assignment


def members(*held):
    return {node: Member(tuple(classes), 1.0) for node, classes in enumerate(held)}


def test_the_least_trained_class_is_next():
    assert imbalance([4, 2, 6]) == pytest.approx(0.5)  # 1 - 2 / 4
    assert imbalance([0, 0]) == 0.0
    assert imbalance([0, 4]) == 1.0
    rng = np.random.default_rng(0)
    assert assign_classes([0], members([0, 1, 2]), [4, 2, 6], "least", rng) == [(0, 1)]
    assert assign_classes([0], members([0, 2]), [4, 2, 6], "least", rng) == [(0, 0)]  # of those that it holds
    assert assign_classes([0, 1], members([], [2]), [0, 0, 9], "least", rng) == [(1, 2)]  # nothing: no work


def test_those_before_count_within_a_round_unless_they_are_to_gather():
    everybody = members(*[[0, 1, 2]] * 5)
    rng = np.random.default_rng(0)
    classes = [c for _, c in assign_classes(range(5), everybody, [4, 2, 6], "least", rng)]
    assert classes[:2] == [1, 1]  # 4, 4, 6 by now
    assert sorted(classes[2:4]) == [0, 1]  # 5, 5, 6: either first
    assert {c for _, c in assign_classes(range(5), everybody, [4, 2, 6], "gather", rng)} == {1}
    assert {c for _, c in assign_classes([0] * 60, members([0, 2]), [4, 2, 6], "random", rng)} == {0, 2}
    ties = {assign_classes([0], members([0, 1, 2]), [1, 1, 1], "least", rng)[0][1] for _ in range(40)}
    assert ties == {0, 1, 2}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), min_size=5, max_size=5),
    st.sampled_from(["least", "gather", "random"]),
    st.integers(0, 99),
)
def test_nobody_is_given_what_it_does_not_hold(held, seen, schedule, seed):
    pairs = assign_classes(range(len(held)), members(*held), seen, schedule, np.random.default_rng(seed))
    assert [node for node, _ in pairs] == [node for node, mine in enumerate(held) if mine]
    assert all(c in held[node] for node, c in pairs)


@settings(max_examples=40, deadline=None)
@given(classes=st.integers(1, 6), sizes=st.lists(st.integers(1, 9), max_size=12), seed=st.integers(0, 99))
def test_counters_stay_even_where_everybody_holds_everything(classes, sizes, seed):
    seen, rng = [0] * classes, np.random.default_rng(seed)
    for size in sizes:
        for _, c in assign_classes(range(size), members(*[range(classes)] * size), seen, "least", rng):
            seen[c] += 1
        assert max(seen) - min(seen) <= 1


def test_late_answers_count_less_and_never_less_than_nothing():
    hinge = CriticalHinge()
    shares = [hinge.share(True, s) for s in (0, 3, 4, 5, 8)]
    assert shares == pytest.approx([0.5, 0.5, 0.5, 0.045455, 0.012195], abs=1e-6)  # 0.5 / 11, 0.5 / 41
    assert hinge.share(False, 50) == 0.5
    printed = CriticalHinge(clamp=False)
    assert [printed.share(True, s) for s in (0, 3)] == pytest.approx([-0.012821, -0.055556], abs=1e-6)
    assert printed.share(True, 5) == hinge.share(True, 5)


def test_answers_are_late_beyond_three_deviations_times_openness():
    durations = Durations().after(80.0).after(120.0)
    assert (durations.mean, durations.deviation) == (100.0, 20.0)
    assert CriticalHinge().limit(durations, 0.5) == pytest.approx(130.0)  # 100 + 3 x 0.5 x 20


def test_progress_is_the_sum_of_falls_by_share_of_samples():
    hinge, p = CriticalHinge(), Progress()
    totals, turns, openness = [], [], []
    for share, fall in ((0.25, 2.0), (0.25, 1.6), (0.5, 0.4), (0.25, 0.1)):
        p = p.after(share * fall, hinge.window)
        totals.append(p.total)
        turns += p.turns[-1:]
        openness.append(hinge.openness(p, 2.25))
        assert hinge.critical(p)
    assert totals == pytest.approx([0.5, 0.9, 1.1, 1.125])
    assert turns == pytest.approx([-0.1, -0.2, -0.175])
    assert openness == pytest.approx([1.0, 0.8, 0.4, 0.05])  # falls as the model settles
    p = p.after(0.0, hinge.window)
    assert hinge.critical(p)  # the fifth is still of the first
    assert not hinge.critical(p.after(0.0, hinge.window))
    assert hinge.critical(p.after(9.0, hinge.window))  # it speeds up
    assert CriticalHinge(period="cumulative").openness(p, 2.25) == pytest.approx(0.5)
    assert Progress().after(-3.0, 10).total == 0.0  # a loss that rose counts nothing


# -------------------------------------------------------------------------------------------------- in rounds


def test_devices_say_once_what_they_hold():
    r, desk, m = begun()
    m, commands = r.plan(m, "train", desk)
    asked = tasks(commands)
    assert [t.job for t in asked] == [LabelSet(3)] * 3
    who = [t.to for t in asked]
    desk = desk.later(busy=set())
    # The third is lost; the other two are trained next, nobody new is drawn.
    m, _ = r.merge(m, "train", Got([said(asked[0], 2), said(asked[1], 0)], [Lost(asked[2], "gone")]), desk)
    assert m.round == 0
    m, commands = r.plan(m, "train", desk)
    given = [(t.to, t.tag, int(t.send["target"])) for t in tasks(commands)]
    assert given == [(who[0], (2, 0), 2), (who[1], (0, 0), 0)]
    assert tasks(commands)[0].send["params"] is m.models[2]
    desk = desk.later(busy=set(), children=who[:2])
    m, _ = r.merge(m, "train", Got([trained(t) for t in tasks(commands)], []), desk)
    _, commands = r.plan(m, "train", desk)
    assert [t.job for t in tasks(commands)] == [r.local] * 2  # known ones aren't asked again


def test_a_wave_that_nobody_answers_counts_as_a_round():
    r, desk, m = begun(deadline=7.0)
    m, commands = r.plan(m, "train", desk)
    assert Until(7.0) in commands
    m, _ = r.merge(m, "train", Got([], [Lost(t, "late") for t in tasks(commands)]), desk.later())
    assert (m.round, m.members) == (1, {})
    _, commands = r.plan(m, "train", desk.later(busy=set()))
    assert [t.job for t in tasks(commands)] == [LabelSet(3)] * 3


def test_each_class_is_averaged_by_samples_over_those_who_trained_it():
    r, desk, m = begun(clients=4)
    m = replace(all_enrolled(m), updates=[5, 4, 0], models=[numbers(1.0), numbers(2.0), numbers(3.0)])
    m, commands = r.plan(m, "train", desk)
    assert [t.tag for t in tasks(commands)] == [(2, 0)] * 4
    # As if two of them had got class 0.
    came = zip(tasks(commands), (2, 2, 0, 2), (1.0, 4.0, 7.0, 0.0), (1.0, 2.0, 5.0, 1.0), strict=True)
    replies = [trained(replace(t, tag=(c, 0)), w, weight) for t, c, w, weight in came]
    m, commands = r.merge(m, "train", Got(replies, []), desk.later())
    assert close(m.models, [numbers(8.0), numbers(2.0), numbers(3.0 + (1 + 2 * 4) / 4)])
    assert m.updates == [6, 4, 3]
    # Every ten updates, the counters are told: 1 - 3 / (13 / 3).
    assert notes(commands) == [("updates", [6, 4, 3]), ("imbalance", pytest.approx(4 / 13))]
    assert (m.trained.tolist(), m.round) == ([True, True, True], 1)


def test_who_no_longer_holds_a_class_is_asked_again():
    r, desk, m = begun(clients=2)
    m, commands = r.plan(all_enrolled(m), "train", desk)
    one, two = tasks(commands)
    desk = desk.later(busy=set(), children=[one.to, two.to])
    m, _ = r.merge(m, "train", Got([trained(one, 4.0, weight=0.0), trained(two, 1.0)], []), desk)
    assert (one.to in m.members, m.total) == (False, 1)
    m, commands = r.plan(m, "train", desk)
    assert [(t.to, t.job) for t in tasks(commands)] == [(one.to, LabelSet(3))]
    m, _ = r.merge(m, "train", Got([said(tasks(commands)[0], 1)], []), desk.later())
    _, commands = r.plan(m, "train", desk.later(busy=set()))
    assert {t.to for t in tasks(commands)} == {one.to, two.to}
    assert next(t.tag[0] for t in tasks(commands) if t.to == one.to) == 1


# ---------------------------------------------------------------------------------------------- distillation


def distilled(r, m, desk, w=0.0):
    m, (task,) = r.plan(m, "distil", desk)
    metrics = {f"{name} {c}": 0.5 for name in ("mean", "deviation") for c in range(3)}
    return r.merge(m, "distil", Got([Reply(task, {"delta": numbers(w)}, 9.0, metrics, Spent())], []), desk)


def test_distillation_is_due_every_so_many_updates_and_at_the_end():
    r, desk, m = begun(distil={"every": 4})
    assert r.lanes(replace(m, updates=[1, 1, 1]), desk) == ("train",)
    assert r.lanes(replace(m, updates=[1, 2, 1]), desk) == ("train", "distil")  # beside training, not instead
    m, (task,) = r.plan(replace(m, updates=[1, 2, 1]), "distil", desk)
    assert (task.to, task.job) == (desk.here, r.distil)
    later = replace(m, updates=[3, 3, 1])  # training went on meanwhile
    metrics = {f"{name} {c}": float(c) for name in ("mean", "deviation") for c in range(3)}
    reply = Reply(task, {"delta": numbers(2.0)}, 9.0, metrics, Spent(compute=5.0))
    m, commands = r.merge(later, "distil", Got([reply], []), desk)
    assert notes(commands)[0] == ("distilled", {"updates": 4, "seconds": 5.0})
    assert notes(commands)[-1] == ("calibration", {"mean": 2.0, "deviation": 2.0})
    assert close(m.general, numbers(2.0))
    assert r.lanes(m, desk) == ("train",)  # 3 since then
    stopped = replace(desk, stop=True)
    assert r.lanes(m, stopped) == ("distil",)
    m, _ = distilled(r, m, stopped, 1.0)
    assert close(m.general, numbers(3.0))  # starts from the last one
    assert r.lanes(m, stopped) == ()


def test_a_distillation_without_numbers_is_not_tried_for_ever():
    r, desk, m = begun(distil={"every": 4})
    m, (task,) = r.plan(replace(m, updates=[2, 2, 1]), "distil", desk)
    m, _ = r.merge(m, "distil", Got([], [Lost(task, "bad")]), desk)
    assert m.general is None
    assert r.lanes(m, replace(desk, stop=True)) == ()
    assert "distil" in r.lanes(replace(m, updates=[4, 4, 1]), desk)


def test_the_loudest_detector_is_served_until_there_is_a_general_model():
    r, desk, m = begun(distil={"noise": 50}, personal={"epochs": 3, "lr": 0.2, "switch": "Threshold"})
    served = r.serve(m, 4, desk)["classter"]
    assert isinstance(served.job.objective, Loudest)
    assert (served.job.model, served.job.epochs, served.job.objective.calibration.count) == (ONE, 0, 50)
    m, _ = distilled(r, replace(m, updates=[4, 4, 4]), desk)
    own, general = r.serve(m, 4, desk)["classter"], r.serve(m, desk.me, desk)["classter"]
    assert (own.job.objective, own.job.part, own.job.epochs) == (Switch(Threshold()), "head", 3)
    assert own.job.optim == SGD(0.2)
    assert (general.job.epochs, general.job.model) == (0, SPEC)  # the server has no rows of its own
    assert own.send["params"] is general.send["params"] is m.general


def test_a_window_that_is_hardly_lower_than_the_one_before_is_the_end():
    c = Convergence(window=2, tolerance=0.1)
    assert not c.is_reached([1.0, 1.0, 1.0])
    assert not c.is_reached([1.0, 1.0, 0.8, 0.9])  # 1.7 < 0.9 x 2
    assert c.is_reached([1.0, 1.0, 0.9, 0.95])
    assert c.is_reached([1.0, 1.0, 3.0, 3.0])  # nor does one that rises go on
    assert c.is_reached([0.0, 0.0, 0.0, 0.0])
    assert c.extend([1.0, 2.0, 3.0], [4.0, 5.0]) == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("until", [False, True])
def test_training_ends_when_all_have_converged(until):
    r, desk, m = begun(convergence={"window": 1}, until_converged=until)
    m, told = all_enrolled(m), []
    for _ in range(2):
        assert "train" in r.lanes(m, desk)
        m, commands = r.plan(m, "train", desk)
        replies = [trained(t) for t in tasks(commands)]
        assert sorted(t.tag[0] for t in tasks(commands)) == [0, 1, 2]
        m, commands = r.merge(m, "train", Got(replies, []), desk := desk.later(busy=set()))
        told += notes(commands)
    assert dict(m.converged) == {0: 2, 1: 2, 2: 2}
    assert told == [("converged", 2)] * 3
    assert r.lanes(m, desk) == (("distil",) if until else ("train",))
    if until:
        assert r.lanes(distilled(r, m, desk)[0], desk) == ()


# ----------------------------------------------------------------------------------------------- as they come


def arrive(r, m, desk, lane, **how):
    m, commands = r.plan(m, lane, desk.later(busy=set()))
    (task,) = tasks(commands)
    return r.merge(m, lane, Got([trained(task, **how)], []), desk)


def test_answers_are_mixed_in_at_once_into_their_class():
    r, desk, m = begun("classter_async", clients=2)
    m = replace(all_enrolled(m, classes=(1,)), models=[numbers(7.0), numbers(2.0), numbers(7.0)])
    m, commands = arrive(r, m, desk, 0, w=6.0)
    assert close(m.models, [numbers(7.0), numbers(0.5 * 8 + 0.5 * 2), numbers(7.0)])
    assert notes(commands)[:2] == [("staleness", 0), ("share", 0.5)]
    assert (m.updates, m.round) == ([0, 1, 0], 1)


def test_what_is_late_and_stale_counts_less():
    r, desk, m = begun("classter_async", clients=2)
    m, commands = r.plan(all_enrolled(m, classes=(1,)), 0, desk)
    (old,) = tasks(commands)
    for seconds in (80.0, 120.0, 80.0, 120.0, 80.0):
        m, _ = arrive(r, m, desk, 1, seconds=seconds, fall=1.0)
    before = float(m.models[1]["w"])
    # The gain that ends it is a tenth of the largest: late from 96 + 0.3 deviations on.
    slow = trained(old, 11.0, seconds=110.0, fall=0.1)
    mixed, commands = r.merge(m, 0, Got([slow], []), desk)
    assert notes(commands)[:2] == [("staleness", 5), ("share", pytest.approx(0.5 / 11))]
    assert float(mixed.models[1]["w"]) == pytest.approx(before + 0.5 / 11 * (11.0 - before))
    # In a critical period it is waited for: 96 + 3 x 19.6.
    _, commands = r.merge(m, 0, Got([trained(old, 11.0, seconds=110.0, fall=9.0)], []), desk)
    assert notes(commands)[1] == ("share", 0.5)
    alone = replace(r, pace=replace(r.pace, hinge=CriticalHinge(period="off")))
    _, commands = alone.merge(m, 0, Got([trained(old, seconds=1.0, fall=9.0)], []), desk)
    assert notes(commands)[1] == ("share", pytest.approx(0.5 / 11))  # staleness alone decides


def test_none_is_late_before_as_many_have_come_as_are_at_work():
    r, desk, m = begun("classter_async", clients=4, patience=0)
    m = all_enrolled(m, classes=(1,))
    for lane in range(4):
        m, _ = r.plan(m, lane, desk)
    shares = []
    for seconds in (1.0, 50.0, 90.0, 200.0, 900.0):
        m, commands = arrive(r, m, desk, 0, seconds=seconds)
        shares.append(dict(notes(commands))["share"])
    assert shares[:4] == [0.5] * 4
    assert m.arrivals.durations.count == 5


def test_a_gain_counts_by_the_share_of_rows_at_work():
    r, desk, m = begun("classter_async", clients=2)
    m = all_enrolled(m, classes=(1,), rows=30.0)
    m, _ = r.plan(m, 1, desk)
    m, commands = r.plan(m, 0, desk)
    m, _ = r.merge(m, 0, Got([trained(tasks(commands)[0], weight=30.0, fall=2.0)], []), desk.later())
    assert m.arrivals.progress[1].total == pytest.approx(30 / 60 * 2.0)
    m, _ = r.merge(m, 1, Got([], []), desk)  # lost
    assert m.arrivals.rows == {}
