from typing import NamedTuple

import pytest
import torch

from potluck.core.errors import JobError
from potluck.core.job import Cost, Result
from potluck.core.trees import (
    DEPTH,
    add,
    copy_tree,
    finite,
    leaves,
    nbytes,
    same_form,
    scale,
    split,
    sub,
    tmap,
    weighted_sum,
    within,
    zeros,
)
from potluck.engine.checks import find_problem


class Pair(NamedTuple):
    a: object
    b: object


def tree():
    return {
        "w": torch.tensor([1.0, 2.0]),
        "n": [torch.tensor(3.0), 7, None],
        "p": Pair(torch.tensor([4.0]), "x"),
    }


def test_leaves_are_the_tensors_in_order():
    assert [t.tolist() for t in leaves(tree())] == [[1.0, 2.0], 3.0, [4.0]]


def test_maps_keep_the_form_and_carry_other_leaves():
    twice = tmap(lambda x, y: x + y, tree(), tree())
    assert [t.tolist() for t in leaves(twice)] == [[2.0, 4.0], 6.0, [8.0]]
    assert twice["n"][1:] == [7, None]
    assert isinstance(twice["p"], Pair)
    assert twice["p"].b == "x"


def test_split_puts_other_tensors_in_the_same_places():
    tensors, rebuild = split(tree())
    again = rebuild([t * 10 for t in tensors])
    assert again["n"][0] == 30
    assert again["n"][1] == 7
    assert same_form(again, tree())


def test_arithmetic():
    a, b = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 5.0])}
    assert add(a, b)["w"].tolist() == [4.0, 7.0]
    assert add(a, b, 0.5)["w"].tolist() == [2.5, 4.5]
    assert sub(a, b)["w"].tolist() == [-2.0, -3.0]
    assert scale(b, 2.0)["w"].tolist() == [6.0, 10.0]
    assert zeros(b)["w"].tolist() == [0.0, 0.0]
    assert a["w"].tolist() == [1.0, 2.0]  # nothing changes in place


def test_owned_shares_no_memory_and_no_graph():
    stack = torch.arange(6.0).reshape(2, 3).requires_grad_()
    mine = copy_tree({"row": stack[1]})["row"]
    assert mine.untyped_storage().nbytes() == 12
    assert not mine.requires_grad
    assert copy_tree({"t": stack.T})["t"].is_contiguous()


def test_bytes_on_the_wire():
    assert nbytes({"w": torch.zeros(3, dtype=torch.float64), "h": torch.zeros(2, dtype=torch.float16)}) == 28
    assert nbytes([1, 2.0, None, "abc", b"xy", (True,)]) == 8 + 8 + 0 + 3 + 2 + 8


# -------------------------------------------------------------------------------------------- weighted sums


def test_weighted_sum_is_what_it_says():
    trees = [{"w": torch.tensor([[1.0, 2.0]])}, {"w": torch.tensor([[10.0, 20.0]])}]
    out = weighted_sum(trees, torch.tensor([0.25, 0.5], dtype=torch.float64))["w"]
    assert out.tolist() == [[5.25, 10.5]]
    assert out.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_weighted_sum_gives_the_same_bytes_from_a_stack_and_from_rows(count, dtype):
    generator = torch.Generator().manual_seed(count)
    stack = torch.randn(count, 17, 5, generator=generator, dtype=dtype)
    weights = torch.rand(count, generator=generator, dtype=torch.float64)
    unbound = [{"w": row} for row in stack.unbind(0)]
    indexed = [{"w": stack[i]} for i in range(count)]
    apart = [{"w": row.clone()} for row in stack]
    results = [weighted_sum(rows, weights)["w"].numpy().tobytes() for rows in (unbound, indexed, apart)]
    assert results[0] == results[1] == results[2]


def test_weighted_sum_does_not_copy_a_whole_stack(monkeypatch):
    stack = torch.randn(4, 3)
    monkeypatch.setattr(torch, "stack", lambda *_: pytest.fail("copied"))
    with torch.no_grad():
        rows = stack.unbind(0)
    weighted_sum([{"w": row} for row in rows], torch.ones(4))


def mixed_views():
    stack = torch.randn(3, 4, 4)
    yield "shuffled", [stack[2], stack[0], stack[1]]
    yield "some", [stack[0], stack[1]]
    yield "one thrice", [stack[0], stack[0], stack[0]]
    yield "transposed", [stack[0].T, stack[1].T, stack[2].T]
    yield "two stacks", [stack[0], stack.clone()[1], stack[2]]
    yield "columns", list(torch.randn(4, 3).unbind(1))
    yield "part of rows", list(torch.randn(2, 6)[:, :3].unbind(0))


@pytest.mark.parametrize("name, rows", list(mixed_views()), ids=lambda v: v if isinstance(v, str) else "")
def test_weighted_sum_of_views_that_are_not_a_stack(name, rows):
    weights = torch.arange(1.0, len(rows) + 1)
    expected = sum(w * r.clone() for w, r in zip(weights, rows, strict=True))
    torch.testing.assert_close(weighted_sum(rows, weights), expected)


# -------------------------------------------------------------------------------------------------- checks


def test_finite_looks_at_every_number():
    good = {"w": torch.tensor([1.0, 2.0]), "n": (1, 2.0, None, "nan", torch.tensor([1, 2]), True)}
    assert finite(good)
    assert finite({})
    assert finite(torch.zeros(0))
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert not finite({**good, "x": [bad]})
        assert not finite({**good, "x": torch.tensor([0.0, bad])})
    assert not finite(torch.tensor([float("inf"), -float("inf")]))


def test_finite_is_not_fooled_by_an_overflowing_sum():
    assert finite(torch.full((4,), 3e38))
    assert finite(torch.full((4,), 60_000.0, dtype=torch.float16))


@pytest.mark.parametrize(
    "other",
    [
        {
            "w": torch.zeros(3),
            "n": [torch.tensor(3.0), 7, None],
            "p": Pair(torch.tensor([4.0]), "x"),
        },  # shape
        {
            "w": torch.zeros(2).double(),
            "n": [torch.tensor(3.0), 7, None],
            "p": Pair(torch.tensor([4.0]), "x"),
        },
        {"w": torch.zeros(2), "n": [torch.tensor(3.0), 7, None]},  # a key is missing
        {**tree(), "more": 1},
        {"w": torch.zeros(2), "n": [torch.tensor(3.0), 7], "p": Pair(torch.tensor([4.0]), "x")},  # length
        {
            "w": torch.zeros(2),
            "n": [3.0, 7, None],
            "p": Pair(torch.tensor([4.0]), "x"),
        },  # number for a tensor
        {
            "w": torch.zeros(2),
            "n": [torch.tensor(3.0), torch.zeros(1), None],
            "p": Pair(torch.tensor([4.0]), "x"),
        },
        [tree()],
    ],
)
def test_other_forms_are_told_apart(other):
    assert not same_form(other, tree())


def test_same_form_ignores_values():
    assert same_form(scale(tree(), 5.0), tree())
    assert same_form({"n": 1}, {"n": 2.5})


def double(times, tree, wide=2):
    """So few containers that a walk through each of their references would never end."""
    for _ in range(times):
        tree = [tree] * wide
    return tree


def nest(depth, tree=1.0):
    for _ in range(depth):
        tree = {"a": tree}
    return tree


ONE = torch.ones(10_000)


def test_what_is_shared_is_looked_at_once():
    huge = double(60, {"w": ONE, "n": 1.5})
    assert finite(huge)
    assert not finite(double(60, {"w": ONE / 0}))
    assert nbytes(huge) == 2**60 * 40_008
    assert not leaves(double(60, {}))
    with pytest.raises(JobError, match="more than 10,000,000 tensors"):
        leaves(huge)
    with pytest.raises(JobError, match="more than 10,000,000 tensors"):
        split(double(7, [ONE], 1000))
    copied = copy_tree(huge)
    assert copied[0] is copied[1] is not huge[0]
    many = copy_tree([ONE] * 20_000)  # 800 MB if each were copied
    assert many[0] is many[-1] is not ONE
    assert torch.equal(many[0], ONE)


def test_what_compares_goes_as_far_as_our_own_tree():
    huge, ours = double(60, ONE), {"w": ONE, "k": [1, 2]}
    assert not same_form(huge, ours)
    assert not same_form({"w": huge, "k": huge}, ours)
    assert not same_form(huge, [ONE, ONE])
    assert within({"w": ONE, "k": [1, 2]}, ours)


@pytest.mark.parametrize("promised", [None, {"w": ONE}, [ONE, ONE]])
@pytest.mark.parametrize("body", [double(60, ONE / 0), nest(100_000, ONE / 0), double(9, ONE / 0, 1000)])
def test_nobody_can_send_what_takes_for_ever_to_check(body, promised):
    problem = find_problem(Result(body), Cost(sends=promised), trusted=False)
    assert problem in ("NaN or infinite numbers", "keys, shapes or types differ from what the job promised")


def test_depth_ends_in_a_line():
    for walk in (nbytes, leaves, copy_tree):
        assert walk(nest(DEPTH, ONE))
        with pytest.raises(JobError, match=f"deeper than {DEPTH}"):
            walk(nest(DEPTH + 1))
