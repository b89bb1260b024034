"""A temperature and biases from sums: derivatives by hand, what is found again, and what stays finite."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.jobs import calibrate
from potluck.jobs.calibrate import (
    FLAT,
    STEEP,
    begin_search,
    count_bytes,
    end_search,
    fit_here,
    share_of,
    sum_up,
    take_step,
    tame,
)


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def ones(rows):
    return torch.ones(rows, dtype=torch.float64)


def drawn(rows, classes, seed=0):
    """Logits of deviation 2, and labels as likely as their softmax says."""
    random = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(rows, classes, dtype=torch.float64, generator=random)
    return z, torch.multinomial(z.softmax(-1), 1, generator=random).squeeze(1)


def fit(logits, labels, rounds=calibrate.ROUNDS):
    search = begin_search(logits, logits.shape[-1])
    for _ in range(rounds):
        sums = sum_up(logits, labels, ones(len(labels)), search.at)
        search = take_step(search, sums)
    return end_search(search, share_of(sums.counts))


def test_sums_of_one_row_by_hand():
    far = math.log(3)  # chances 1/4 and 3/4, and the label is the first
    sums = sum_up(table([0.0, far]), torch.tensor([0]), ones(1), table(1.0, 0.0, 0.0))
    assert sums.counts.tolist() == [1, 0]
    assert float(sums.loss) == pytest.approx(math.log(4))
    assert sums.slope.tolist() == pytest.approx([0.75 * far, -0.75, 0.75])
    v = 0.25 * 0.75
    by_hand = [[v * far**2, -v * far, v * far], [-v * far, v, -v], [v * far, -v, v]]
    assert sums.curve.flatten().tolist() == pytest.approx([n for row in by_hand for n in row])


def test_sums_are_derivatives():
    logits, labels = drawn(20, 4)
    weight, offset = table(*([1.0] * 17 + [0.0] * 3)), table(0.3, -0.2, 0.1, 0.5)

    def loss(at):
        return sum_up(logits, labels, weight, at, offset).loss

    at = table(0.7, 0.2, -0.1, 0.4, 0.0)
    sums = sum_up(logits, labels, weight, at, offset)
    assert torch.allclose(sums.slope, torch.autograd.functional.jacobian(loss, at))
    assert torch.allclose(sums.curve, torch.autograd.functional.hessian(loss, at))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 12), st.integers(0, 9), st.integers(0, 99))
def test_sums_add_up_over_devices_and_padding_counts_nothing(cut, padding, seed):
    logits, labels = drawn(12, 3, seed)
    at = table(1.3, 0.1, -0.4, 0.2)
    whole = sum_up(logits, labels, ones(12), at)
    more = torch.full((padding, 3), torch.nan, dtype=torch.float64)
    weight = torch.cat([ones(12 - cut), torch.zeros(padding, dtype=torch.float64)])
    parts = (
        sum_up(logits[:cut], labels[:cut], ones(cut), at),
        sum_up(torch.cat([logits[cut:], more]), torch.cat([labels[cut:], labels[:padding]]), weight, at),
    )
    for all_, one, other in zip(whole, *parts, strict=True):
        assert torch.allclose(all_, one + other)


def test_what_a_model_is_wrong_about_is_found_again():
    honest, labels = drawn(6000, 4)
    bias = table(0.8, -0.5, 0.2, -0.5)
    found = fit((honest - bias) * 1.6, labels)  # too sure, and biased
    assert 1 / float(found.slope) == pytest.approx(1.6, rel=0.05)
    assert (found.bias - found.bias.mean()).tolist() == pytest.approx(bias.tolist(), abs=0.12)
    right = found.read((honest - bias) * 1.6)
    assert float((right - honest.log_softmax(-1)).abs().mean()) < 0.1
    assert found.source.tolist() == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize("sure", [1e-6, 1.0, 1e3])
def test_rows_told_apart_without_error_leave_it_finite(sure):
    labels = torch.tensor([0, 1, 2] * 30)  # of a fourth class there is no row
    logits = sure * torch.nn.functional.one_hot(labels, 4).double()
    found = fit(logits, labels)
    assert FLAT <= float(found.slope) <= STEEP
    assert found.bias.isfinite().all()
    assert found.bias.abs().max() < 10
    assert found.bias[3] <= found.bias.min() + 1e-9  # who is never right is believed less, if at all
    assert found.source.min() > 0


def test_nothing_to_fit_changes_nothing():
    found = fit(torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0).long())
    assert [float(found.slope), *found.bias] == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert found.source.tolist() == pytest.approx([1 / 3] * 3)


def test_a_row_without_numbers_says_nothing():
    rows = tame(table([0.0, torch.nan], [torch.inf, 0.0], [0.0, 0.0], [1e9, 0.0]))
    assert rows[:3].exp().flatten().tolist() == pytest.approx([0.5] * 6)
    assert rows[3].tolist() == [0.0, -50.0]


@pytest.mark.parametrize("seed", range(5))
def test_the_last_rounds_change_little(seed):
    logits, labels = drawn(300, 10, seed)
    logits = logits * (0.01, 0.3, 1.0, 5.0, 40.0)[seed]
    some, many = fit(logits, labels), fit(logits, labels, rounds=60)
    assert float((some.read(logits) - many.read(logits)).abs().max()) < 1e-3


def test_alone_a_device_takes_its_own_classes_for_common_not_for_biases():
    honest, labels = drawn(4000, 4)
    mine = labels < 2
    found = fit_here(2 * honest[mine], labels[mine], ones(int(mine.sum())))
    # Of two classes it knows which is which; of the others nothing, though it never meets one.
    assert 1 / float(found.slope) == pytest.approx(2.0, rel=0.15)
    assert found.bias.abs().max() < 0.25
    assert found.source.tolist() == [0.25] * 4
    one = fit_here(honest[labels == 3], labels[labels == 3], ones(int((labels == 3).sum())))
    assert float(one.slope) == pytest.approx(1.0)
    assert one.bias.abs().max() < 1e-6


def test_many_devices_at_once_find_what_each_does():
    parts = [drawn(9, 3, seed) for seed in range(3)]
    logits, labels = (torch.stack(column) for column in zip(*parts, strict=True))
    weight = torch.stack([ones(9), table(*[1.0] * 5, *[0.0] * 4), torch.zeros(9, dtype=torch.float64)])
    each = torch.vmap(fit_here)(logits, labels, weight)
    for i, n in enumerate((9, 5, 0)):
        alone = fit_here(logits[i, :n], labels[i, :n], ones(n))
        for stacked, single in zip(each, alone, strict=True):
            assert torch.allclose(stacked[i], single, atol=1e-12)


def test_bytes_of_a_fit():
    # Of two classes: 3 numbers there, and 2 + 1 + 3 + 9 back, in 12 rounds.
    assert count_bytes(2) == (12 * 3 * 8, 12 * 15 * 8)
