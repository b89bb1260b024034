"""Auxo: the spec's vectors by hand, what devices and server do with them, and small runs of the whole."""

import dataclasses

import numpy as np
import pytest
import torch
from federations import LOCAL, finished, pool, small, values
from sklearn.metrics import adjusted_rand_score
from support import SPEC, Desk, Line, answer, local, notes, tasks

from potluck import algorithms
from potluck.algorithms.auxo import PUBLISHED, clustering, device, likeness, tree
from potluck.algorithms.auxo.algorithm import DOOR, Auxo
from potluck.algorithms.auxo.authors import Authors, AuthorsState, find_sides_by_neighbours
from potluck.algorithms.auxo.calibrated import Calibrated
from potluck.algorithms.auxo.criterion import Evidence, Findings
from potluck.algorithms.auxo.device import CheckIn, ChooseCohort, TakeFeedback
from potluck.algorithms.auxo.faithful import Faithful, FaithfulState
from potluck.algorithms.auxo.feedback import find_lies, find_odd, leave_out, note_guard
from potluck.algorithms.auxo.state import CohortState, Crowd
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fedyogi import fedyogi
from potluck.core import codec
from potluck.core.errors import ConfigError
from potluck.core.messages import Choice, Reply, Spent, Task, Tell
from potluck.core.rule import Got
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.experiment import Experiment, run
from potluck.fleet import Intervals
from potluck.jobs import SGD, Train
from potluck.metrics import series
from potluck.report import cohorts as report

KNOWN = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [-1, 0]])
SIX = np.array([[1, 0], [0.8, 0.6], [0, -1], [-0.6, -0.8], [0.6, 0.8], [-0.8, -0.6]])


# ------------------------------------------------------------------------------------- the spec's vectors


def test_reward_of_four_participants():
    gain = clustering.measure_fit(KNOWN, np.array([True, True, False, False]))
    assert gain == pytest.approx([0.78209, 0.78209, 0.59820, -0.32548], abs=1e-4)


@pytest.mark.parametrize(("other", "explored"), [("1", 2), ("01", 1)])
def test_record_after_a_round(other, explored):
    gains = [0.78209, 0.78209, 0.59820, -0.32548]
    exploit = {1: [0.39105, 0.39105, 0.29910, -0.16274], 2: [0.26070, 0.26070, 0.19940, -0.10849]}
    for gain, new, guess in zip(gains, [0.71388, 0.71388, 0.54838, -0.28293], exploit[explored], strict=True):
        told = {"cohort": "00", "side": {2: 1}, "gain": gain, "leaves": ["00", other], "others": {}}
        record = {"reward": {"00": 0.1}, "side": {}, "times": {}}
        learnt = device.update_record(record, told, 0.9, "adds")
        assert learnt["reward"]["00"] == pytest.approx(new, abs=1e-4)
        assert learnt["reward"][other] == pytest.approx(guess, abs=1e-4)
        assert learnt["side"] == {"00": {2: 1}}
        assert learnt["times"] == {"00": 1}


def test_relabelling_by_centres_of_the_round():
    before = np.array([0, 0, 1, 1, -1, -1])
    middle = clustering.find_centres(SIX, before, 2)
    assert middle == pytest.approx(np.array([[0.9, 0.3], [-0.3, -0.9]]))
    side = clustering.find_nearest(SIX, middle)
    assert side.tolist() == [0, 0, 1, 1, 0, 1]
    assert clustering.spread(SIX) == pytest.approx(5.66667, abs=1e-4)
    assert clustering.spread(SIX, side) == pytest.approx(0.85333, abs=1e-4)
    ratio = clustering.spread(SIX, side) / clustering.spread(SIX)
    assert (ratio, ratio**0.5) == pytest.approx((0.15059, 0.38806), abs=1e-4)
    pairs = ((SIX[:, None] - SIX[None]) ** 2).sum() / (2 * len(SIX))  # the paper's equation 1
    assert pairs == pytest.approx(clustering.spread(SIX))


@pytest.mark.parametrize(("side", "after"), [(1, (0.4, 0.5)), (0, (0.5, 0.4)), (None, (0.4, 0.4))])
def test_split_bonus_goes_by_the_parents_old_reward(side, after):
    record = {"reward": {"": 0.4}, "side": {} if side is None else {"": {2: side}}, "times": {"": 1}}
    reward = device.inherit_rewards(record, ["0", "1"], 0.1)["reward"]
    assert (reward["0"], reward["1"]) == pytest.approx(after)


def test_distance_to_the_lowest_common_ancestor():
    assert [tree.distance(*pair) for pair in (("00", "01"), ("00", "1"), ("1", "00"))] == [1, 2, 2]


def test_coordinates_keep_distances_and_means():
    rows = torch.randn(5, 400, dtype=torch.float64)
    points = clustering.find_coordinates(rows)
    assert np.linalg.norm(points[0] - points[1:].mean(0)) == pytest.approx(
        float((rows[0] - rows[1:].mean(0)).norm())
    )


def test_agreement_is_cohens_kappa():
    assert clustering.cohens_kappa(np.array([[20, 5], [10, 15]])) == pytest.approx(0.4)
    assert clustering.cohens_kappa(np.array([[9, 0], [0, 1]])) == 1.0
    assert clustering.cohens_kappa(np.array([[9, 0], [0, 0]])) == 0.0  # one side only says nothing


# ---------------------------------------------------------------------------------------------- the device


def record(**rewards):
    return {"reward": rewards, "side": {}, "times": dict.fromkeys(rewards, 1)}


def test_a_device_asks_for_its_best_and_now_and_then_for_any():
    kept = {"reward": {"0": 0.2, "1": 0.7}, "side": {"1": {2: 0}}, "times": {"1": 2}}
    greedy = [device.choose_leaf(kept, ["0", "1", "2"], 0.0, key) for key in range(50)]
    assert set(greedy) == {"1"}
    explored = [device.choose_leaf(kept, ["0", "1", "2"], 0.5, key) for key in range(2000)]
    assert explored.count("1") / 2000 == pytest.approx(0.5 + 0.5 / 3, abs=0.04)
    new = [device.choose_leaf(device.begin_record(), ["0", "1", "2"], 0.0, key) for key in range(300)]
    assert min(new.count(leaf) for leaf in ("0", "1", "2")) > 70


def test_a_request_says_cohort_affinity_and_side():
    kept = {"reward": {"": 0.4}, "side": {"": {2: 1}}, "times": {"": 3}}
    at = local([], [], {"leaves": ["0", "1"], "epsilon": 0.0}, kept)
    result = CheckIn().run(at)
    asked = {"cohort": "1", "affinity": 0.5, "side": {}, "times": 3, "rewards": {}}
    assert device.unpack_request(result.body, ["0", "1"]) == asked
    every = CheckIn(every=True)
    assert device.unpack_request(every.run(at).body, ["0", "1"])["rewards"] == {"0": 0.4, "1": 0.5}
    for job in (CheckIn(), every):
        assert len(job.run(at).body) == len(job.cost(at).sends)
    here = local([], [], {"leaves": [""], "epsilon": 0.0}, kept)
    assert device.unpack_request(CheckIn().run(here).body, [""])["side"] == {2: 1}
    lost = CheckIn().run(local([], [], {"leaves": ["0", "1"], "epsilon": 0.0}))
    word = device.unpack_request(lost.body, ["0", "1"])
    assert (word["times"], word["affinity"], lost.keep) == (0, 0.0, None)


@pytest.mark.parametrize(
    "head",
    [
        (2, 0.5, b"." * 9, 1),
        (0, float("nan"), b"." * 9, 1),
        (0, 0.5, b"....x....", 1),
        (0, 0.5, b"2........", 1),
        (0, 0.5, b"........:", 1),
    ],
)
def test_bytes_that_say_nothing_are_no_request(head):
    """No cohort of this place, no number, no side, the third side of two, the eleventh of ten."""
    assert device.unpack_request(device._HEAD.pack(*head), ["0", "1"]) is None
    assert device.unpack_request(device._HEAD.pack(1, 0.5, b"0.......9", 1), ["0", "1"])["cohort"] == "1"


def test_feedback_of_a_round_that_split_marks_the_own_side():
    told = {"cohort": "", "side": {2: 1}, "gain": None, "leaves": ["0", "1"], "others": {}}
    kept = TakeFeedback().run(local([], [], {"feedback": told})).keep
    assert kept["reward"] == {"": 0.0, "0": 0.0, "1": 0.1}


def test_explored_cohorts_are_not_guessed_about_again():
    told = {"cohort": "0", "side": {}, "gain": -0.6, "leaves": ["0", "10", "11"], "others": {}}
    kept = {"reward": {"10": 0.3}, "side": {}, "times": {"10": 1}}
    learnt = device.update_record(kept, told, 0.9, "adds")
    assert learnt["reward"]["10"] == 0.3  # it was there
    assert learnt["reward"]["11"] == pytest.approx(-0.6 / 3)
    again = device.update_record(learnt, told, 0.9, "adds")["reward"]["11"]
    assert again == pytest.approx(-0.4)
    assert device.update_record(learnt, told, 0.9, "sets")["reward"]["11"] == pytest.approx(-0.2)


def test_a_device_never_seen_uses_the_cohort_with_the_least_loss_on_its_own_rows():
    models = {"0": Line(3.0).init(0), "1": Line(-3.0).init(0)}
    at = local([-1.0, 1.0], [0, 1], {"models": models})
    assert ChooseCohort(SPEC).run(at).body == "0"
    at = local([-1.0, 1.0], [1, 0], {"models": models})
    assert ChooseCohort(SPEC).run(at).body == "1"
    seen = local([-1.0, 1.0], [1, 0], {"models": models}, keep=record(**{"0": 0.1}))
    assert ChooseCohort(SPEC).run(seen).body == "0"  # what it knows counts, whatever the loss
    assert ChooseCohort(SPEC, sure=2).run(seen).body == "1"  # unless it was seldom there
    assert ChooseCohort(SPEC, sure=1).run(seen).body == "0"
    assert ChooseCohort(SPEC, sure=2).run(seen).metrics == {"times": 1.0}
    models["1"] = Line(2.9).init(0)  # and another isn't clearly better: loss 0.049 and 0.054
    alike = local([-1.0, 1.0], [0, 1], {"models": models}, keep=record(**{"1": 0.1}))
    assert ChooseCohort(SPEC, sure=2).run(alike).body == "1"


# ---------------------------------------------------------------------------------------------- the server


def rule(**params):
    fixed = {"clients": 4, "first_split": 1, "criterion": Faithful()}
    return Auxo(FedAvg(4, Train(SPEC, optim=SGD(0.1))), **{**fixed, **params})


def said(cohort="", affinity=0.0, side=-1, times=0):
    sides = {} if side == -1 else {2: side}
    return {"cohort": cohort, "affinity": affinity, "side": sides, "times": times, "rewards": {}}


def checked_in(auxo, m, ctx, words):
    """The crowd after these devices have checked in, one request each."""
    names = sorted({*m.cohorts, *(word["cohort"] for word in words.values())})  # of whenever they were told
    replies = [
        Reply(
            Task(node, CheckIn(), {"leaves": names}, id=(DOOR, 1, i)),
            device.pack_request(word, names),
            1.0,
            {},
            Spent(),
        )
        for i, (node, word) in enumerate(words.items())
    ]
    return auxo.merge(m, DOOR, Got(replies, []), ctx)[0]


def trained(auxo, m, lane, ctx, deltas):
    """A round in which devices reply with these changes (w, b)."""
    m, commands = auxo.plan(m, lane, ctx)
    due = tasks(commands)
    replies = [answer(t, *deltas[t.to]) for t in due]
    return *auxo.merge(m, lane, Got(replies, []), ctx), due


def test_requests_lead_to_the_leaf_that_came_of_what_was_asked_for():
    auxo, ctx = rule(), Desk()
    start = auxo.start(ctx)
    parts = dict.fromkeys(("00", "01", "1"), start.cohorts[""])
    m = Crowd(parts, {name: {} for name in parts}, {})
    words = {1: said("1"), 2: said("0", 0.4, 1), 3: said("", 0.4, 1), 4: said("011")}
    m = checked_in(auxo, m, ctx, words)
    assert 1 in m.queue["1"]
    assert m.queue["01"][2] == said("01", 0.5)  # its side, with the bonus, and no side known below
    assert 3 in m.queue["1"]
    assert 4 in m.queue["01"]  # of a cohort that the server has forgotten: the nearest that it knows


def test_an_old_name_without_a_side_leads_to_any_of_its_leaves():
    auxo, ctx = rule(), Desk()
    parts = {name: auxo.start(ctx).cohorts[""] for name in ("00", "01", "1")}
    m = Crowd(parts, {name: {} for name in parts}, {})
    m = checked_in(auxo, m, ctx, {node: said("") for node in range(400)})
    shares = [len(m.queue[name]) / 400 for name in ("00", "01", "1")]
    assert shares == pytest.approx([0.25, 0.25, 0.5], abs=0.08)


def test_two_camps_split_and_go_on_with_all_that_their_parent_had():
    auxo = Auxo(
        fedyogi(Train(SPEC, optim=SGD(0.1)), 4),
        4,
        first_split=1,
        fewest=2,
        cohorts=2,
        force=(1,),
        criterion=Faithful(),
    )
    ctx = Desk()
    m = checked_in(auxo, auxo.start(ctx), ctx, {n: said() for n in range(4)})
    camps = {0: (1, 0), 1: (0.9, 0.1), 2: (-1, 0), 3: (-0.9, -0.1)}
    m, commands, _ = trained(auxo, m, "", ctx, camps)
    assert list(m.cohorts) == ["0", "1"]
    first, second = m.cohorts["0"].inner, m.cohorts["1"].inner
    assert first.params is second.params
    assert first.opt is second.opt
    (split,) = [v for name, v in notes(commands) if name == "split"]
    assert (split["into"], split["sizes"], split["round"]) == (["0", "1"], [2, 2], 1)
    told = {c.to: c.send["feedback"] for c in commands if isinstance(c, Tell)}
    assert told[0]["side"] == told[1]["side"] != told[2]["side"] == told[3]["side"]
    assert told[0]["leaves"] == ["0", "1"]
    # Each child has half of the clients and half of the rate.
    ctx = ctx.later()
    m = checked_in(auxo, m, ctx, {n: said("0", 0.1, times=1) for n in (5, 6)})
    _, commands = auxo.plan(m, "0", ctx)
    assert [t.job.optim.lr for t in tasks(commands)] == [0.05, 0.05]
    assert {t.slot for t in tasks(commands)} == {("0", None)}


def test_cohorts_together_use_no_more_clients_than_one():
    auxo, ctx = rule(clients=9, cohorts=2), Desk(children=range(100))
    parts = {name: auxo.start(ctx).cohorts[""] for name in ("0", "1")}
    m = Crowd(parts, {name: {} for name in parts}, {})
    m, invited = auxo.plan(m, DOOR, ctx)
    assert len(tasks(invited)) == 8
    m = checked_in(auxo, m, ctx, {n: said(str(n % 2)) for n in range(20, 40)})
    assert [len(tasks(auxo.plan(m, lane, ctx)[1])) for lane in ("0", "1")] == [4, 4]


def test_epsilon_decays_by_rounds():
    auxo, ctx = rule(criterion=Faithful(epsilon=0.5, decay=0.9)), Desk()
    m = dataclasses.replace(auxo.start(ctx), round=2)
    (first, *_) = tasks(auxo.plan(m, DOOR, ctx)[1])
    assert first.send["epsilon"] == pytest.approx(0.5 * 0.81)


def test_who_claims_to_fit_but_doesnt_is_shut_out():
    auxo, ctx = rule(strikes=2, cohorts=2, claim=0.5), Desk(children=range(6))
    start = auxo.start(ctx).cohorts[""]
    m = Crowd({"0": start, "1": start}, {"0": {}, "1": {}}, {})
    auxo = dataclasses.replace(auxo, clients=8)
    good = {0: (1, 0), 1: (0.9, 0.1), 2: (0.9, -0.1), 3: (-1, 0)}
    for strike in (1, 2):
        words = {n: said("0", 0.9, times=3) for n in good}
        m = checked_in(auxo, m, ctx, words)
        m, commands, due = trained(auxo, m, "0", ctx, good)
        assert len(due) == 4
        assert m.flags == {3: strike}
        ctx = ctx.later(busy=set())
    assert ("blacklisted", 3) in notes(commands)
    invited = {t.to for t in tasks(auxo.plan(m, DOOR, ctx)[1])}
    assert invited
    assert 3 not in invited


def test_devices_that_left_are_replaced_before_a_round_begins():
    auxo, ctx = rule(), Desk()
    m = checked_in(auxo, auxo.start(ctx), ctx, {n: said() for n in range(4)})
    m, commands = auxo.plan(m, "", ctx.later(busy={0, 1}))
    assert not tasks(commands)
    assert list(m.queue[""]) == [2, 3]
    m, commands = auxo.plan(m, DOOR, ctx.later())
    assert len(tasks(commands)) == 2
    few = dataclasses.replace(m, dry=True)  # and if there is nobody else, two are enough
    assert {t.to for t in tasks(auxo.plan(few, "", ctx.later())[1])} == {2, 3}


# ------------------------------------------------------------------------------------------- the criterion


def heard(state, updates, before, **more):
    keys = {"cohort": "", "head": ["w", "b"], "room": 4, "learnt": {"": state}, "population": 6}
    requests = [said(side=s, times=1) for s in before]
    rng = np.random.default_rng(0)
    changes = [{"w": torch.tensor([w]), "b": torch.tensor([b])} for w, b in updates.tolist()]
    return Evidence(**{**keys, "updates": changes, "requests": requests, "rng": rng, **more})


def sides_of(told):
    return np.array([side.get(2, -1) for side in told.side])


def test_a_split_pays_when_heterogeneity_falls_by_the_root_of_two():
    way = Faithful(window=2, labelled=0.2)
    first = way.learn(heard(way.start(), SIX, [-1] * 6))
    assert not first.into  # one round is not enough
    side = sides_of(first)
    assert side[[0, 1, 4]].tolist() == [side[0]] * 3
    assert side[[2, 3, 5]].tolist() == [1 - side[0]] * 3
    second = way.learn(heard(first.state, SIX, side.tolist()))
    assert second.into == 2
    assert second.state.labelled == (3, 3)  # nobody is counted twice
    assert not Faithful(window=2, labelled=0.9).learn(heard(first.state, SIX, side.tolist())).into
    noise = np.random.default_rng(1).standard_normal((6, 2))
    far = dataclasses.replace(first.state, ratios=(0.99, 0.99))
    assert not way.learn(heard(far, noise, side.tolist())).into


def test_the_root_is_reached_on_main_directions_where_noise_hides_it_in_the_whole():
    """Two kinds in 400 dimensions of noise: half of the variance of the main direction is 0.7 of its norm."""
    rng = np.random.default_rng(0)
    updates, truth = kinds(rng, 2, count=20, size=400, noise=1.5)
    words = [said(side=int(side), times=1) for side in truth]
    ratios = {}
    for directions in (0, 1, 3):
        way = Faithful(directions=directions, window=1, labelled=0.0)
        seen = Evidence("", updates, words, ["w"], {"": FaithfulState(3, labelled=(9, 9))}, 4, 40, rng)
        told = way.learn(seen)
        ratios[directions] = told.facts["ratio"]
        assert told.into == (2 if directions else 0)
    assert ratios[1] < ratios[3] < 0.5**0.5 < ratios[0]


def test_later_splits_must_be_even():
    way = Faithful(window=1, labelled=0.0)
    state = FaithfulState(3, (0.1,), (30, 9))
    uneven = heard(state, SIX, [0, 0, 1, 1, 0, 1], learnt={"": state, "1": state})
    assert not way.learn(uneven).into
    assert way.learn(heard(state, SIX, [0, 0, 1, 1, 0, 1])).into  # the first one may be as it likes


def test_sides_are_sought_anew_after_rounds_without_known_members():
    way = Faithful()
    told = way.learn(heard(way.start(), SIX, [-1] * 6))
    for _ in range(3):
        told = way.learn(heard(told.state, SIX, [0, 0, -1, -1, -1, -1]))
        assert sides_of(told).tolist() == [0, 0, -1, -1, -1, -1]
    told = way.learn(heard(told.state, SIX, [1, 1, -1, -1, -1, -1]))
    assert sides_of(told).tolist() == [1, 1, 0, 0, 1, 0]  # named so as to agree with what is known


# --------------------------------------------------------------------------------------- the authors' code


def test_newcomers_take_the_side_of_their_nearest_neighbour():
    points = np.array([[0.0], [1.0], [4.0], [9.0]])
    assert find_sides_by_neighbours(points, np.array([0, -1, -1, 1])).tolist() == [0, 0, 0, 1]
    assert find_sides_by_neighbours(points, np.array([1, 0, -1, -1])).tolist() == [1, 0, 0, 0]  # theirs stay
    assert find_sides_by_neighbours(points, np.full(4, -1)) is None
    line = np.arange(8.0)[:, None]  # one side alone: a quarter of eight are of it
    assert find_sides_by_neighbours(line, np.array([-1, 0, *[-1] * 6])).tolist() == [0, 0, *[1] * 6]


def test_rewards_of_the_authors_code_add_up():
    """The fit of four participants as above, two of them known: times 5 and a half."""
    updates = [{"w": torch.tensor([*[0.0] * 18, *line], dtype=torch.float64)} for line in KNOWN]
    words = [said("0", affinity, times=1) for affinity in (0.3, 0.3, 0.0, 0.0)]
    way, rng = Authors(), np.random.default_rng(0)
    learnt = {name: AuthorsState((2, 2)) for name in ("0", "1")}
    told = way.learn(Evidence("0", updates, words, [], learnt, 2, 1000, rng))
    middle = KNOWN - KNOWN.mean(0)  # the last tenth, centred, of length 1
    fit = clustering.measure_fit(middle / np.linalg.norm(middle, axis=1)[:, None], np.array([1, 1, 0, 0]) > 0)
    assert told.gain == pytest.approx((2.5 * fit).tolist())
    feedback = {"cohort": "0", "side": {}, "gain": 2.0, "leaves": ["0", "1"], "others": {}}
    record = {"reward": {"0": 0.5}, "side": {}, "times": {"0": 1}}
    assert device.update_record(record, feedback, 0.9, "sums")["reward"] == {"0": 2.5}


def test_the_authors_code_splits_by_counts():
    way, rng = Authors(), np.random.default_rng(0)
    updates, _ = kinds(rng, 2, count=20, noise=0.1)
    new = [said() for _ in updates]

    def split_after(labelled, population, cohorts=1):
        learnt = {str(k): AuthorsState(labelled) for k in range(cohorts)}
        return way.learn(Evidence("0", updates, new, [], learnt, 3, population, rng)).into

    assert split_after((), 399) == 2  # 20 on each side, of 399 / 20
    assert split_after((), 400) == 0
    assert split_after((60, 10), 100) == 2  # the first one may be uneven
    assert split_after((900, 10), 100, cohorts=2) == 0
    told = algorithms.make("auxo", LOCAL, criterion="authors").criterion
    assert (told.epsilon, told.decay, told.scaling) == (0.01, 0.99, 0.0)


# ------------------------------------------------------------------------------------------- calibrated


def kinds(rng, groups, count=12, size=60, noise=0.6):
    """Updates of `count` devices of each group: a direction of the group's, and noise."""
    means = np.random.default_rng(7).standard_normal((groups, size))
    truth = np.repeat(np.arange(groups), count)
    rows = means[truth] + noise * rng.standard_normal((len(truth), size))
    return [{"w": torch.tensor(row, dtype=torch.float32)} for row in rows], truth


def rounds_of(way, groups, rounds=10, seed=0, room=10, make=kinds, **more):
    """Rounds of devices who have never been there before, until a split would pay."""
    rng, state = np.random.default_rng(seed), way.start()
    for number in range(1, rounds + 1):
        updates, truth = make(rng, groups, **more)
        told = way.learn(Evidence("", updates, [said()] * len(truth), [], {"": state}, room, 999, rng))
        state = told.state
        if told.into:
            return told, truth, number
    return told, truth, rounds


def shares(rng, alpha=None, classes=10, count=100, size=400, rows=40, noise=1.0):
    """Updates of devices whose classes differ by degrees: by Dirichlet(alpha), or by chance alone."""
    means = np.random.default_rng(7).standard_normal((classes, size))
    even = np.full((count, classes), 1 / classes)
    share = even if alpha is None else rng.dirichlet(np.full(classes, alpha), count)
    held = np.stack([rng.multinomial(rows, one) for one in share]) / rows
    return as_updates(held @ means + noise * rng.standard_normal((count, size)))


def degrees(rng, count=100, size=400, even=False, noise=1.0):
    """Updates of devices who differ along one direction, by degrees, and much."""
    means = np.random.default_rng(7).standard_normal((2, size))
    place = rng.uniform(-1.7, 1.7, count) if even else rng.standard_normal(count)
    return as_updates(2 * means[0] + place[:, None] * means[1] + noise * rng.standard_normal((count, size)))


def noise(rng, count=100, size=400, common=1.0):
    """Updates of devices who differ by nothing but noise."""
    return as_updates(
        common * np.random.default_rng(7).standard_normal(size) + rng.standard_normal((count, size))
    )


def as_updates(rows):
    return [{"w": torch.tensor(row, dtype=torch.float32)} for row in rows], np.zeros(len(rows), int)


@pytest.mark.parametrize("groups", [2, 3, 4, 8])
def test_calibrated_finds_as_many_kinds_as_there_are(groups):
    told, truth, _ = rounds_of(Calibrated(), groups)
    assert told.into == groups
    found = np.array([side[groups] for side in told.side])
    assert adjusted_rand_score(truth, found) > 0.95
    assert told.facts["persistence"][str(groups)] > 0.95
    assert told.facts["gap"][str(groups)] > 0.4
    assert told.facts["heterogeneity_after"] < 0.8 * told.facts["heterogeneity"]


@pytest.mark.parametrize(
    ("make", "how"),
    [
        *((noise, {"count": count, "size": size}) for count in (30, 100) for size in (20, 400)),
        *((shares, {"alpha": alpha}) for alpha in (None, 0.1, 0.5, 5.0)),
        *((degrees, {"even": even, "noise": much}) for even in (False, True) for much in (0.3, 1.0)),
    ],
)
def test_calibrated_leaves_alone_what_differs_by_noise_or_by_degrees(make, how):
    told, _, rounds = rounds_of(Calibrated(), None, 7, room=8, make=lambda rng, _: make(rng, **how))
    assert (told.into, rounds) == (0, 7)


def test_sides_need_enough_participants_and_none_too_small():
    assert rounds_of(Calibrated(counted=10_000), 2)[0].into == 0
    lone = [np.array([[300.0, 0], [0, 10.0]])] * 4
    assert Calibrated()._measure_agreement(lone, 2) == 0.0
    assert Calibrated(smallest=0.05)._measure_agreement(lone, 2) == 1.0
    assert Calibrated()._measure_agreement(lone[:3], 2) == 0.0


def test_agreement_is_kappa_less_its_standard_error_over_the_last_participants():
    way, table = Calibrated(counted=200), np.array([[20.0, 5], [10, 15]])  # kappa 0.4 of 50
    kept = []
    for _ in range(9):
        kept = way._keep_last([*kept, (table, 0.5)])
    assert len(kept) == 4
    assert way._measure_agreement([table for table, _ in kept], 2) == pytest.approx(
        0.4 - (0.4 * 0.6 / 200) ** 0.5
    )


def test_space_between_sides_by_hand():
    def gap(points, *centres):
        rows, middle = torch.tensor(points)[:, None], torch.tensor(centres)[:, None]
        return clustering.measure_gap(rows, clustering.find_likest(rows, middle), middle)

    assert gap([-1.0, -1, 1, 1, 1], -1.0, 1.0) == pytest.approx(1.0)
    # Variance 2.5 of all, 0.25 within: sides explain 0.9 of it, where an even line explains 0.75.
    assert gap([-2.0, -1, 1, 2], -1.5, 1.5) == pytest.approx((0.9 - 0.75) / 0.25)
    assert gap(np.linspace(-1, 1, 4000).tolist(), -0.5, 0.5) == pytest.approx(0.0, abs=1e-3)
    assert gap(np.linspace(-1, 1, 4000).tolist(), -0.9, 0.1) == pytest.approx(0.0, abs=2e-3)  # 3 to 7
    # Of a normal law two halves explain 2 / pi.
    normal = np.random.default_rng(1).standard_normal(20_000).tolist()
    assert gap(normal, -0.8, 0.8) == pytest.approx((2 / np.pi - 0.75) / 0.25, abs=0.03)
    # Of three in a row both ends are near the middle one, which fills the way to one of them.
    assert gap([-8.0, -8, -1, 0, 1, 2, 2.5, 3], -8.0, 0.0, 2.5) < gap([-8.0, -8, -1, 0, 1], -8.0, 0.0)
    assert gap([1.0, 2.0], 0.0, 9.0) == -1.0  # nobody on one side


def test_kinds_within_kinds_are_found_one_after_another():
    """Two kinds, each of which falls in two once they have parted."""
    way = Calibrated()
    told, truth, _ = rounds_of(way, 2, room=4)
    learnt = way.split({"": told.state}, "", 2)
    first = next(kind for kind, side in zip(truth, told.side, strict=True) if side[2] == 0)
    parent = np.random.default_rng(7).standard_normal((2, 60))[first]  # of `kinds`

    def within(rng):
        updates, fine = kinds(rng, 2, count=20, noise=0.4)
        return [{"w": u["w"] + torch.tensor(3 * parent, dtype=torch.float32)} for u in updates], fine

    rng = np.random.default_rng(1)
    for _ in range(12):
        updates, truth = within(rng)
        mine = [said("0") | {"rewards": {"0": 9.0, "1": -9.0}}] * len(truth)
        told = way.learn(Evidence("0", updates, mine, [], learnt, 3, 999, rng))
        learnt = {**learnt, "0": told.state}
    assert told.into == 2
    assert adjusted_rand_score(truth, [side[2] for side in told.side]) > 0.95
    assert list(way.split(learnt, "0", 2)) == ["00", "01", "1"]


def test_one_visit_tells_about_every_cohort():
    way, rng = Calibrated(), np.random.default_rng(3)
    told, truth, _ = rounds_of(way, 3)
    learnt = way.split({"": told.state}, "", 3)
    assert list(learnt) == ["0", "1", "2"]
    assert list(learnt["1"].like) == ["0", "1", "2"]
    sides = {g: told.side[list(truth).index(g)][3] for g in range(3)}
    updates, truth = kinds(rng, 3, count=5)
    strangers = [said("0") for _ in truth]
    visit = way.learn(Evidence("0", updates, strangers, [], learnt, 2, 999, rng))
    for fits, g, gain in zip(visit.others, truth, visit.gain, strict=True):
        assert max(fits, key=fits.get) == str(sides[g])
        assert gain == fits["0"]
    assert visit.facts["members"] == 5


def test_who_doesnt_fit_isnt_a_member_whatever_it_claims():
    """With gamma 0.5 and a claim of 3 for "0": 0.5 (-0.2) + 0.5 (3) = 1.4 would make a member."""
    told = {"rewards": {"0": 3.0, "1": 0.0}}

    def find(fits, seen):
        named = None if fits is None else [dict(zip("012", line, strict=True)) for line in fits]
        return likeness.find_homes(named, "0", seen, 0.5)

    assert find([[0.1, 0.9, 0.0]], seen=[told]) == ["0"]  # it fits, though another fits better now
    assert find([[-0.2, 0.1, 0.9]], seen=[told]) == ["2"]  # where it fits best, not where it says
    assert find([[-0.2, 0.4, 0.9]], seen=[{"rewards": {"1": 3.0}}]) == ["1"]  # it is no member anyway
    assert find(None, seen=[told]) == ["0"]  # nobody can tell yet
    assert find(None, seen=[{"rewards": {}}]) == ["0"]


def test_strays_are_like_no_cohort():
    """Cosines with the nearer of (1, 0) and (0, 1): 0.8, 0.7, 0.6, 0.6, 0.5, 0.4, 0.1, -0.6.

    Their median is 0.55, and the median distance from it 0.15: one deviation is 0.222.
    """
    rows = torch.tensor([
        [0.8, 0, 0.6], [0.51, 0.7, 0.5], [0.6, 0, 0.8], [0, 0.6, 0.8],
        [0.5, 0, 0.87], [0.4, 0.1, 0.91], [0, 0.1, 0.99], [-0.6, -0.8, 0],
    ])  # fmt: skip
    like = torch.tensor([[0.5, 0, 0], [0, 0.2, 0]])  # how long a mean is doesn't matter
    calm, wild = np.zeros(8, bool), np.arange(8) == 6

    def strays(share, wild=calm, rows=rows):
        return np.flatnonzero(likeness.find_strays(rows, like, wild, share)).tolist()

    assert strays(0.25) == [6, 7]  # below 0.1375; two deviations below is 0.105
    assert strays(0.15) == [7]  # 0.0825
    assert strays(0.15, wild) == [6, 7]  # 0.165
    assert strays(0.9) == [6, 7]  # 0.4 < 0.495, but only two deviations below the middle count
    assert strays(0.0, wild) == []
    even = torch.stack([torch.linspace(-0.04, 0.24, 8), torch.full((8,), -0.1), torch.ones(8)], 1)
    assert strays(0.25, calm, even) == []  # noise: middle 0.1, deviation 0.119
    assert strays(0.25, calm, -rows) == []


def test_what_members_look_like_goes_by_members_alone():
    rows = torch.tensor([[1.0, 0], [0, 1], [-1, 0]])
    like = {"0": torch.tensor([0.5, 0]), "1": torch.tensor([0.0, 1])}
    after = likeness.update_likeness(like, rows, ["0", "2", None], "0", 0.5)
    assert torch.equal(after["0"], torch.tensor([0.75, 0]))  # half (0.5, 0), half (1, 0)
    assert torch.equal(after["1"], like["1"])
    assert torch.equal(after["2"], rows[1])
    visitor = likeness.update_likeness(like, rows, ["1", None, None], "0", 0.5)["1"]
    assert visitor.tolist() == pytest.approx([0.2, 0.8])  # a single visitor weighs 1 - 0.8


@pytest.mark.parametrize("groups", [2, 4])
def test_flipped_signs_and_blown_up_updates_are_strays(groups):
    way, rng = Calibrated(stray=0.25), np.random.default_rng(3)
    told, _, _ = rounds_of(way, groups)
    assert told.strays is None  # before a split nobody can be told apart
    learnt = way.split({"": told.state}, "", groups)
    updates, _ = kinds(rng, groups, count=20)
    where = [max(range(groups), key=lambda k: float(u["w"] @ learnt["0"].like[str(k)])) for u in updates]
    mine = [said("0") | {"rewards": {str(g): 1.0}} for g in where]
    for i in (0, 21):
        updates[i] = {"w": -updates[i]["w"]}
    updates[5] = {"w": torch.tensor(rng.standard_normal(60), dtype=torch.float32) * 30}
    now = way.learn(Evidence("0", updates, mine, [], learnt, 2, 999, rng))
    assert [i for i, stray in enumerate(now.strays) if stray] == [0, 5, 21]
    assert (now.facts["strays"], now.facts["wild"]) == (3, 1)
    assert not any(Calibrated(stray=0.0).learn(Evidence("0", updates, mine, [], learnt, 2, 999, rng)).strays)


def test_odd_updates_and_visitors_stay_out_of_the_mean():
    def findings(strays, gain, visits):
        return Findings(None, [{}] * 4, gain, None, 0, {}, visits, strays)

    # The third claims to fit (0.9) and doesn't; the last is like no cohort; the second belongs elsewhere.
    requests = [said("0", 0.9), said("0", 0.2), said("0", 0.9), said("0", 0.9)]
    told = findings([False, False, False, True], [1.0, -0.1, -0.1, 0.3], [False, True, True, False])
    lies = find_lies(requests, told, claim=0.5)
    assert lies == [False, False, True, False]
    odd = find_odd(lies, told.strays)
    assert odd == [False, False, True, True]
    unheard = findings([False, False, False, True], [None] * 4, [False, True, True, True])
    assert find_lies(requests, unheard, 0.5) == lies  # too long to be told how they fit
    tasks_ = [Task(n, CheckIn(), {}) for n in range(4)]
    got = Got([answer(task, float(task.to)) for task in tasks_], [])
    left = leave_out(got, odd, told.visits)
    assert [r.task.to for r in left.replies] == [0]
    assert [(e.what.to, e.why) for e in left.lost] == [(1, "bad"), (2, "bad"), (3, "bad")]
    assert notes(note_guard("0", [4, 3, 2, 1], odd, told, 99)) == [
        ("guarded", {"replies": 4, "odd": 2, "changed": 0, "judged": [1, 2, 3, 4]}),
        ("anomalous", [2, 1]),
    ]
    # Where all but odd ones are visitors, the cohort learns from these; never from odd ones.
    assert [r.task.to for r in leave_out(got, odd, [True] * 4).replies] == [0, 1]
    assert find_odd(lies, [True] * 4) == [False] * 4  # then nobody can be believed or doubted
    assert leave_out(got, [False] * 4, None) is got
    # Criteria that look for no such, as the published ones, count lies alone.
    published = findings(None, [1.0, -0.1, -0.1, None], None)
    assert find_lies(requests, published, 0.5) == lies
    assert find_odd(lies, None) == [False] * 4
    assert note_guard("0", [1, 2, 3, 4], [False] * 4, published, 99) == []


def test_a_split_elsewhere_leaves_children_that_look_alike_at_first():
    way = Calibrated()
    told, _, _ = rounds_of(way, 2)
    learnt = way.split({"": told.state}, "", 2)
    again = way.split(learnt, "1", 2)
    assert list(again) == ["0", "10", "11"]
    assert torch.equal(again["0"].like["10"], learnt["0"].like["1"])
    assert again["10"].like.keys() == {"0"}  # nothing was known of its sides yet


def test_without_references_rewards_wait_until_members_have_been_seen():
    way, rng = Calibrated(), np.random.default_rng(0)
    updates, truth = kinds(rng, 2, count=4)
    fresh = {"0": way.start(), "1": way.start()}
    requests = [said(str(g)) | {"rewards": {str(g): 1.0, str(1 - g): 0.0}} for g in truth]
    first = way.learn(Evidence("0", updates, requests, [], fresh, 2, 99, rng))
    assert first.gain is None
    assert set(first.state.like) == {"0", "1"}
    second = way.learn(Evidence("0", updates, requests, [], {**fresh, "0": first.state}, 2, 99, rng))
    assert [max(fits, key=fits.get) for fits in second.others] == [str(g) for g in truth]


CAMPS = Experiment(  # two groups with other names for their labels
    data={
        "source": "digits",
        "clients": 60,
        "partition": "iid",
        "groups": {"kind": "permutation", "count": 2},
    },
    model={"name": "linear"},
    train={"lr": 0.3},
    stop={"rounds": 25},
    evaluate={"rounds": 5},
    run={"executor": "stacked"},
    algorithm="auxo",
    algorithms={"auxo": {"clients": 30, "first_split": 5}, "fedavg": {"clients": 30}},
)


def test_cohorts_of_two_camps_in_a_run():
    """They part by themselves, and fare better for it."""
    cohorts_, one = run(CAMPS), run(CAMPS.with_values(algorithm="fedavg"))
    assert report.count_cohorts(cohorts_) == 2
    everybody = report.measure_final_agreement(cohorts_, seen=False)
    assert everybody.rand > 0.9
    assert everybody.devices == report.count_evaluated(cohorts_) == 60
    ever = report.measure_final_agreement(cohorts_, seen=True)
    assert 54 < ever.devices == report.count_seen(cohorts_) <= 60
    assert cohorts_.summary["accuracy_mean"] > one.summary["accuracy_mean"] + 0.1
    assert 0 < series(cohorts_.lines, "affinity_bytes")[-1].value < 0.2 * cohorts_.summary["bytes_up"]
    target = report.find_best(one)
    when, effort = report.find_time_and_effort(cohorts_, target)
    assert 0 < effort < cohorts_.summary["device_seconds"]
    assert 0 < when < cohorts_.summary["virtual_seconds"]
    assert report.find_time_and_effort(one, target + 0.01) == (None, None)
    course = report.trace_agreement(cohorts_, seen=True)
    assert course[-1].value == ever.rand
    splits = [r["round"] for r in cohorts_.lines if r["metric"] == "split"]
    assert min(point.round for point in course) >= splits[0] > 0  # one cohort of all fits nothing
    assert report.measure_final_agreement(one, seen=False) is None


@pytest.mark.parametrize("what", ["spread", "gather"])
def test_who_forges_affinity_is_found_and_nobody_else(what):
    attack = {"kind": "forge_affinity", "share": 0.15, "what": what}
    spoilt = run(CAMPS.with_values(fleet={"attack": attack}))
    (attackers,) = [set(r["value"]) for r in spoilt.lines if r["metric"] == "attackers"]
    shut_out = {r["value"] for r in spoilt.lines if r["metric"] == "blacklisted"}
    assert len(attackers) == 9
    assert len(shut_out) >= 3  # in one cohort, a part of them belongs there
    assert shut_out <= attackers
    assert report.measure_final_agreement(spoilt, seen=False).rand > 0.75


def test_tables_dont_say_that_the_rules_are_the_authors_code():
    """It has neither the paper's criterion nor guesses; and what runs by default is Potluck's own."""
    told = algorithms.fidelity("auxo")
    assert told.startswith("paper")
    assert "the default, calibrated, is Potluck's own" in told
    assert isinstance(algorithms.make("auxo", LOCAL).criterion, Calibrated)


def test_another_task_reuses_the_cohorts_that_devices_remember(tmp_path):
    run(CAMPS, tmp_path / "first")
    other = CAMPS.with_values(
        model={"name": "mlp"},
        stop={"rounds": 2},
        fleet={"memories": str(tmp_path / "first")},
        algorithms={"auxo": {"clients": 30, "found": ["0", "1"]}},
    )
    second = run(other)
    before = report.read_memberships(second.lines)[0]  # before the first round
    assert report.measure_agreement(before, report.read_hidden_groups(second.lines), seen=True).rand > 0.9
    again = run(other)
    assert again.lines == second.lines
    with pytest.raises(ConfigError, match=r"fleet\.memories = 'nowhere'"):
        run(other.with_values(fleet={"memories": "nowhere"}))
    with pytest.raises(ConfigError, match="a run of more devices"):
        run(other.with_values(data={"source": "digits", "clients": 6}))


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"criterion": {"kind": "Faithful", "sides": 1}}, "sides = 1"),
        ({"cohorts": 4, "fewest": 2}, "cohorts = 4: can't all be fed"),
        ({"criterion": {"kind": "Faithful", "epsilon": 1.5}}, "epsilon = 1.5"),
        ({"criterion": {"kind": "Calibrated", "epsilon": -0.1}}, "epsilon = -0.1"),
        ({"inner": "fedasync"}, "inner"),
        ({"found": ["0", "01"]}, "found"),
        ({"found": ["a"]}, "found"),
        ({"criterion": {"kind": "Calibrated", "kappa": 2.0}}, "kappa = 2.0"),
        ({"waiting": 0.5}, "waiting = 0.5"),
        ({"criterion": {"kind": "Faithful", "gamma": 0.0}}, "gamma = 0.0"),
    ],
)
def test_bad_parameters_are_named(params, named):
    with pytest.raises(ConfigError, match=named.split(":")[0]):
        algorithms.make("auxo", LOCAL, clients=4, **params)


@pytest.mark.parametrize(
    ("old", "write"),
    [
        ("faithful", "criterion = 'faithful'"),
        ({"kind": "Faithful", "sides": 3}, r"criterion = \{'kind': 'Faithful', 'sides': 3\}"),
    ],
)
def test_the_key_that_criterion_once_had_says_what_to_write(old, write):
    with pytest.raises(ConfigError, match=rf"algorithms\.auxo\.mode = .*: write {write}"):
        algorithms.make("auxo", LOCAL, mode=old)


def test_the_papers_values_make_the_papers_criterion():
    made = algorithms.make("auxo", LOCAL, **PUBLISHED)
    assert (made.criterion, made.first_split) == (Faithful(), 20)


def test_the_inner_rule_trains_as_the_experiment_says():
    assert algorithms.make("auxo", LOCAL, clients=4).inner.local == LOCAL
    inner = algorithms.make("auxo", LOCAL, clients=4, inner={"kind": "qfedavg", "q": 2.0}).inner
    assert inner.server.q == 2.0


# ------------------------------------------------------------------------------------------------- in a run

FORCED = {"clients": 4, "cohorts": 2, "fewest": 2, "force": (2,), "criterion": "faithful"}


def test_it_runs_by_the_authors_code():
    made = algorithms.make("auxo", LOCAL, **{**FORCED, "criterion": "authors"})
    sim = finished(small(), made, rounds=6)
    assert set(sim.points[sim.root].own.state.model.cohorts) == {"0", "1"}


@pytest.mark.parametrize("inner", ["fedavg", "fedprox", "fedyogi", "qfedavg", "ftfa", "oort", "pyramidfl"])
def test_it_runs_over_other_algorithms(inner):
    plain = dataclasses.replace(LOCAL, optim=SGD(0.1))
    auxo = algorithms.make("auxo", plain, inner={"kind": inner}, **FORCED)
    sim = finished(small(), auxo, rounds=6)
    assert len(values(sim, "split")) == 1
    assert set(sim.points[sim.root].own.state.model.cohorts) == {"0", "1"}
    served = {r["view"] for r in sim.records if r["metric"] == "accuracy"}
    assert served == ({"tuned", "cohort"} if inner == "ftfa" else {"cohort"})


def test_what_the_server_holds_does_not_grow_with_the_population():
    auxo = algorithms.make("auxo", LOCAL, **FORCED)

    def held(devices):
        federation = small(sizes=(3,) * devices, data=pool(1000))
        sim = finished(federation, auxo, stop=StopAt(rounds=8))
        return len(codec.encode(sim.points[sim.root].own.state.model))

    few, many = held(12), held(48)
    assert many < few * 1.05


CROWD = Experiment(  # two kinds by labels, of whom hardly anybody comes twice
    data={
        "source": "digits",
        "partition": "procedural",
        "smallest": 30,
        "largest": 60,
        "groups": {"kind": "labels", "count": 2, "share": 0.95},
    },
    model={"name": "linear"},
    train={"lr": 0.1},
    stop={"rounds": 6},
    evaluate={"rounds": 6, "panel": 5},
    run={"executor": "stacked", "graphs": False},
    algorithm="auxo",
    algorithms={"auxo": {"clients": 60, "cohorts": 2}},
)


def test_a_hundred_thousand_split_as_soon_as_a_thousand_and_a_cohort_holds_the_same(monkeypatch):
    learn, crowd = Auxo._learn, {}

    def learn_and_keep(rule, m, lane, got, ctx):
        m, commands = learn(rule, m, lane, got, ctx)
        crowd["now"] = m
        return m, commands

    monkeypatch.setattr(Auxo, "_learn", learn_and_keep)
    held, split = {}, {}
    for clients in (1_000, 100_000):
        made = run(CROWD.with_overrides([f"data.clients={clients}"]))
        split[clients] = [r["value"]["round"] for r in made.lines if r["metric"] == "split"]
        held[clients] = len(codec.encode(crowd["now"].cohorts))
    assert split[100_000] == split[1_000] == [5]
    assert abs(held[100_000] / held[1_000] - 1) < 0.05


def test_a_server_that_forgot_a_split_goes_on_from_its_snapshot_and_the_devices_memory():
    auxo = algorithms.make("auxo", LOCAL, **{**FORCED, "force": (2, 30)})
    sim = finished(small(), auxo, rounds=6)
    after = sim.points[sim.root].own.state.model
    before = dataclasses.replace(
        after,
        cohorts={"": CohortState(after.cohorts["0"].inner, auxo.criterion.start())},
        queue={"": {}},
        running=(),
    )
    words = {}
    for node in range(10):
        kept = sim.memories.get(node, device.SLOT)
        at = local([], [], {"leaves": [""], "epsilon": 0.0}, kept)
        words[node] = device.unpack_request(CheckIn().run(at).body, [""])
    m = checked_in(auxo, before, Desk(), words)
    assert set(m.queue[""]) == set(range(10))
    # and when the tree is there again, devices still know their side of it
    known = [node for node in range(10) if (sim.memories.get(node, device.SLOT) or {}).get("reward")]
    assert known
    sure = 0
    for node in known:
        kept = sim.memories.get(node, device.SLOT)
        if len({kept["reward"].get(leaf) for leaf in ("0", "1")}) == 2:
            request = CheckIn().run(local([], [], {"leaves": ["0", "1"], "epsilon": 0.0}, kept)).body
            assert device.unpack_request(request, ["0", "1"])["cohort"] == max(
                ("0", "1"), key=lambda leaf: kept["reward"].get(leaf, -9)
            )
            sure += 1
    assert sure >= 2


def test_a_cohort_without_members_keeps_its_model_and_says_so():
    auxo, ctx = rule(cohorts=2, clients=8), Desk()
    start = auxo.start(ctx).cohorts[""]
    m = Crowd({"0": start, "1": start}, {"0": {}, "1": {}}, {}, round=0)
    spoken = []
    for _ in range(14):
        ctx = ctx.later(busy=set())
        m = checked_in(auxo, m, ctx, {n: said("0", 0.1, times=1) for n in range(4)})
        m, commands, _ = trained(auxo, m, "0", ctx, dict.fromkeys(range(4), (0.1, 0.0)))
        spoken += [c for c in commands if getattr(c, "name", "") == "deserted"]
    assert [c.group for c in spoken] == ["1"]
    assert torch.equal(m.cohorts["1"].inner.params["w"], start.inner.params["w"])
    assert "1" in m.cohorts


def test_notes_tell_the_life_of_cohorts():
    sim = finished(
        small(), algorithms.make("auxo", LOCAL, **{**FORCED, "clients": 8, "fewest": 4}), rounds=16
    )
    (split,) = values(sim, "split")
    assert split["round"] == 2
    assert 0 < split["heterogeneity_after"] < split["heterogeneity"]
    rounds = values(sim, "cohort")
    assert all(r["participants"] >= 1 for r in rounds)
    assert sum(r["newcomers"] for r in rounds) <= 10
    assert any("reward" in r for r in rounds)
    assert values(sim, "affinity_bytes")[-1] > 0


def test_membership_is_recorded_where_devices_choose():
    sim = finished(small(), algorithms.make("auxo", LOCAL, **FORCED), rounds=6, often=EvaluateAt(rounds=3))
    last = [r for r in sim.records if r["metric"] == "chosen" and r["round"] == 6]
    assert {r["node"] for r in last} == set(range(10))
    assert {r["value"]["name"] for r in last} <= {"0", "1"}
    assert any(r["value"]["times"] > 0 for r in last)


def test_devices_that_come_and_go_stall_nobody():
    away = Intervals.of([[(0, 1e9)] if n < 5 else [(0, 3.0)] for n in range(10)])
    sim = finished(small(availability=away), algorithms.make("auxo", LOCAL, **FORCED), rounds=6)
    assert sim.round == 6


def test_serving_offers_every_cohort_and_the_cloud_sees_them_all():
    auxo, ctx = rule(cohorts=2), Desk()
    start = auxo.start(ctx).cohorts[""]
    m = Crowd({"0": start, "1": start}, {"0": {}, "1": {}}, {})
    offered = auxo.serve(m, 3, ctx)["cohort"]
    assert isinstance(offered, Choice)
    assert set(offered.tasks) == {"0", "1"}
    assert set(auxo.serve(m, ctx.me, ctx)) == {"cohort 0", "cohort 1"}
