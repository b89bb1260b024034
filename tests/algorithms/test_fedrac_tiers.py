"""Fed-RAC's budgets, bounds, sizes and assignment: the numbers by hand, and what holds for every crowd."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from potluck.algorithms.fedrac.admission import Bound, Surrogate, grow_threshold
from potluck.algorithms.fedrac.assignment import Place, Terms, allow_by_score, assign
from potluck.algorithms.fedrac.bounds import (
    Landscape,
    drift,
    inconsistency,
    precision,
)
from potluck.algorithms.fedrac.budgets import share_time
from potluck.algorithms.fedrac.costs import Costs
from potluck.algorithms.fedrac.results import add_rounds
from potluck.algorithms.fedrac.sizing import find_least_scale, find_scales
from potluck.core.errors import ConfigError

# -- budgets


def test_budgets_by_hand():
    # A tier has half the time of the next: 1 + 8 in parallel, 1 + 2 + 4 + 8 in a chain.
    assert share_time(9, 4, 0.5) == pytest.approx([1, 2, 4, 8])
    assert share_time(15, 4, 0.5, chained=True) == pytest.approx([1, 2, 4, 8])
    assert share_time(7, 1) == pytest.approx([7])
    assert share_time(7, 1, chained=True) == pytest.approx([7])


def test_the_printed_chain_does_not_add_up():
    kappa, last = 0.5, 8.0
    times = share_time(15, 4, kappa, chained=True)
    printed_sum = (kappa**3 + kappa + 1) * last  # skips kappa^2
    printed_total = (1 - kappa**4) / (1 - kappa)  # lacks the last tier's time
    assert times.sum() == pytest.approx(printed_total * last) == pytest.approx(15)
    assert printed_sum == pytest.approx(13)
    assert printed_total == pytest.approx(1.875)


@given(st.floats(1e-3, 1e9), st.integers(1, 12), st.floats(0.05, 0.95), st.booleans())
def test_budgets_use_up_the_time(total, tiers, kappa, chained):
    times = share_time(total, tiers, kappa, chained)
    used = times.sum() if chained else times[0] + times[1:].max(initial=0)
    assert used == pytest.approx(total)
    assert times[:-1] == pytest.approx(kappa * times[1:])


@pytest.mark.parametrize("kappa", [0, 1, 1.5, -0.5, math.nan])
def test_kappa_is_a_share(kappa):
    with pytest.raises(ConfigError, match=r"kappa = .*between 0 and 1"):
        share_time(9, 4, kappa)


def test_there_is_time_and_a_tier():
    with pytest.raises(ConfigError, match="time = 0: give the seconds"):
        share_time(0, 4)
    with pytest.raises(ConfigError, match="tiers = 0: there is at least one"):
        share_time(9, 0)


# -- bounds

LAND = Landscape(smooth=1.5, convex=0.7, noise=1.0, steep=1.0, start=0.0064)
ONES = Landscape(smooth=1.0, convex=1.0, noise=1.0, steep=1.0, start=1.0, gap=1.0, unlike=1.0)


def test_precision_by_hand():
    # beta = max(8 * 1.5 / .7, 20) = 20; 1.5 / .98 * (4 + .49 * 20 * .0064) / (20 + 6 * 20 - 1)
    assert precision(6, 20, LAND, drift=1.0) == pytest.approx(0.044737, abs=1e-6)


def test_drift_by_hand():
    # (.5^2 + .5^2) * 2 + 8 * (3 - 1)^2 * .25, and 6 L Gamma where data differ
    land = replace(LAND, noise=2.0, steep=0.25)
    assert drift([0.5, 0.5], 3, land) == pytest.approx(9)
    assert drift([0.5, 0.5], 3, replace(land, gamma=0.1)) == pytest.approx(9.9)


def test_inconsistency_by_hand():
    # tau_e 6, b2 = 2 * 6 * .25 * (1/4 + 1/8) = 1.125, b3 = 5, b4 = 56:
    # 4 / (.01 * 6 * 100) + 4 * .01 * 1.125 / 2 + 6e-4 * 5 + 12e-4 * 56
    assert inconsistency([4, 8], [0.5, 0.5], 0.01, 100, ONES) == pytest.approx(0.759367, abs=1e-6)


def test_one_alone_is_consistent_whatever_the_formula_gives():
    assert inconsistency([4], [1.0], 0.01, 100, ONES) == 0
    # 4 / (.01 * 4 * 100) + 4 * .01 * 4 / 4 + 6e-4 * 3 + 12e-4 * 12, as a second one without rows shows.
    assert inconsistency([4, 4], [1.0, 0.0], 0.01, 100, ONES) == pytest.approx(1.0562)


def test_a_landscape_is_checked():
    with pytest.raises(ConfigError, match="convex = 0: the bounds need mu above 0"):
        replace(LAND, convex=0)
    with pytest.raises(ConfigError, match=r"smooth = 0.5: L is no less than mu"):
        replace(LAND, smooth=0.5)
    with pytest.raises(ConfigError, match="noise = -1: give 0 or more"):
        replace(LAND, noise=-1)


# -- sizes


def test_poorer_tiers_have_smaller_models():
    # The print's M_{i-1} = alpha M_i would make them bigger.
    assert find_scales(0.5, [math.inf] * 4, lambda scale: 1.0) == pytest.approx([1, 0.5, 0.25, 0.125])


def test_models_shrink_until_they_fit_by_real_bytes():
    def size(scale):  # half the width, a quarter of the bytes
        return 1600 * scale**2

    assert find_scales(0.5, [1600, 400, 25], size) == pytest.approx([1, 0.5, 0.125])
    assert find_scales(0.5, [1599, 400, 100], size) == pytest.approx([0.5, 0.5, 0.25])
    # A small device among the rich shrinks all models after it, too.
    assert find_scales(0.5, [100, 1600, 1600], size) == pytest.approx([0.25, 0.25, 0.25])


def test_a_memory_that_no_model_fits_is_an_error():
    with pytest.raises(ConfigError, match=r"memory of tier 1 = 5 bytes: its model needs 10 even at scale"):
        find_scales(0.5, [20, 5], lambda scale: 10.0)


@pytest.mark.parametrize(("alpha", "times"), [(0.5, 9), (0.1, 3), (1e-3 ** (1 / 2), 1), (1e-4, 0)])
def test_the_smallest_scale_is_the_last_that_is_tried(alpha, times):
    """0.5^10 is below 1/1000, and so is the square of its root, in floating point; 0.1^3 isn't."""
    least = find_least_scale(alpha)
    assert least == pytest.approx(alpha**times)
    tried = []
    with pytest.raises(ConfigError):
        find_scales(alpha, [1.0], lambda scale: tried.append(scale) or 2.0)
    assert min(tried) == least


@pytest.mark.parametrize("alpha", [0, 1, 2, -0.5, math.nan])
def test_alpha_is_a_share(alpha):
    with pytest.raises(ConfigError, match=r"alpha = .*: a tier's model is a share"):
        find_scales(alpha, [1.0], lambda scale: 1.0)


# -- measures


def test_measures_by_hand():
    # Table VII, HAR: 36 + max(17, 29, 41), not the sum.
    assert add_rounds([36, 17, 29, 41]) == 77
    assert add_rounds([36]) == 36
    assert add_rounds([36, None, 29]) is None


# -- assignment


def crowd(n=3, tiers=2, **more):
    """Rows take 1 second in the first tier and half of the last one's in each next; links take 1 second."""
    given = dict(
        scores=np.linspace(1, 0, n),
        rows=np.full(n, 100),
        memory=np.full(n, 1000.0),
        compute=np.tile(0.5 ** np.arange(tiers), (n, 1)),
        link=np.ones((n, tiers)),
    )
    return Costs(**(given | more))


def terms(seconds=(201.0, 201.0), epochs=(2, 2), **more):
    return Terms(np.array(seconds), np.array(epochs), **({"batch": 10} | more))


def small(tier, batch):
    return 0.0


def tiers(assignment):
    return [place.tier for place in assignment.places]


def test_who_can_train_in_time_is_in_the_first_tier():
    slow = crowd(compute=np.array([[1, 0.5], [1.01, 0.5], [1, 0.5]]))
    # 2 epochs * 100 rows * 1 s + 1 s = 201 s; the second needs 203 s, so trains on 90 rows.
    made = assign(slow, terms(), small)
    assert made.places == (
        Place(0, 0, 2, 100, 10),
        Place(1, 0, 2, 90, 10, reduced=True),
        Place(2, 0, 2, 100, 10),
    )
    assert made.unable == ()
    # Nothing may be reduced: the next tier, where it needs 101 s.
    strict = assign(slow, terms(epochs=(1, 2), seconds=(101.0, 101.0), least_rows=1.0), small)
    assert strict.members(0) == (Place(0, 0, 1, 100, 10), Place(2, 0, 1, 100, 10))
    assert strict.members(1) == (Place(1, 1, 2, 100, 10),)


def test_rows_go_first_then_epochs_down_to_the_floors():
    one = crowd(1, 2)
    # 2 * 60 + 1 s; 2 * 50 + 1 s; then 1 * 50 + 1 s.
    assert assign(one, terms((121.0, 9.0)), small).places == (Place(0, 0, 2, 60, 10, reduced=True),)
    assert assign(one, terms((120.9, 9.0)), small).places == (Place(0, 0, 2, 50, 10, reduced=True),)
    assert assign(one, terms((100.0, 9.0)), small).places == (Place(0, 0, 1, 50, 10, reduced=True),)
    # 5 steps are too few where 6 are asked for; in the last tier 2 epochs take .5 * 200 + 1 s.
    asked = terms((100.0, 101.0), least_steps=6)
    assert assign(one, asked, small).places == (Place(0, 1, 2, 100, 10),)


def test_the_last_tier_takes_all_who_are_left_with_the_least_work():
    made = assign(crowd(2), terms((10.0, 10.0)), small)
    assert made.places == tuple(Place(who, 1, 1, 50, 10, reduced=True, late=True) for who in range(2))


def test_memory_halves_the_batch_and_then_closes_the_tier():
    def need(tier, batch):  # bytes of the model and of a batch
        return (800, 200)[tier] + 20 * batch

    fits = crowd(4, memory=np.array([1000.0, 925.0, 819.0, 219.0]))
    made = assign(fits, terms(), need)
    # 800 + 20 * 10 fits; 800 + 20 * 5 fits 925, as batches halve; 800 + 20 * 1 doesn't fit
    # 819, nor 200 + 20 * 1 fit 219.
    assert [(place.who, place.tier, place.batch) for place in made.places] == [
        (0, 0, 10),
        (1, 0, 5),
        (2, 1, 10),
    ]
    assert made.unable == (3,)
    assert not made.places[1].reduced  # as many rows and epochs as any


def test_the_richest_choose_first_and_ties_go_by_participant():
    # Room for one: a second loss makes the spread too large.
    judge = Surrogate(np.array([0.1, 0.2, 0.3]), grow_threshold(2, 9.0), np.array([0.04, 9.0]))
    assert tiers(assign(crowd(scores=np.array([0.1, 0.9, 0.5])), terms(), small, judge)) == [1, 0, 1]
    assert tiers(assign(crowd(scores=np.ones(3)), terms(), small, judge)) == [0, 1, 1]


def test_losses_are_judged_with_the_candidate_included():
    losses = np.array([0.02, 0.05, 0.03, 0.03])
    judge = Surrogate(losses, grow_threshold(2, 0.03), grow_threshold(2, 0.03, 1.2))
    # .02; (.02 + .05) / 2 = .035 > .03; (.02 + .03) / 2; (.02 + .03 + .03) / 3
    assert tiers(assign(crowd(4), terms(), small, judge)) == [0, 1, 0, 0]
    # .005 is as far as the second may be from the mean, .025, but the fourth would leave the first .0067 off.
    tight = replace(judge, spread=np.array([0.0051, 1.0]))
    assert tiers(assign(crowd(4), terms(), small, tight)) == [0, 1, 0, 1]
    assert grow_threshold(3, 0.03, 1.2) == pytest.approx([0.03, 0.036, 0.0432])


def test_an_unknown_loss_leaves_the_placing_to_resources():
    judge = Surrogate(np.array([np.nan, 0.5, 0.01]), grow_threshold(2, 0.03), grow_threshold(2, 0.03))
    assert tiers(assign(crowd(), terms(), small, judge)) == [0, 1, 0]


def test_one_alone_is_judged_by_precision_only():
    alone = [Place(0, 0, 1, 40, 10)]
    both = [*alone, Place(1, 0, 2, 40, 10)]  # 4 and 8 steps
    at = lambda delta, theta: Bound(ONES, np.array([100.0]), 0.01, np.array([delta]), np.array([theta]))  # noqa: E731
    # beta = 8; .5 / (8 + 100 - 1) * (4 * 1 + 8) = .056075
    assert at(0.0561, 0.0).admits(0, alone)
    assert not at(0.0560, 0.0).admits(0, alone)
    # 1.5 epochs in the mean, B = .5 + 8 * .25 = 2.5: .5 / (8 + 150 - 1) * (10 + 8) = .057325
    assert at(0.0574, 0.7594).admits(0, both)
    assert not at(0.0573, 0.7594).admits(0, both)
    assert not at(0.0574, 0.7593).admits(0, both)


def test_bounds_place_a_crowd():
    # Alone .056075; two alike average their noise: .5 / 107 * (2 + 8) = .0467, but leave an inconsistency of
    # 4 / (.01 * 10 * 100) + .04 * .5 / 1 ... above .4.
    one_epoch = terms(epochs=(1, 1))
    judge = Bound(ONES, np.full(2, 100.0), 0.01, np.full(2, 0.06), np.array([0.3, 9.0]))
    assert tiers(assign(crowd(), one_epoch, small, judge)) == [0, 1, 1]
    assert tiers(assign(crowd(), one_epoch, small, replace(judge, spread=np.full(2, 9.0)))) == [0, 0, 0]


def test_scores_may_stand_in_for_times():
    scores, labels = np.array([0.9, 0.7, 0.55, 0.3, 0.1]), np.array([0, 0, 1, 1, 2])
    # Means .8, .425 and .1: .55 is nearer to .425 than to .8, and .3 nearer to .425 than to .1.
    allowed = allow_by_score(scores, labels)
    assert allowed.tolist() == [
        [True, True, True],
        [True, True, True],
        [False, True, True],
        [False, True, True],
        [False, False, True],
    ]
    free = terms((math.inf,) * 3, (2, 2, 2))
    assert tiers(assign(crowd(5, 3, scores=scores), free, small, allowed=allowed)) == [0, 0, 1, 1, 2]
    assert tiers(assign(crowd(5, 3, scores=scores), free, small)) == [0] * 5


def test_crowds_and_terms_are_checked():
    with pytest.raises(ConfigError, match=r"memory.shape = \(2,\): should be \(3,\)"):
        crowd(memory=np.ones(2))
    with pytest.raises(ConfigError, match=r"rows = .*: who takes part has a row at least"):
        crowd(rows=np.array([5, 0, 5]))
    with pytest.raises(ConfigError, match=r"link = .*: give 0 or more"):
        crowd(link=np.full((3, 2), -1.0))
    with pytest.raises(ConfigError, match="least_rows = 0: give a share"):
        terms(least_rows=0)
    with pytest.raises(ConfigError, match=r"epochs = .*: train for at least 1"):
        terms(epochs=(1, 0))
    with pytest.raises(ConfigError, match="least_steps = 0"):
        terms(least_steps=0)
    with pytest.raises(ConfigError, match=r"seconds.shape = \(2,\)"):
        terms(epochs=(1, 1, 1))
    with pytest.raises(ConfigError, match=r"compute.shape = \(3, 3\): there are terms for 2 tiers"):
        assign(crowd(tiers=3), terms(), small)
    with pytest.raises(ConfigError, match="threshold = 0"):
        grow_threshold(3, 0)


@st.composite
def situations(draw):
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 4))

    def floats(shape, low, high):
        return draw(hnp.arrays(np.float64, shape, elements=st.floats(low, high)))

    people = Costs(
        floats(n, 0, 1),
        draw(hnp.arrays(np.int64, n, elements=st.integers(1, 300))),
        floats(n, 0, 500),
        floats((n, m), 0, 2),
        floats((n, m), 0, 50),
    )
    asked = Terms(
        floats(m, 1, 500),
        draw(hnp.arrays(np.int64, m, elements=st.integers(1, 5))),
        draw(st.integers(1, 64)),
        draw(st.floats(0.1, 1)),
        draw(st.integers(1, 5)),
    )
    judge = Surrogate(floats(n, 0, 1), floats(m, 0, 1), floats(m, 0, 1))
    return people, asked, draw(st.sampled_from([None, judge]))


@settings(deadline=None)
@given(situations())
def test_everyone_has_one_place_within_every_limit(situation):
    people, asked, judge = situation
    last = len(asked.seconds) - 1

    def need(tier, batch):  # no tier's model is bigger than that before it
        return 200 / (tier + 1) + batch

    made = assign(people, asked, need, judge)
    who = [place.who for place in made.places]
    assert sorted([*who, *made.unable]) == list(range(len(people.rows)))
    assert who == sorted(who)
    assert sum(len(made.members(tier)) for tier in range(last + 1)) == len(who)
    for i in made.unable:
        assert need(last, 1) > people.memory[i]
    for place in made.places:
        i, tier, rows = place.who, place.tier, int(people.rows[place.who])
        assert need(tier, place.batch) <= people.memory[i]
        assert asked.least_rows * rows - 1e-6 <= place.rows <= rows
        assert 1 <= place.epochs <= asked.epochs[tier]
        assert 1 <= place.batch <= asked.batch
        assert place.reduced == ((place.epochs, place.rows) != (asked.epochs[tier], rows))
        assert not place.reduced or place.steps >= asked.least_steps
        took = place.epochs * place.rows * people.compute[i, tier] + people.link[i, tier]
        assert place.late == (took > asked.seconds[tier])
        assert tier == last or not place.late
    assert assign(people, asked, need, judge) == made
