import json
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from potluck.core import codec
from potluck.core.codec import value
from potluck.core.errors import PotluckError
from potluck.core.messages import Task
from potluck.jobs import SGD, Prox, Train


@value(eq=False)
class Thing:
    a: Any
    b: Any = None


@dataclass(frozen=True)
class Stranger:
    a: int = 1


class Named(NamedTuple):
    a: int


def again(v):
    return codec.decode(codec.encode(v))


def same(a, b):
    """Equal in value, type, order and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, q) and same(v, w) for (k, v), (q, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Thing):
        return same(a.a, b.a) and same(a.b, b.b)
    return a == b or (a != a and b != b)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
hashables = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("$s") | st.just("$v"),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)
kinds = [np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16]
arrays = st.sampled_from([*kinds, np.uint64, ">i4", "U3"]).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
)
tensors = st.sampled_from(kinds).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)).map(torch.from_numpy)
)
nested = st.recursive(
    plain
    | tensors
    | arrays
    | st.sets(st.integers() | st.text())
    | st.frozensets(st.integers())
    | st.builds(range, st.integers(-5, 5), st.integers(-5, 5), st.integers(1, 3)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.builds(Thing, inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(nested)
def test_everything_comes_back(v):
    assert same(again(v), v)


@given(st.dictionaries(st.sampled_from(["$s", "$v", "$n", "$t", "f", "x", "$"]), st.integers(), max_size=4))
def test_words_of_the_codec_are_no_trouble(v):
    assert again(v) == v
    assert again([v, {"in": v}]) == [v, {"in": v}]


def test_the_same_bytes_for_the_same_value():
    v = Thing({"w": torch.arange(4.0), (1, "a"): [None, 2.5]}, {3, 1, 2})
    assert codec.encode(v) == codec.encode(v) == codec.encode(again(v))


def test_what_was_shared_is_shared_again():
    params, job = {"w": torch.arange(3.0)}, Train(objective=Prox(0.5), optim=SGD(0.3))
    one, two = again([Task(1, job, params), Task(2, job, {"other": params["w"]})])
    assert one.job is two.job
    assert one.job == job
    assert one.send["w"] is two.send["other"]
    a, b = again([params, params])
    assert a is b


def test_a_shared_tensor_is_written_once():
    big = torch.zeros(10_000)
    assert len(codec.encode([big, [big], {"x": big}])) < 2 * big.nbytes
    copies = again([big, big.clone()])
    assert copies[0] is not copies[1]


def test_rows_of_a_stack_come_back_as_themselves():
    stack = torch.arange(12.0).reshape(3, 4)
    rows = [*stack.unbind(0), stack.T[1], stack[:, 1:3], stack]
    back = again(rows)
    assert all(torch.equal(a, b) for a, b in zip(back, rows, strict=True))
    assert back[0].untyped_storage().nbytes() == 16  # a row doesn't bring its stack


def test_tensors_lose_their_graph():
    assert not again(torch.ones(2, requires_grad=True)).requires_grad


def test_numpy_scalars_become_plain():
    assert again([np.float64(1.5), np.int32(3), np.bool_(True)]) == [1.5, 3, True]


@pytest.mark.parametrize(
    "v",
    [
        object(),
        Stranger(),
        [{"deep": (Stranger(),)}],
        print,
        Train,
        1j,
        OrderedDict(a=1),
        Named(1),
        np.array([object()]),
        np.zeros(2, [("a", int)]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_it_does_not_know_is_refused(v):
    with pytest.raises(PotluckError, match="can't be stored or sent"):
        codec.encode(v)


def test_bytes_can_not_name_a_class_that_is_not_registered():
    data = codec.encode(Thing(1))
    name = f"{Thing.__module__}:Thing"
    for other in ("os:system", "builtins:print", f"{Thing.__module__}:Gone"):
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        header["__metadata__"]["potluck"] = header["__metadata__"]["potluck"].replace(name, other)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with pytest.raises(PotluckError, match=f"unknown kind of value '{other}'"):
            codec.decode(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_registered_values_are_known_by_name():
    assert codec.known(f"{Thing.__module__}:Thing") is Thing
    assert codec.known("nobody:knows") is None
    assert codec.values()["potluck.jobs.train:Train"] is Train
    with pytest.raises(AttributeError):
        Thing(1).a = 2  # frozen unless said
