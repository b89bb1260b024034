"""The sentence that a comparison ends with."""

import pytest
from test_report_figures import compared, line, made

from potluck.report.columns import list_remarks
from potluck.report.verdict import tell_verdict


def run(algorithm, seed, accuracy, reached=None, sent=1e6, **more):
    """It ends at an accuracy, reaches 50 % at a time, and sends so many bytes."""
    points = [line(0.0, "accuracy_mean", 0.0, view="global")]
    points += [] if reached is None else [line(reached, "accuracy_mean", 0.5, view="global")]
    return made(*points, algorithm=algorithm, seed=seed, accuracy_mean=accuracy, bytes_up=sent, **more)


def race(*runs):
    return compared(*runs, seeds=[1, 2, 3], evaluate={"target": 0.5})


def runs(algorithm, accuracies, **more):
    return [run(algorithm, seed, accuracy, **more) for seed, accuracy in enumerate(accuracies, 1)]


def test_a_winner_and_what_it_costs():
    base = runs("fedavg", [0.86, 0.87, 0.88], reached=18.0)
    better = runs("auxo", [0.90, 0.912, 0.922], reached=10.0, sent=1.3e6)
    # Paired differences 0.040, 0.042, 0.042: far from 0. 18 / 10 sooner; 1.3 times the bytes.
    assert tell_verdict(race(*base, *better)) == (
        "auxo won: 91.1 % against fedavg's 87.0 %, 1.8 times sooner to 50 %, with 1.3 times the traffic."
    )


def test_the_first_can_win_too_and_is_measured_against_the_next():
    best = runs("fedavg", [0.9, 0.9, 0.91], reached=20.0)
    others = [*runs("a", [0.5, 0.5, 0.52], reached=10.0), *runs("b", [0.6, 0.6, 0.62], reached=10.0)]
    assert tell_verdict(race(*best, *others)) == (
        "fedavg won: 90.3 % against b's 60.7 %, 2.0 times later to 50 %, with the same traffic."
    )


def test_seeds_that_do_not_tell_them_apart():
    one, two = runs("fedavg", [0.80, 0.90, 0.85], reached=9.0), runs("b", [0.90, 0.80, 0.88], reached=6.0)
    # Differences 0.10, -0.10, 0.03: mean 0.01, deviation 0.1015, half 4.303 * 0.1015 / sqrt(3) = 0.252.
    assert tell_verdict(race(*one, *two)) == (
        "No clear winner: b's 86.0 % and fedavg's 85.0 % can't be told apart (paired difference +1.0 ± 25.2 "
        "points over 3 seeds, a 95 % interval); of these, b was first at 50 %, after 6.0 s against 9.0 s."
    )


def test_a_rival_in_the_middle_spoils_a_clear_victory_over_the_first():
    one = runs("fedavg", [0.5, 0.5, 0.51])
    two, three = runs("b", [0.90, 0.80, 0.88]), runs("c", [0.85, 0.85, 0.86])
    said = tell_verdict(race(*one, *two, *three))
    assert said.startswith("No clear winner: b's 86.0 % and c's 85.3 % can't be told apart")
    assert "fedavg" not in said


def test_missed_targets():
    base, better = runs("fedavg", [0.4, 0.4, 0.41]), runs("b", [0.9, 0.9, 0.91], reached=7.0, sent=5e5)
    assert tell_verdict(race(*base, *better)) == (
        "b won: 90.3 % against fedavg's 40.3 %, at 50 % after 7.0 s, which fedavg missed, "
        "with 0.5 times the traffic."
    )
    some = [run("fedavg", 1, 0.4, reached=5.0), *base[1:]]
    assert "which fedavg missed with 2 of 3 seeds" in tell_verdict(race(*some, *better))


def test_a_target_that_is_met_before_anything_is_trained_is_not_missed():
    base, better = runs("fedavg", [0.8, 0.8, 0.81], reached=0.0), runs("b", [0.9, 0.9, 0.91], reached=0.0)
    assert tell_verdict(race(*base, *better)) == (
        "b won: 90.3 % against fedavg's 80.3 %, as soon to 50 %, with the same traffic."
    )
    later = runs("b", [0.9, 0.9, 0.91], reached=4.0)
    assert "fedavg's 80.3 %, at 50 % later, with" in tell_verdict(race(*base, *later))
    assert "b's 80.3 %, at 50 % sooner, with" in tell_verdict(
        race(*runs("b", [0.8, 0.8, 0.81], reached=4.0), *runs("c", [0.9, 0.9, 0.91], reached=0.0))
    )


def test_one_seed_says_so():
    said = tell_verdict(race(run("fedavg", 1, 0.8), run("b", 1, 0.9)))
    assert said.startswith("b came out ahead: 90.0 % against fedavg's 80.0 %")
    assert "one seed only, so this may be chance" in said
    two = tell_verdict(race(*runs("fedavg", [0.8, 0.81]), *runs("b", [0.9, 0.91])))
    assert "; 2 seeds only, so this may be chance (--seeds 1,2,3 would tell)." in two
    assert tell_verdict(race(run("a", 1, 0.8), run("b", 1, 0.795), run("c", 1, 0.7))) == (
        "No clear winner: a and b end within a point of 80.0 %, with one seed (--seeds 1,2,3 would tell)."
    )


@pytest.mark.parametrize("alone", [[run("a", 1, 0.8)], [run("a", 1, 0.8), run("b", 1, None)]])
def test_nothing_to_compare(alone):
    assert tell_verdict(race(*alone)) == ""


def test_unfinished_runs_have_no_winner():
    under_way = run("b", 1, 0.9, finished=None)
    assert tell_verdict(race(run("a", 1, 0.8), under_way)) == "No verdict yet: b-1 is unfinished."


def test_seeds_that_went_wrong_alike_are_told_together():
    wrong = [{"kind": "chance", "text": "learns nothing", "cause": "the rate"}]
    some = [run("a", seed, 0.1, remarks=wrong if seed > 1 else []) for seed in (1, 2, 3)]
    assert list_remarks(race(*some, *runs("b", [0.9, 0.9, 0.9]))) == [
        "a (seed 2, and alike with 3): learns nothing. Likeliest cause: the rate."
    ]
    assert list_remarks(compared(run("a", 1, 0.1, remarks=wrong))) == [
        "a: learns nothing. Likeliest cause: the rate."
    ]
    tiers = [{"kind": "collapsed", "text": f"tier {f}", "cause": "x"} for f in (1, 2)]
    assert [told[:14] for told in list_remarks(compared(run("a", 1, 0.1, remarks=tiers)))] == [
        "a: tier 1. Lik",
        "a: tier 2. Lik",
    ]
