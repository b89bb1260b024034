import importlib
import json
import pkgutil
import re
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis.extra import numpy as hnp

import potluck
from potluck import algorithms
from potluck.core import codec
from potluck.core.codec import Limits, value
from potluck.core.errors import DecodeError, PotluckError
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


# ---------------------------------------------------------------------------------------------------- names


def test_registered_values_are_known_by_name():
    assert codec.values()[NAME] is Thing
    assert codec.values()["Train"] is Train
    with pytest.raises(AttributeError):
        Thing(1).a = 2  # frozen unless said


def test_names_do_not_tell_where_code_lives():
    for module in pkgutil.walk_packages(potluck.__path__, "potluck."):
        if not module.name.endswith(("__main__", "deploy.flower")):  # flwr has an environment of its own
            importlib.import_module(module.name)
    ours = {name: cls for name, cls in codec.values().items() if cls.__module__.startswith("potluck.")}
    assert len(ours) > 150
    assert len(set(ours.values())) == len(ours)
    for name, cls in ours.items():
        owner, _, short = name.rpartition(".")
        assert short == cls.__name__
        assert owner in ("", "deploy", *algorithms.names()), name


def made(name, module, qualname=None):
    body = {"__module__": module, "__qualname__": qualname or name, "__annotations__": {"x": int}}
    return type(name, (), body)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(codec, "_KNOWN", dict(codec._KNOWN))
    monkeypatch.setattr(codec, "_FIELDS", dict(codec._FIELDS))


def test_a_value_may_move(registry):
    """Bytes written before a class went to another module are read afterwards."""
    old = value(made("Mover", "potluck.here"))
    data = codec.encode(old(3))
    del codec._KNOWN["Mover"]
    new = value(made("Mover", "potluck.there.deeper"))
    again = codec.decode(data)
    assert (type(again), again.x) == (new, 3)
    assert codec.encode(again) == data


def test_values_of_other_packages_have_names_of_their_own(registry):
    assert codec.values().get("mine.Train") is None
    mine = value(made("Train", "mine.deep.inside"))
    assert codec.values()["mine.Train"] is mine
    assert codec.values()["Train"] is Train


def test_a_taken_name_is_refused(registry):
    wrong = "@value 'Train' is potluck.jobs.train:Train already: name potluck.other:Train otherwise"
    with pytest.raises(PotluckError, match=re.escape(wrong)):
        value(made("Train", "potluck.other"))
    with pytest.raises(PotluckError, match=r"'Train' is .* already"):
        value(name="Train")(made("Other", "elsewhere"))
    assert codec.values()["Train"] is Train
    other = value(name="fedavg.Train")(made("Train", "potluck.other"))
    assert type(again(other(1))) is other
    reloaded = value(made("Train", "potluck.jobs.train"))
    assert codec.values()["Train"] is reloaded


# ---------------------------------------------------------------------------------------- bytes from outside


@value
class Positive:
    x: int

    def __post_init__(self):
        if self.x <= 0:
            raise ZeroDivisionError("not positive")


@value
class Both:
    a: Any
    b: Any


NAME, STRICT = f"{Thing.__module__}.Thing", f"{Positive.__module__}.Positive"
PAIR = f"{Both.__module__}.Both"


def opened(data):
    """The header of bytes, what the codec wrote into it, and the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["potluck"]), data[8 + length :]


def sealed(header, content, tensors=b""):
    """Bytes that differ from good ones in nothing but what was put in."""
    text = content if isinstance(content, str) else json.dumps(content)
    text = json.dumps({**header, "__metadata__": {"potluck": text}}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + tensors


def forged(root, *shared, tensors=()):
    header, _, stored = opened(codec.encode(list(tensors)))
    return sealed(header, {"shared": list(shared), "root": root}, stored)


BYTE, REAL = torch.arange(8, dtype=torch.uint8), torch.arange(4.0)
THING = {"$v": NAME, "f": [1, 2]}
ARRAY = {"$n": 0, "dtype": "<i4", "shape": [2]}


def test_what_is_forged_well_is_read():
    """The malformed ones below fail for what is wrong with them, not for how they were made."""
    assert codec.decode(forged({"$s": 0}, THING)).b == 2
    assert codec.decode(forged({"$v": STRICT, "f": [1]})) == Positive(1)
    assert codec.decode(forged({"$x": 1}, tensors=[BYTE, REAL])).tolist() == [0, 1, 2, 3]
    assert codec.decode(forged(ARRAY, tensors=[BYTE])).tolist() == [0x03020100, 0x07060504]
    assert codec.decode(forged({"$d": [[{"$t": [1]}, 2]]})) == {(1,): 2}


MALFORMED = {
    "an index that isn't there": ({"$s": 1}, THING),
    "a negative index": ({"$s": -1}, THING),
    "an index that is no number": ({"$s": "0"}, THING),
    "an index that is a truth": ({"$s": False}, THING),
    "an index that is a list": ({"$s": [0]}, THING),
    "itself": ({"$s": 0}, {"x": {"$s": 0}}),
    "one that comes later": ({"$s": 0}, {"x": {"$s": 1}}, THING),
    "a tensor that isn't there": ({"$x": 2},),
    "a negative tensor": ({"$x": -1},),
    "a tensor by a fraction": ({"$x": 0.0},),
    "a tensor by a list": ({"$x": [0]},),
    "a tensor by a truth": ({"$x": True},),
    "an unknown value": ({"$v": "os:system", "f": ["ls"]},),
    "a name that is a list": ({"$v": [NAME], "f": [1, 2]},),
    "too few fields": ({"$v": NAME, "f": [1]},),
    "too many fields": ({"$v": NAME, "f": [1, 2, 3]},),
    "fields by name": ({"$v": NAME, "f": {"a": 1, "b": 2}},),
    "no fields": ({"$v": NAME},),
    "other keys": ({"$v": NAME, "g": [1, 2]},),
    "more keys": ({"$v": NAME, "f": [1, 2], "g": 3},),
    "a value that refuses": ({"$v": STRICT, "f": [0]},),
    "a value of another type": ({"$v": STRICT, "f": [None]},),
    "an unknown tag": ({"$z": 1},),
    "a tuple of a number": ({"$t": 3},),
    "a tuple of a text": ({"$t": "abc"},),
    "a list as a key": ({"$d": [[[1], 2]]},),
    "a dictionary as a key": ({"$d": [[{"$s": 0}, 2]]}, {"x": 1}),
    "a key without a value": ({"$d": [[1]]},),
    "pairs of numbers": ({"$d": [1, 2]},),
    "a set of lists": ({"$e": [[1]]},),
    "a frozen set of lists": ({"$f": [[1]]},),
    "a range without steps": ({"$r": [0, 3, 0]},),
    "a range of truths": ({"$r": [False, 3, True]},),
    "a range of fractions": ({"$r": [0, 3.5, 1]},),
    "a range of nothing": ({"$r": []},),
    "a range of too much": ({"$r": [0, 1, 1, 1]},),
    "bytes that aren't base64": ({"$b": "?"},),
    "bytes in other letters": ({"$b": "\u00e9\u00e9\u00e9\u00e9"},),
    "bytes that are a number": ({"$b": 3},),
    "an array of objects": ({**ARRAY, "dtype": "|O"},),
    "an array of objects, sized": ({**ARRAY, "dtype": "|O8"},),
    "an array of records": ({**ARRAY, "dtype": "i2,i2"},),
    "an array of arrays": ({**ARRAY, "dtype": "(2,)i2"},),
    "an array of what no machine has": ({**ARRAY, "dtype": "<i7"},),
    "an array of no known time": ({**ARRAY, "dtype": "<M8[moons]"},),
    "an array of no size": ({**ARRAY, "dtype": "<U0"},),
    "a type that is no text": ({**ARRAY, "dtype": ["<i4"]},),
    "a type that is code": ({**ARRAY, "dtype": "(__import__('os'))"},),
    "a shape of another size": ({**ARRAY, "shape": [3]},),
    "a shape that is to be guessed": ({**ARRAY, "shape": [-1]},),
    "a huge shape": ({**ARRAY, "shape": [2**62, 2**62]},),
    "a shape beyond all integers": ({**ARRAY, "shape": [0, 10**40]},),
    "a shape of many axes": ({**ARRAY, "shape": [2, *[1] * 100]},),
    "a shape of truths": ({**ARRAY, "shape": [True, 2]},),
    "a shape that is no list": ({**ARRAY, "shape": 2},),
    "an array without a shape": ({"$n": 0, "dtype": "<i4", "sharp": [2]},),
    "an array out of real numbers": ({**ARRAY, "$n": 1, "shape": [4]},),
    "a shared tuple": (0, {"$t": []}),
    "a shared number": (0, 1),
}


def test_bytes_can_not_name_a_class_that_is_not_registered():
    data = codec.encode(Thing(1))
    header, content, tensors = opened(data)
    assert codec.decode(sealed(header, content, tensors)).a == 1
    for other in ("os:system", "builtins:print", "os.system", "Gone", f"{Thing.__module__}:Thing"):
        named = json.loads(json.dumps(content).replace(NAME, other))
        assert named != content
        with pytest.raises(PotluckError, match=f"unknown kind of value '{other}'"):
            codec.decode(sealed(header, named, tensors))


@pytest.mark.parametrize("parts", MALFORMED.values(), ids=MALFORMED)
def test_malformed_content_is_refused(parts):
    data = forged(*parts, tensors=[BYTE, REAL])
    with pytest.raises(DecodeError):
        codec.decode(data)


GOOD = codec.encode(
    {"w": REAL, "v": Thing(1, np.arange(3)), "t": ({1, 2}, range(3), b"xy", {(1, "a"): None})}
)
HEADER, CONTENT, STORED = opened(GOOD)


def header_with(**changed):
    return sealed({**HEADER, "0": {**HEADER["0"], **changed}}, CONTENT, STORED)


BROKEN = {
    "nothing": b"",
    "seven bytes": GOOD[:7],
    "a length only": GOOD[:8],
    "half of the header": GOOD[:50],
    "a byte too few": GOOD[:-1],
    "a byte too many": GOOD + b"x",
    "a pickle": b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
    "a huge length": struct.pack("<Q", 2**64 - 1) + GOOD[8:],
    "no JSON": struct.pack("<Q", 8) + b"{{{{{{{{",
    "no text": struct.pack("<Q", 8) + b"\xff" * 8,
    "a list": struct.pack("<Q", 2) + b"[]",
    "tensors of somebody else": struct.pack("<Q", 2) + b"{}",
    "metadata of somebody else": struct.pack("<Q", 25) + b'{"__metadata__":{"a":""}}',
    "content that is no JSON": sealed(HEADER, "{", STORED),
    "content that is a list": sealed(HEADER, [], STORED),
    "content without a root": sealed(HEADER, {"shared": []}, STORED),
    "shared values by name": sealed(HEADER, {"shared": {"0": {}}, "root": 1}, STORED),
    "a number of too many digits": sealed(HEADER, '{"shared":[],"root":' + "9" * 5000 + "}", STORED),
    "lists without end": sealed(HEADER, '{"shared":[],"root":' + "[" * 100_000 + "]" * 100_000 + "}", STORED),
    "an unknown type": header_with(dtype="Q8"),
    "another type": header_with(dtype="F64"),
    "a type that is a number": header_with(dtype=3),
    "a huge tensor": header_with(shape=[2**62, 2**62]),
    "a tensor of no numbers but many": header_with(shape=[0, 2**63, 2**63], data_offsets=[0, 0]),
    "a negative shape": header_with(shape=[-4]),
    "offsets outside": header_with(data_offsets=[0, 10**9]),
    "offsets backwards": header_with(data_offsets=[16, 0]),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_bytes_are_refused(data):
    with pytest.raises(DecodeError):
        codec.decode(data)


def attempt(data):
    try:
        codec.decode(data)
    except DecodeError:
        return


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_bytes_give_a_value_or_one_error(data):
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        length = data.draw(st.integers(0, 8))
        changed[at : at + length] = data.draw(st.binary(max_size=8))
    attempt(bytes(changed))


@given(st.binary(max_size=200))
@example(b"\x00" * 8)
def test_any_bytes_give_a_value_or_one_error(data):
    attempt(data)
    attempt(struct.pack("<Q", len(data)) + data)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([NAME, STRICT, "<i4", "|O"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.dictionaries(st.sampled_from([*codec._KEYS, "f", "dtype", "shape"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def changed_somewhere(draw, v, odds=6):
    """JSON of which some places, keys too, are something else."""
    if draw(st.integers(0, odds)) == 0:
        return draw(junk)
    if isinstance(v, list):
        return [changed_somewhere(draw, x) for x in v]
    if isinstance(v, dict):
        other = st.sampled_from([*codec._KEYS, "f", "x"])
        return {
            k if draw(st.integers(0, odds)) else draw(other): changed_somewhere(draw, x) for k, x in v.items()
        }
    return v


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_content_gives_a_value_or_one_error(data):
    attempt(sealed(HEADER, {k: changed_somewhere(data.draw, v) for k, v in CONTENT.items()}, STORED))
    tensors = {k: v for k, v in HEADER.items() if k != "__metadata__"}
    changed = {k: changed_somewhere(data.draw, v) for k, v in tensors.items()}
    attempt(sealed(changed, CONTENT, STORED))


def test_only_allowed_values_are_built():
    data = codec.encode([Thing(Positive(1))])
    assert codec.decode(data, allow={NAME, STRICT})[0].a == Positive(1)
    assert codec.decode(codec.encode({"plain": (REAL, 1)}), allow=[])["plain"][1] == 1
    for allow in ([], [NAME], {STRICT}):
        with pytest.raises(DecodeError, match="is not allowed here"):
            codec.decode(data, allow=allow)
    with pytest.raises(DecodeError, match="unknown kind of value 'gone'"):
        codec.decode(forged({"$v": "gone", "f": []}), allow=["gone"])


def test_limits_are_kept():
    v = {"rows": [[1, 2, 3], [4]], "w": REAL, "b": [BYTE]}  # 3 + 2 + 3 + 1 + 1 items
    data = codec.encode(v)
    exact = {"bytes": len(data), "tensors": 2, "depth": 3, "items": 10}
    assert codec.decode(data, limits=Limits(**exact))["rows"] == v["rows"]
    for name, most in exact.items():
        with pytest.raises(DecodeError, match=f"{'deeper' if name == 'depth' else 'more'} than {most - 1}"):
            codec.decode(data, limits=Limits(**{name: most - 1}))


def test_limits_count_what_is_shared_wherever_it_is_used():
    """A few hundred bytes may stand for more than anyone could walk through, compare or hash."""
    doubling = [{"x": 1}, *({"a": {"$s": i}, "b": {"$s": i}} for i in range(50))]
    chain = [{"x": 1}, *({"a": {"$s": i}} for i in range(500))]
    with pytest.raises(DecodeError, match="more than 1000 items"):
        codec.decode(forged({"$s": 50}, *doubling), limits=Limits(items=1000))
    with pytest.raises(DecodeError, match="deeper than 100"):
        codec.decode(forged({"$s": 500}, *chain), limits=Limits(depth=100))
    assert codec.decode(forged([{"$s": 0}] * 5, THING), limits=Limits(items=15, depth=2))[4].a == 1


def doubling(count, first=None):
    """Values of two references each to the one before: 2 ** count in all, in some 40 bytes each."""
    pair = {"$v": PAIR}
    return [first or {"x": 1}, *({**pair, "f": [{"$s": i}, {"$s": i}]} for i in range(count))]


@pytest.mark.parametrize("root", [{"$s": 40}, {"$e": [{"$s": 40}]}, {"$d": [[{"$s": 40}, 1]]}])
def test_few_bytes_that_stand_for_very_much_are_refused_without_being_told_to(root):
    data = forged(root, *doubling(40, {"$v": PAIR, "f": [1, 2]}))
    assert len(data) < 3_000
    with pytest.raises(DecodeError, match=r"more than \d+ items"):
        codec.decode(data)
    chain = [{"x": 1}, *({"a": {"$s": i}} for i in range(5000))]
    with pytest.raises(DecodeError, match="deeper than 250"):
        codec.decode(forged({"$s": 5000}, *chain))


def test_an_array_is_not_made_again_and_again_of_the_same_bytes():
    many = {"$n": 0, "dtype": "|u1", "shape": [43_000]}
    with pytest.raises(DecodeError, match="more bytes than there are"):
        codec.decode(forged([many] * 20_000, tensors=[torch.zeros(43_000, dtype=torch.uint8)]))
    assert len(again([np.zeros(0), np.zeros(0), np.ones(3)])) == 3  # none has bytes to share


def test_what_is_honestly_shared_is_read():
    """A thousand tasks of one model of a thousand tensors."""
    model = {str(i): REAL for i in range(1000)}
    tasks = again([Thing(i, {"model": model}) for i in range(1000)])
    assert tasks[999].b["model"] is tasks[0].b["model"]


def test_depth_that_can_be_written_can_be_read():
    deep = 0
    for _ in range(100):
        deep = [(deep,)]
    assert again(deep) == deep
