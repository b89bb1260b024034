"""Advice fits federations whose parameters are drawn at random, from what is measured of them alone."""

from dataclasses import replace

import numpy as np
import pytest

from bench.advice import FITS, MIXTURES, federation
from potluck.advice import measure
from potluck.advice.conflict import find_conflict
from potluck.advice.labels import deal_again, measure_distance, measure_gini, share_unseen
from potluck.advice.measure import LOOKED_AT
from potluck.advice.recommendation import Verdict, judge
from potluck.core.advice import HELPS, MAY_HELP, NO_REASON, Advice, score
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.fleet import fedrac40

EQUAL = {"data": {"source": "digits", "partition": "iid", "clients": 30}, "fleet": {"source": "uniform"}}


def measured(experiment):
    full = experiment.resolve()
    return measure(build_federation(full), full)


def advice(experiment):
    return judge(measured(experiment))


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize("seed", range(5, 9))
def test_one_need_names_the_system_that_is_made_for_it(kind, seed):
    found = advice(federation(kind, seed))
    assert found.first is not None
    assert found.first.algorithm == FITS[kind]


@pytest.mark.parametrize("seed", range(5, 11))
def test_equal_devices_need_nothing_but_fedavg(seed):
    found = advice(federation("equal", seed))
    assert found.first is None
    assert found.runners_up == ()


@pytest.mark.parametrize("kind", MIXTURES)
def test_two_needs_give_a_recommendation_and_a_runner_up(kind):
    found = advice(federation(kind, 5))
    named = [found.first.algorithm, *(a.algorithm for a in found.runners_up)]
    assert {FITS[part] for part in kind.split("+")} <= set(named)
    assert [a.score for a in found.advice] == sorted((a.score for a in found.advice), reverse=True)


def test_settings_have_no_say(tmp_path):
    """Groups that nobody told the experiment of: every user's labels are named in one of two ways."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    user = np.arange(len(digits.target)) % 36
    other = (user % 2 == 1) & (digits.target < 8)
    y = np.where(other, (digits.target + 3) % 8, digits.target)
    for name, labels in (("mine", y), ("alike", digits.target)):
        np.savez(tmp_path / f"{name}.npz", x=digits.data, y=labels, user=user)
    at = {"source": "npz", "partition": "by_user"}
    mine = measured(Experiment(data={**at, "path": str(tmp_path / "mine.npz")}, fleet={"source": "uniform"}))
    alike = advice(Experiment(data={**at, "path": str(tmp_path / "alike.npz")}, fleet={"source": "uniform"}))
    assert judge(mine).first.algorithm == "auxo"
    assert mine.conflict.groups == 2
    even = mine.conflict.member[np.arange(36) % 2 == 0]
    odd = mine.conflict.member[np.arange(36) % 2 == 1]
    assert len(set(even)) == len(set(odd)) == 1
    assert even[0] != odd[0]
    assert alike.first is None


def test_phones_of_fed_rac_need_it_once_memory_is_tight():
    full = Experiment(data=EQUAL["data"] | {"clients": 40}, fleet={"source": "fedrac40"}).resolve()
    federation = build_federation(full)
    roomy = measure(federation, full)
    assert roomy.memory.short == 0
    assert judge(roomy).first is None
    # 3 GiB now hold just less than training takes: of the 40 phones 2 have 1, 1 has 2 and 8 have 3.
    memory = fedrac40(40).memory / (3 * 2.0**30) * (roomy.memory.needed - 1)
    assert (fedrac40(40).memory <= 3 * 2.0**30).sum() == 11
    tight = replace(
        federation, fleet=replace(federation.fleet, true=replace(federation.fleet.true, memory=memory))
    )
    found = measure(tight, full)
    assert found.memory.short == 11 / 40
    assert judge(found).first.algorithm == "fedrac"


def test_a_model_of_one_width_is_no_case_for_tiers():
    fleet = {"source": "mobile", "memory": [5e3, 5e4]}
    found = advice(Experiment(data=EQUAL["data"], fleet=fleet, model={"name": "linear"}))
    assert found.first is None
    assert found.runners_up[0].algorithm == "fedrac"
    assert "one width" in found.runners_up[0].why


def test_even_labels_below_edges_need_no_personal_models():
    tables = {**EQUAL, "fleet": federation("edges", 5).fleet}
    assert advice(Experiment(**tables)).first.algorithm == "fededge"


def test_uneven_labels_alone_are_no_reason():
    found = advice(Experiment(data={"source": "digits", "clients": 30, "alpha": 0.1}, fleet=EQUAL["fleet"]))
    assert found.first is None
    why = next(a.why for a in found.advice if a.algorithm == "classter")
    assert "ftfa" in why


def test_a_near_tie_has_both_names():
    """Scores on both sides of the lines: 0.5 helps, 0.3 may help."""
    a, b, c = (Advice(name, name, score, "", "") for name, score in (("a", 0.51), ("b", 0.5), ("c", 0.29)))
    found = Verdict((a, b, c))
    assert [x.verdict for x in found.advice] == [HELPS, HELPS, NO_REASON]
    assert (found.first, found.runners_up) == (a, (b,))
    maybe = replace(a, score=0.31)
    assert maybe.verdict == MAY_HELP
    assert (Verdict((maybe, c)).first, Verdict((maybe, c)).runners_up) == (None, (maybe,))
    assert score(1.0) == 0.5
    assert score(0.0) == 0.0


def test_of_many_devices_some_are_looked_at():
    big = {"source": "digits", "partition": "procedural", "clients": 200_000, "classes_per_client": 10}
    found = measured(Experiment(data=big, fleet={"source": "uniform"}))
    assert found.devices == 200_000
    assert len(found.looked_at) == LOOKED_AT
    assert judge(found).first is None


def test_the_same_federation_gets_the_same_advice():
    assert advice(federation("users", 5)) == advice(federation("users", 5))


# ------------------------------------------------------------------------------------------------ quantities


def test_unseen_rows_skew_and_gini_by_hand():
    train, test = np.array([[4, 0], [2, 2]]), np.array([[1, 1], [1, 1]])
    # Device 0 doesn't train on class 1, half of its test rows; device 1 knows both: 1 of 4.
    assert share_unseen(train, test) == 0.25
    # Mixes (1, 0) and (1/2, 1/2) from (1/2, 1/2): total variation 1/2 and 0.
    assert measure_distance(train, np.array([0.5, 0.5])) == 0.25
    # Sizes 1 and 3: the mean absolute difference of all pairs (0, 2, 2, 0) is 1, over twice the mean: 1/4.
    assert np.isclose(measure_gini(np.array([1, 3])), 0.25)


def test_dealing_again_moves_rows_between_splits_only():
    train, test = np.array([[9, 0, 3], [0, 5, 1]]), np.array([[0, 4, 1], [2, 0, 0]])
    again = deal_again(train, test, np.random.default_rng(0))
    assert (sum(again) == train + test).all()
    assert (again[1].sum(1) == test.sum(1)).all()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_groups_are_found_among_devices_that_share_few_classes(seed):
    """Two ways to name six classes; a device holds two or three of them."""
    rng = np.random.default_rng(seed)
    centre, clients = rng.normal(size=(6, 10)) * 3, 40
    truth, owner = np.arange(clients) % 2, np.repeat(np.arange(clients), 12)
    held = [rng.choice(6, rng.integers(2, 4), replace=False) for _ in range(clients)]
    y = np.concatenate([rng.choice(own, 12) for own in held])
    x = rng.normal(size=(len(y), 10))
    alike = find_conflict(x + centre[y], y, owner, clients, 6, rng)
    assert alike.gain < 0.02
    named = np.where(truth[owner] == 1, (y + 1) % 6, y)  # what the second half sees when it says y
    found = find_conflict(x + centre[named], y, owner, clients, 6, rng)
    assert found.groups == 2
    assert max((found.member == truth).mean(), (found.member != truth).mean()) == 1.0
    assert found.gain > 0.2


def test_moved_features_alone_are_no_conflict():
    """Brighter images in half of the devices: class means differ, but one probe suits all."""
    data = {**EQUAL["data"], "groups": {"kind": "affine", "count": 2}}
    found = measured(Experiment(data=data, fleet=EQUAL["fleet"])).conflict
    assert found.explained > 0.3
    assert found.gain < 0.02
