"""Shares of classes from rows without labels: by hand, found again, and no row that sees what comes after."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.jobs import prior
from potluck.jobs.prior import (
    SMOOTHING,
    WEIGH,
    estimate_shares,
    weigh_by_labels,
    weigh_in_order,
    weigh_together,
)

EVEN = torch.full((2,), 0.5, dtype=torch.float64)


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def ones(*shape):
    return torch.ones(shape, dtype=torch.float64)


def said(rows, classes, seed=0):
    """Logs of any chances, and shares that a model may know."""
    random = torch.Generator().manual_seed(seed)
    logs = (2 * torch.randn(rows, classes, dtype=torch.float64, generator=random)).log_softmax(-1)
    source = 0.2 + torch.rand(classes, dtype=torch.float64, generator=random)
    return logs, source / source.sum()


def met(rows, shares, seed=0, noise=1.0):
    """Rows of classes as common as said, and what a model says that takes all classes for equally common."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(table(*shares), rows, replacement=True, generator=random)
    classes = len(shares)
    x = torch.nn.functional.one_hot(labels, classes) * 2.0
    x = x + noise * torch.randn(rows, classes, dtype=torch.float64, generator=random)
    return (2.0 / noise**2 * x).log_softmax(-1), labels  # Bayes' rule for such rows


# ------------------------------------------------------------------------------------------ by labels at hand


def test_labels_that_a_device_has_weigh_its_answers():
    """Of 7 rows, 6 are of the first class; half a row more of each: 6.5 / 8 and 1.5 / 8, over a half each."""
    logs = table([0.4, 0.6], [0.1, 0.9])
    weighed = weigh_by_labels(logs.log(), table(6.0, 1.0), EVEN).exp()
    # What the device's own mix says turns the first row's answer round, and not the second's.
    assert torch.allclose(weighed, table([0.4 * 1.625, 0.6 * 0.375], [0.1 * 1.625, 0.9 * 0.375]))
    assert weighed.argmax(-1).tolist() == [0, 1]
    # But for that row, and where classes are known to be even, it is the log of the shares on top.
    many = weigh_by_labels(logs.log(), table(6e9, 1e9), EVEN)
    ours = logs.log() + table(6 / 7, 1 / 7).log()
    assert torch.allclose(many - many.mean(), ours - ours.mean())
    # A device without rows, or with the mix that the model knows, answers as it is.
    assert torch.equal(weigh_by_labels(logs.log(), table(0.0, 0.0), EVEN), logs.log())
    uneven = table(0.75, 0.25)
    assert torch.allclose(weigh_by_labels(logs.log(), table(3.0, 1.0), uneven), logs.log())


def test_each_device_by_its_own_labels():
    logs = table([0.5, 0.5]).log()
    both = weigh_by_labels(torch.stack([logs, logs]), table([9.0, 0.0], [0.0, 9.0]), EVEN).exp()
    assert torch.allclose(both, table([0.95, 0.05], [0.05, 0.95]).unsqueeze(1))


# ------------------------------------------------------------------------------------------- all rows at once


def test_two_classes_by_hand(monkeypatch):
    logs = table([0.8, 0.2], [0.6, 0.4]).log()
    monkeypatch.setattr(prior, "STEPS", 1)
    # What both rows say, and half a row of each class: (0.8 + 0.6 + 0.5) / 3.
    assert estimate_shares(logs, ones(2), EVEN).tolist() == pytest.approx([1.9 / 3, 1.1 / 3])
    monkeypatch.setattr(prior, "STEPS", 2)
    one = 0.8 * 1.9 / (0.8 * 1.9 + 0.2 * 1.1)
    two = 0.6 * 1.9 / (0.6 * 1.9 + 0.4 * 1.1)
    assert float(estimate_shares(logs, ones(2), EVEN)[0]) == pytest.approx((one + two + 0.5) / 3)


def test_sure_rows_are_counted_and_the_known_shares_are_one_row():
    logs = table(*([0.0, -50.0] for _ in range(3)), [-50.0, 0.0])
    assert estimate_shares(logs, ones(4), EVEN).tolist() == pytest.approx([3.5 / 5, 1.5 / 5])
    uneven = table(0.9, 0.1)
    assert estimate_shares(logs, ones(4), uneven).tolist() == pytest.approx([3.9 / 5, 1.1 / 5])


def test_answers_are_weighed_by_new_shares_over_old():
    logs, source = said(6, 3)
    shares = estimate_shares(logs, ones(6), source)
    by_hand = logs.exp() * shares / source
    weighed = weigh_together(logs, ones(6), source).softmax(-1)
    assert torch.allclose(weighed, by_hand / by_hand.sum(-1, keepdim=True))


@pytest.mark.parametrize("shares", [(0.25,) * 4, (0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)])
def test_shares_are_found_again_and_help(shares):
    logs, labels = met(4000, shares)
    source = ones(4) / 4
    assert estimate_shares(logs, ones(4000), source).tolist() == pytest.approx(list(shares), abs=0.03)
    plain = (logs.argmax(-1) == labels).double().mean()
    for weigh in WEIGH.values():
        weighed = weigh(logs[:400], ones(400), source)
        gain = (weighed.argmax(-1) == labels[:400]).double().mean() - plain
        assert gain > (0.02 if max(shares) > 0.5 else -0.03)


def test_few_rows_cannot_go_to_extremes():
    logs, _ = met(3, (1.0, 0.0, 0.0))
    shares = estimate_shares(logs, ones(3), ones(3) / 3)
    assert shares.max() <= (3 + SMOOTHING / 3) / (3 + SMOOTHING) + 1e-12
    assert shares.min() >= SMOOTHING / 3 / (3 + SMOOTHING) - 1e-12


def test_smoothing_costs_many_rows_little_and_saves_few(monkeypatch):
    source = ones(5) / 5

    def loss(rows, smoothing):
        monkeypatch.setattr(prior, "SMOOTHING", smoothing)
        total = 0.0
        for seed in range(20):
            shares = torch.distributions.Dirichlet(ones(5) * 0.5)
            torch.manual_seed(seed)
            logs, labels = met(rows, shares.sample().tolist(), seed, noise=2.0)
            weighed = weigh_together(logs, ones(rows), source)
            total += float(torch.nn.functional.cross_entropy(weighed, labels)) / 40
        return total

    assert loss(3, 1.0) < 0.97 * loss(3, 0.01)
    assert loss(100, 1.0) < 1.01 * loss(100, 0.01)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(2, 5), st.integers(0, 99))
def test_the_order_of_rows_is_nothing_to_a_batch(rows, classes, seed):
    logs, source = said(rows, classes, seed)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    plain, other = (weigh_together(at, ones(rows), source) for at in (logs, logs[order]))
    assert torch.allclose(plain[order], other, atol=1e-12)
    shares = estimate_shares(logs, ones(rows), source)
    assert float(shares.sum()) == pytest.approx(1.0)
    assert shares.min() > 0


# --------------------------------------------------------------------------------------------- row by row


def test_the_first_row_is_answered_by_what_the_model_knows():
    logs, source = said(5, 3)
    assert torch.allclose(weigh_in_order(logs, ones(5), source)[0], logs[0])


def test_the_second_row_by_hand():
    logs = table([0.8, 0.2], [0.6, 0.4]).log()
    # All three guesses found the first row equally likely. Two have learnt (0.8 + 0.5) / 2 of its class.
    learnt = [0.65 / 0.5 * 0.6, 0.35 / 0.5 * 0.4]
    by_hand = [(0.6 + 2 * learnt[0]) / 3, (0.4 + 2 * learnt[1]) / 3]
    assert weigh_in_order(logs, ones(2), EVEN)[1].exp().tolist() == pytest.approx(by_hand)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(2, 5), st.data())
def test_what_comes_later_changes_nothing_before(rows, classes, data):
    cut = data.draw(st.integers(1, rows - 1))
    logs, source = said(rows, classes, data.draw(st.integers(0, 99)))
    other = torch.cat([logs[:cut], said(rows - cut, classes, 1000)[0]])
    one, two = (weigh_in_order(at, ones(rows), source) for at in (logs, other))
    assert torch.equal(one[:cut], two[:cut])
    assert torch.equal(weigh_in_order(logs[:cut], ones(cut), source), one[:cut])


def test_a_stream_that_changes_is_followed():
    streams = []
    for seed in range(50):
        halves = met(60, (0.5, 0.5, 0.0, 0.0), seed, 1.5), met(60, (0.0, 0.0, 0.5, 0.5), 50 + seed, 1.5)
        streams.append([torch.cat(pair) for pair in zip(*halves, strict=True)])
    logs, labels = (torch.stack(column) for column in zip(*streams, strict=True))
    weighed = weigh_in_order(logs, ones(50, 120), ones(4) / 4)
    gain = (weighed.argmax(-1) == labels).double().mean(0) - (logs.argmax(-1) == labels).double().mean(0)
    assert gain[20:60].mean() > 0.07
    assert gain[80:].mean() > 0.04
    assert gain[60:80].mean() > -0.12


# ------------------------------------------------------------------------------------------------ both forms


@pytest.mark.parametrize("form", WEIGH)
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(0, 5), st.integers(0, 99))
def test_padding_counts_nothing(form, rows, padding, seed):
    logs, source = said(rows + padding, 3, seed)
    weight = torch.cat([ones(rows), 0 * ones(padding)])
    short, long = WEIGH[form](logs[:rows], ones(rows), source), WEIGH[form](logs, weight, source)
    assert torch.allclose(short, long[:rows], atol=1e-12)
    assert long.isfinite().all()


@pytest.mark.parametrize("form", WEIGH)
def test_padding_before_and_between_counts_nothing(form):
    logs, source = said(6, 3)
    weight = table(0.0, 1.0, 0.0, 1.0, 1.0, 0.0)
    some = WEIGH[form](logs[weight > 0], ones(3), source)
    assert torch.allclose(some, WEIGH[form](logs, weight, source)[weight > 0], atol=1e-12)


@pytest.mark.parametrize("form", WEIGH)
def test_many_devices_at_once_answer_as_each_does(form):
    many = [said(7, 4, seed) for seed in range(3)]
    logs, source = (torch.stack(column) for column in zip(*many, strict=True))
    weight = torch.stack([ones(7), torch.cat([ones(4), 0 * ones(3)]), 0 * ones(7)])
    mapped, direct = torch.vmap(WEIGH[form])(logs, weight, source), WEIGH[form](logs, weight, source)
    for i in range(3):
        alone = WEIGH[form](logs[i], weight[i], source[i])
        assert torch.allclose(mapped[i], alone, atol=1e-12)
        assert torch.allclose(direct[i], alone, atol=1e-12)


@pytest.mark.parametrize("form", WEIGH)
def test_no_rows_no_answers(form):
    assert WEIGH[form](torch.zeros(0, 3).double(), torch.zeros(0).double(), ones(3) / 3).shape == (0, 3)
