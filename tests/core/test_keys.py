import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from potluck.core import keys

bits = st.integers(0, 2**64 - 1)
parts = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=50, deadline=None)
@given(bits, parts)
def test_all_ways_to_hash_agree(key, part):
    derived = keys.derive(key, part)
    (array,) = keys.hash_all(key, np.array([part], np.int64))
    folded = keys.fold_in(keys.as_tensor(key), part)
    assert 0 <= derived < 2**64
    assert int(array) == derived == int(folded) % 2**64
    assert int(keys.fold_in(keys.as_tensor(key), torch.tensor(part))) % 2**64 == derived


@settings(max_examples=20, deadline=None)
@given(bits)
def test_uniform_numbers_agree_in_numpy_and_torch(key):
    here = keys.uniforms(key, np.arange(100))
    there = keys.uniform(keys.as_tensor(key), (4, 25), torch.float64)
    assert there.shape == (4, 25)
    assert there.flatten().tolist() == here.tolist()


def test_known_values():
    """A change here changes every run."""
    assert keys.derive(0, 0) == 16294208416658607535  # SplitMix64's first number of seed 0
    assert keys.derive(1, 2, 3) == keys.derive(keys.derive(1, 2), 3)
    assert keys.derive(5) == 5


def test_seeds_and_positions_do_not_meet():
    """With a plain XOR, seed 0 at 1 would be seed 1 at 0, and runs of two seeds would share their streams."""
    seen = {keys.derive(seed, part) for seed in range(100) for part in range(100)}
    assert len(seen) == 100 * 100
    assert len({keys.derive(7, a, b) for a in range(60) for b in range(60)}) == 3600
    streams = [set(keys.hash_all(seed, np.arange(1000)).tolist()) for seed in range(8)]
    assert len(set.union(*streams)) == 8000


def test_positions_of_any_integer_type():
    wide = keys.hash_all(9, np.arange(5))
    for kind in (np.int32, np.uint8, np.uint64):
        assert keys.hash_all(9, np.arange(5, dtype=kind)).tolist() == wide.tolist()
    positions = np.arange(5)
    keys.hash_all(9, positions)
    assert positions.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_numbers_are_below_one_and_even(dtype):
    x = keys.uniform(keys.as_tensor(keys.derive(3, 4)), (100_000,), dtype).double()
    assert float(x.min()) >= 0
    assert float(x.max()) < 1
    counts = torch.histc(x, 8, 0, 1)
    assert float((counts - 12_500).abs().max()) < 500  # 5 standard deviations are 523
    lagged = (x[1:] - x.mean()) * (x[:-1] - x.mean())
    assert abs(float(lagged.mean())) < 12 * 0.02 / 12  # neighbours don't know of each other


def test_normal_numbers():
    x = keys.normal(keys.as_tensor(11), (200, 500), torch.float64)
    assert x.shape == (200, 500)
    assert abs(float(x.mean())) < 0.02
    assert abs(float(x.std()) - 1) < 0.02
    assert abs(float((x**4).mean()) - 3) < 0.1
    assert bool(torch.isfinite(x).all())


def test_streams_of_one_key_differ():
    key = keys.as_tensor(5)
    a, b = keys.uniform(keys.fold_in(key, 1), (1000,)), keys.uniform(keys.fold_in(key, 2), (1000,))
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.15


def test_tensor_keys_work_under_vmap():
    many = torch.stack([keys.as_tensor(keys.derive(1, i)) for i in range(6)])
    for draw in (keys.uniform, keys.normal):
        together = torch.func.vmap(lambda k, draw=draw: draw(keys.fold_in(k, 3), (2, 5)))(many)
        apart = torch.stack([draw(keys.fold_in(k, 3), (2, 5)) for k in many])
        assert torch.equal(together, apart)


@given(bits, st.integers(0, 50))
def test_permutations(key, n):
    order = keys.permute(key, n)
    assert sorted(order.tolist()) == list(range(n))
    assert order.tolist() == keys.permute(key, n).tolist()


def test_permutations_are_even():
    first = [keys.permute(keys.derive(2, i), 5)[0] for i in range(5000)]
    assert max(abs(np.bincount(first) - 1000)) < 150


def test_generators_repeat():
    a, b, c = keys.generator(7), keys.generator(7), keys.generator(8)
    assert a.random(5).tolist() == b.random(5).tolist() != c.random(5).tolist()
    assert keys.generator(2**64 - 1).random() < 1


def test_a_rewound_generator_is_a_fresh_one():
    one = keys.Rewound()
    for key in (0, 1, 2**63 + 5, 2**64 - 1):
        for draw in (
            lambda g: g.integers(1000, size=7),
            lambda g: g.permutation(20),
            lambda g: g.integers(5, size=3, dtype=np.uint32),
        ):
            assert draw(one.at(key)).tolist() == draw(keys.generator(key)).tolist()


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 30)), max_size=6))
def test_orders_drawn_together_are_those_drawn_alone(asked):
    rows = keys.permute_all(
        np.array([key for key, _ in asked], np.uint64), np.array([size for _, size in asked], np.int64)
    )
    for row, (key, size) in zip(rows, asked, strict=True):
        assert row[:size].tolist() == keys.permute(key, size).tolist()
