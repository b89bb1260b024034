"""Models that lie inside one another: parts, and the mean over those who own a number."""

import pytest
import torch
from support import Line

from potluck.core.errors import ModelError
from potluck.core.job import ModelSpec
from potluck.core.trees import zeros
from potluck.models import Model
from potluck.rules.nested import Part, as_model, average_owners, cut_model, find_narrow

D = torch.float64
BIG = Model(ModelSpec("mlp", width=0.02), (2,), 3, D)  # 4 hidden units
MIDDLE = Model(ModelSpec("mlp", width=0.01), (2,), 3, D)  # 2
SMALL = Model(ModelSpec("mlp", width=0.005), (2,), 3, D)  # 1
IN, IN_BIAS, OUT, OUT_BIAS = BIG.shapes


def filled(net, number):
    return {name: torch.full(shape, float(number), dtype=D) for name, shape in net.shapes.items()}


def test_a_part_is_the_first_channels():
    whole = {name: torch.arange(p.numel(), dtype=D).reshape(p.shape) for name, p in BIG.init(0).items()}
    part = cut_model(whole, BIG, MIDDLE)
    assert part[IN].tolist() == [[0, 1], [2, 3]]  # two of four units, both inputs
    assert part[IN_BIAS].tolist() == [0, 1]
    assert part[OUT].tolist() == [[0, 1], [4, 5], [8, 9]]  # all classes, two of four units
    assert part[OUT_BIAS].tolist() == [0, 1, 2]
    assert all(p.is_contiguous() for p in part.values())


def test_each_number_is_the_mean_over_its_owners():
    parts = [Part(BIG, filled(BIG, 8)), Part(MIDDLE, filled(MIDDLE, 4)), Part(SMALL, filled(SMALL, 0))]
    mean = average_owners(filled(BIG, 100), BIG, parts)
    # Unit 0: (8 + 4 + 0) / 3 = 4; unit 1: (8 + 4) / 2 = 6; units 2 and 3: 8.
    assert mean[IN_BIAS].tolist() == [4, 6, 8, 8]
    assert mean[OUT].tolist() == [[4, 6, 8, 8]] * 3
    assert mean[OUT_BIAS].tolist() == [4, 4, 4]  # everybody has all classes


def test_what_nobody_owns_stays():
    mean = average_owners(
        filled(BIG, 7), BIG, [Part(MIDDLE, filled(MIDDLE, 1)), Part(SMALL, filled(SMALL, 3))]
    )
    assert mean[IN_BIAS].tolist() == [2, 1, 7, 7]
    assert average_owners(zeros(BIG.init(0)), BIG, [])[OUT_BIAS].tolist() == [0, 0, 0]


def test_owners_count_by_weight():
    parts = [Part(BIG, filled(BIG, 10), 1), Part(MIDDLE, filled(MIDDLE, 2), 3)]
    # Shared units: (1 * 10 + 3 * 2) / 4 = 4. One of no weight owns nothing.
    assert average_owners(filled(BIG, 0), BIG, parts)[IN_BIAS].tolist() == [4, 4, 10, 10]
    nothing = [Part(SMALL, filled(SMALL, 5), 0)]
    assert average_owners(filled(BIG, 1), BIG, nothing)[IN_BIAS].tolist() == [1, 1, 1, 1]


def test_only_rows_that_count_are_owned():
    first, last = torch.tensor([True, True, False]), torch.tensor([False, True, False])
    parts = [
        Part(BIG, filled(BIG, 6), counts={OUT: first, OUT_BIAS: first}),
        Part(SMALL, filled(SMALL, 2), counts={OUT: last, OUT_BIAS: last}),
    ]
    mean = average_owners(filled(BIG, 9), BIG, parts)
    # Class 0: the first alone, 6. Class 1: both, (6 + 2) / 2 = 4. Class 2: nobody.
    assert mean[OUT_BIAS].tolist() == [6, 4, 9]
    assert mean[OUT].tolist() == [[6, 6, 6, 6], [4, 6, 6, 6], [9, 9, 9, 9]]
    assert mean[IN_BIAS].tolist() == [4, 6, 6, 6]  # other layers as ever


def test_equal_models_give_the_ordinary_mean():
    parts = [Part(BIG, BIG.init(k), float(k)) for k in (1, 2, 5)]
    mean = average_owners(BIG.init(0), BIG, parts)
    for name in BIG.shapes:
        plain = sum(k * BIG.init(k)[name] for k in (1, 2, 5)) / 8
        torch.testing.assert_close(mean[name], plain, rtol=0, atol=1e-12)


def test_gates_are_averaged_gate_by_gate():
    big, small = (Model(ModelSpec("har_lstm", width=w), (1, 3), 2, D) for w in (2 / 64, 1 / 64))
    mean = average_owners(filled(big, 0), big, [Part(small, filled(small, 1))])
    bias = next(name for name in big.shapes if "bias_ih" in name)
    assert mean[bias].tolist() == [1, 0, 1, 0, 1, 0, 1, 0]  # the first of two units, in each of four gates


def test_layers_with_fewer_outputs():
    assert find_narrow(BIG, SMALL) == (IN, IN_BIAS)  # not the last one: it has all classes
    assert find_narrow(BIG, BIG) == ()
    image = [Model(ModelSpec("resnet8", width=w), (1, 8, 8), 3, D) for w in (1, 0.5)]
    found = find_narrow(*image)
    assert found
    assert all(len(image[0].shapes[name]) == 4 for name in found)  # convolutions; norms see to themselves
    lstm = [Model(ModelSpec("har_lstm", width=w), (1, 3), 2, D) for w in (0.5, 0.25)]
    assert find_narrow(*lstm) == ()


def test_other_nets_are_refused():
    with pytest.raises(ModelError, match="Line isn't one of potluck's models"):
        as_model(Line())
    with pytest.raises(ModelError, match="isn't part of"):
        cut_model(SMALL.init(0), SMALL, BIG)
