"""What a result is refused for: nothing that others say of it is believed."""

import torch
from support import local, numbers

from potluck.core.job import Cost, Result
from potluck.engine.checks import find_problem
from potluck.execute.reference import run_alone

SENDS = {"delta": numbers()}
PROMISED = Cost(sends=SENDS)
SPOILT = {"delta": numbers(float("nan"), 1.0)}


def test_who_says_that_its_numbers_are_finite_is_believed_only_if_it_is_ours():
    lie = Result(SPOILT, finite=True)
    assert find_problem(lie, PROMISED, trusted=False) == "NaN or infinite numbers"
    assert find_problem(Result(SPOILT), PROMISED, trusted=True) == "NaN or infinite numbers"
    assert find_problem(lie, PROMISED, trusted=True) is None  # our executors have looked: nobody looks twice
    assert find_problem(Result(SENDS, finite=True), PROMISED, trusted=False) is None


def test_a_form_is_checked_whoever_sends_it():
    wrong = Result({"delta": {"w": torch.zeros(3)}}, finite=True)
    assert "keys, shapes or types differ" in find_problem(wrong, PROMISED, trusted=True)


class Boast:
    """A job that runs as it likes, and says that its numbers are finite."""

    def cost(self, at):
        return Cost()

    def run(self, at):
        return Result(SPOILT, finite=True)


def test_a_job_is_not_believed_about_its_own_numbers():
    result = run_alone(Boast(), local([0.0], [0], {}))
    assert result.body is SPOILT
    assert not result.finite
