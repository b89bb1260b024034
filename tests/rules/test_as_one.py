"""Several answers as one, by hand: what a hub or an edge tells its parent."""

from dataclasses import replace

import pytest
import torch
from support import SPEC, answer, close, local, numbers

from potluck.algorithms.ifca.device import Pick
from potluck.algorithms.pyramidfl.device import Thin
from potluck.algorithms.tifl.device import Examine
from potluck.core.errors import ConfigError
from potluck.core.messages import Reply, Spent, Task
from potluck.jobs import Correct, LabelCounts, LabelSet, Probe, Train
from potluck.rules.as_one import answer_nothing, fold_bodies, fold_replies, fold_training, require_foldable

JOB = Train(SPEC)


def trained(weight, w, b=0.0, metrics=None, **more):
    reply = answer(Task(0, JOB, {"params": numbers(1.0, 2.0)}), w, b, weight, **more)
    return replace(reply, metrics=metrics or {})


def test_numbers_are_means_by_weight():
    body = fold_bodies(
        JOB, [{"delta": numbers(1, 4), "loss": 0.5}, {"delta": numbers(5, 0), "loss": 1.5}], [3, 1]
    )
    assert close(body["delta"], numbers(2, 3))  # (3 x 1 + 5) / 4, 3 x 4 / 4
    assert body["loss"] == 0.75


def test_truths_hold_if_they_hold_for_anybody_who_counts():
    rows = [torch.tensor(row) for row in ([True, False, False], [False, True, False], [True, True, True])]
    body = fold_bodies(JOB, [{"holds": r, "ready": i == 2} for i, r in enumerate(rows)], [3, 1, 0])
    assert body["holds"].tolist() == [True, True, False]
    assert body["ready"] is False


def test_what_is_no_number_must_be_the_same():
    assert fold_bodies(Probe(), [{"ballast": b"xy", "no": None}] * 2, [1, 2]) == {
        "ballast": b"xy",
        "no": None,
    }
    with pytest.raises(ConfigError, match=r"answers to Probe can't become one: it needs .* `fold`"):
        fold_bodies(Probe(), [{"ballast": b"xy"}, {"ballast": b"xz"}], [1, 1])


@pytest.mark.parametrize("whole", [torch.tensor([1, 2]), torch.zeros(2, dtype=torch.uint8)])
def test_whole_numbers_have_no_mean(whole):
    with pytest.raises(ConfigError, match="answers to Train can't become one"):
        fold_bodies(JOB, [{"model": whole}, {"model": whole}], [1, 1])


def test_counts_are_summed():
    counts = [{"counts": torch.tensor(c)} for c in ([1, 2], [30, 40])]
    assert fold_bodies(LabelCounts(2), counts, [3, 70])["counts"].tolist() == [31, 42]
    assert fold_bodies(Examine(SPEC), [{"right": 3}, {"right": 4}], [5, 6]) == {"right": 7}
    sets = [{"holds": torch.tensor(h)} for h in ([True, False], [False, False])]
    assert fold_bodies(LabelSet(2), sets, [3, 70])["holds"].tolist() == [True, False]


def test_metrics_are_means_of_what_all_tell_who_count():
    replies = [
        trained(3.0, 0, metrics={"loss": 1.0, "contrast": 5.0}),
        trained(1.0, 0, metrics={"loss": 3.0}),
        trained(0.0, 9.0),  # without rows it tells nothing, and counts for nothing
    ]
    made = fold_replies(replies)
    assert (made.weight, made.metrics) == (4.0, {"loss": 1.5})
    assert close(made.body["delta"], numbers(0, 0))


def test_nobody_and_nothing():
    assert fold_replies([]) is None
    # Without any weight each counts the same, and the answer nothing.
    idle = [
        Reply(Task(0, LabelSet(1), {}), {"holds": torch.tensor([h])}, 0.0, {}, Spent()) for h in (False, True)
    ]
    made = fold_replies(idle)
    assert (made.weight, made.metrics, made.body["holds"].tolist()) == (0.0, {}, [True])
    assert fold_training([]) == fold_training([trained(0.0, 7.0)]) == (None, 0.0, {})


def test_training_is_the_change_to_the_mean_of_models():
    made = fold_training([trained(1.0, 0.3, 1.0), trained(3.0, 0.1, 3.0)])
    assert made.weight == 4.0
    assert close(made.body["delta"], numbers(0.15, 2.5))
    # To the byte what a server makes that adds the mean change and subtracts what it was sent.
    mean = 0.25 * torch.tensor([0.3], dtype=torch.float64) + 0.75 * torch.tensor([0.1], dtype=torch.float64)
    assert made.body["delta"]["w"].item() == ((1.0 + mean) - 1.0).item()


def test_no_change_has_the_form_of_an_answer():
    sent = {"params": numbers(1.0, 2.0), "control": numbers(3.0, 4.0)}
    job = replace(JOB, objective=Correct())
    assert close(answer_nothing(Task(0, job, sent)), {"delta": numbers(), "control": numbers()})
    # What is packed comes open.
    packed = replace(JOB, objective=Thin(drop=0.5))
    assert close(answer_nothing(Task(0, packed, sent)), {"delta": numbers()})
    assert packed.cost(local([1.0], [0], sent)).sends["delta"].shape == (1,)


def test_choices_are_refused_before_a_run():
    require_foldable(replace(JOB, objective=Correct()), numbers(), "users")
    with pytest.raises(
        ConfigError, match=r"devices answer with 'model', and of several .* users can't make one"
    ):
        require_foldable(replace(JOB, objective=Pick(2)), numbers(), "users")
