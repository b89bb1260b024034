"""One tagged codec for snapshots and wires: safetensors for the numbers, JSON for the rest; no pickle.

`@value` makes a class a dataclass that the codec knows by a short name, whichever module it lives in.
Decoding can only build registered values and plain containers: it never imports, looks up or calls anything
else that the bytes name, and whatever is wrong with them is a `DecodeError`.
Objects that were shared (a tensor in a hundred tasks, a job in a thousand) are written once and are shared
again after decoding, so batching by identity works the same on both sides.
"""

import base64
import dataclasses
import json
import re
from collections.abc import Callable, Collection, Hashable
from reprlib import repr as _brief
from typing import Any, TypeAlias, TypeVar, dataclass_transform, overload

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor

from potluck.core.errors import DecodeError, PotluckError
from potluck.core.trees import DEPTH

T = TypeVar("T")
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_KNOWN: dict[str, type] = {}
_FIELDS: dict[type, tuple[str, tuple[str, ...]]] = {}
_PLAIN = frozenset((type(None), bool, int, float, str))
_KINDS = "biufcSUmM"  # of NumPy's types: all but objects and records
_DTYPE = re.compile(rf"[<>|][{_KINDS}][0-9]{{1,9}}(\[[0-9]*[A-Za-z]+\])?")
_KEYS = {"$s": 1, "$v": 2, "$t": 1, "$d": 1, "$e": 1, "$f": 1, "$x": 1, "$n": 3, "$r": 1, "$b": 1}  # how many
_ENDLESS = 1 << 62  # a limit where none is said
_SOME, _SHARED = 1_000_000, 2_000  # items that text may stand for by sharing: some, and these a letter


@overload
def value(cls: type[T], /) -> type[T]: ...
@overload
def value(
    *, name: str = "", frozen: bool = True, eq: bool = True, light: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def value(
    cls: type[T] | None = None,
    /,
    *,
    name: str = "",
    frozen: bool = True,
    eq: bool = True,
    light: bool = False,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class (`cls`) a slotted dataclass that can be snapshotted and sent; `frozen`, `eq`: as there.

    `name` is what bytes call it: else the name of the class, in other packages than this one `package.Class`.
    `light` leaves freezing to the type checker: made by the thousand, such values cost a third.
    """

    def make(cls: type[T]) -> type[T]:
        made: type[T] = dataclasses.dataclass(frozen=frozen and not light, eq=eq, slots=True)(cls)
        register(made, name)
        return made

    return make if cls is None else make(cls)


def register(cls: type, name: str) -> None:  # which `value` has made, here or in another process
    package = cls.__module__.partition(".")[0]
    name = name or (cls.__name__ if package == "potluck" else f"{package}.{cls.__name__}")
    here, there = (f"{c.__module__}:{c.__qualname__}" for c in (cls, _KNOWN.get(name, cls)))
    if here != there:  # else its module was imported anew
        fix = f'@value(name="its_algorithm.{cls.__name__}")'
        raise PotluckError(f"@value {name!r} is {there} already: name {here} otherwise, such as {fix}")
    _KNOWN[name] = cls
    _FIELDS[cls] = (name, tuple(f.name for f in dataclasses.fields(cls)))


def values() -> dict[str, type]:
    """All registered value classes, by name."""
    return dict(_KNOWN)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much bytes from outside may ask for."""

    bytes: int = _ENDLESS
    tensors: int = _ENDLESS
    depth: int = DEPTH  # containers and values in one another
    items: int = _ENDLESS  # entries and fields; those of what is shared count wherever it is used


class _Writer:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.seen: dict[Hashable, int] = {}  # storage, offset and form of a tensor -> its index
        self.shared: list[Json] = []
        self.where: dict[int, int] = {}  # id of a shared object -> its index
        self.alive: list[object] = []  # keeps ids from being used again while writing

    def tensor(self, t: Tensor) -> int:
        form = (t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride(), t.dtype, t.device)
        index = self.seen.get(form)
        if index is None:
            index = self.seen[form] = len(self.tensors)
            self.alive.append(t)
            # Cloned: safetensors refuses tensors that share memory, and rows of one stack do.
            self.tensors[str(index)] = t.detach().to("cpu").clone(memory_format=torch.contiguous_format)
        return index

    def put(self, v: Any) -> Json:
        kind = type(v)
        if kind in _PLAIN:
            plain: Json = v
            return plain
        if kind is list:
            return [self.put(x) for x in v]
        if kind is tuple:
            return {"$t": [self.put(x) for x in v]}
        if isinstance(v, Tensor):
            return {"$x": self.tensor(v)}
        if kind is dict or kind in _FIELDS:
            index = self.where.get(id(v))
            if index is None:
                body = self._dict(v) if kind is dict else self._fields(v, *_FIELDS[kind])
                index = self.where[id(v)] = len(self.shared)
                self.shared.append(body)
                self.alive.append(v)
            return {"$s": index}
        return self._rare(v)

    def _dict(self, v: dict[Hashable, Any]) -> Json:
        names = [k for k in v if type(k) is str and not k.startswith("$")]
        if len(names) == len(v):
            return {k: self.put(v[k]) for k in names}
        return {"$d": [[self.put(k), self.put(x)] for k, x in v.items()]}

    def _fields(self, v: object, name: str, fields: tuple[str, ...]) -> Json:
        return {"$v": name, "f": [self.put(getattr(v, f)) for f in fields]}

    def _rare(self, v: Any) -> Json:
        if isinstance(v, np.ndarray) and v.dtype.kind in _KINDS:
            # Bytes plus a type: safetensors has no unsigned 64-bit integers in every version.
            raw = torch.from_numpy(np.frombuffer(np.ascontiguousarray(v).tobytes(), np.uint8).copy())
            return {"$n": self.tensor(raw), "dtype": v.dtype.str, "shape": list(v.shape)}
        if isinstance(v, np.generic):
            return self.put(v.item())
        if isinstance(v, range):
            return {"$r": [v.start, v.stop, v.step]}
        if isinstance(v, set | frozenset):
            return {"$f" if isinstance(v, frozenset) else "$e": [self.put(x) for x in sorted(v, key=repr)]}
        if isinstance(v, bytes):
            return {"$b": base64.b64encode(v).decode()}
        raise PotluckError(
            f"a {type(v).__name__} can't be stored or sent: make it a @value, a tensor or a plain container"
        )


class _Reader:
    def __init__(
        self, tensors: dict[str, Tensor], device: str, allow: Collection[str] | None, limits: Limits
    ) -> None:
        self.tensors, self.device = tensors, device
        self.left = sum(t.nbytes for t in tensors.values())  # bytes that arrays may still take
        self.allow = None if allow is None else frozenset(allow)
        self.most_items, self.most_depth = limits.items, limits.depth
        self.moved: dict[int, Tensor] = {}  # by the stored one's id: shared ones stay shared
        self.shared: list[Any] = []
        self.sizes: list[tuple[int, int]] = []  # of each shared one: items, depth
        self.items = self.depth = self.deepest = 0

    def share(self, entry: Json) -> None:
        made = self.get(entry)
        # Nothing else was ever shared; a tuple of shared tuples could take for ever to hash.
        if type(made) is not dict and type(made) not in _FIELDS:
            raise DecodeError(f"a {type(made).__name__} can't be shared")
        self.shared.append(made)
        self.sizes.append((self.items, self.deepest))
        self.items = self.deepest = 0

    def get(self, v: Json) -> Any:
        tag, cls, entries = "", None, v
        if isinstance(v, dict):
            tag = next(iter(v), "")
            keys = _KEYS.get(tag)
            if keys is None and tag[:1] != "$":
                tag, entries = "{}", list(v.values())
            elif len(v) != keys:
                raise DecodeError(f"unknown tag or wrong keys: {_brief(list(v))}")
            elif tag == "$s":
                return self.shared[self._before(v[tag])]
            elif tag == "$x":
                return self._tensor(v[tag])
            elif tag == "$v":
                cls, entries = self._class(v[tag]), v.get("f")
            elif tag in ("$n", "$r", "$b"):
                return self._rare(v)
            else:
                entries = v[tag]
        elif not isinstance(v, list):
            return v
        if not isinstance(entries, list):
            raise DecodeError(f"{tag}: a list was expected, not {_brief(entries)}")
        self.items += len(entries)
        self.depth += 1
        if self.items > self.most_items or self.depth > self.deepest:
            self._check(self.depth)
        made = [x if type(x) in _PLAIN else self.get(x) for x in entries]
        self.depth -= 1
        if not tag:
            return made
        if isinstance(v, dict) and tag == "{}":
            return dict(zip(v, made, strict=True))
        return tuple(made) if tag == "$t" else self._build(tag, cls, made)

    def _check(self, depth: int) -> None:
        self.deepest = max(self.deepest, depth)
        if self.items > self.most_items:
            raise DecodeError(f"more than {self.most_items} items")
        if depth > self.most_depth:
            raise DecodeError(f"nested deeper than {self.most_depth}")

    def _class(self, name: Json) -> type:
        cls = _KNOWN.get(name) if isinstance(name, str) else None
        if cls is None:
            raise DecodeError(
                f"unknown kind of value {_brief(name)}: import the module that defines it first"
            )
        if self.allow is not None and name not in self.allow:
            raise DecodeError(f"a {name} is not allowed here")
        return cls

    def _build(self, tag: str, cls: type | None, made: list[Any]) -> Any:
        name = tag
        try:
            if cls is None:
                return dict(made) if tag == "$d" else set(made) if tag == "$e" else frozenset(made)
            name, fields = _FIELDS[cls]
            if len(made) == len(fields):
                return cls(*made)
        except Exception as error:  # a value may refuse its fields, and a key its hash, in any way
            raise DecodeError(f"{name} can't be built: {type(error).__name__}: {error}") from error
        raise DecodeError(f"{name}: {len(made)} fields, not {len(fields)}")

    def _before(self, index: Json) -> int:
        if type(index) is not int or not 0 <= index < len(self.shared):
            raise DecodeError(f"no shared value {_brief(index)} before this one")
        items, depth = self.sizes[index]
        self.items += items
        if self.items > self.most_items or self.depth + depth > self.deepest:
            self._check(self.depth + depth)
        return index

    def _find_stored(self, index: Json) -> Tensor:
        stored = self.tensors.get(str(index)) if type(index) is int else None
        if stored is None:
            raise DecodeError(f"no tensor {_brief(index)}")
        return stored

    def _tensor(self, index: Json) -> Tensor:
        stored = self._find_stored(index)
        if id(stored) not in self.moved:
            self.moved[id(stored)] = stored.to(self.device)
        return self.moved[id(stored)]

    def _rare(self, v: dict[str, Json]) -> bytes | range | npt.NDArray[np.generic]:
        try:
            if "$n" in v:
                return self._array(self._find_stored(v["$n"]), v.get("dtype"), _whole(v.get("shape")))
            if "$r" in v:
                return range(*_whole(v["$r"]))
            return base64.b64decode(_expect(str, v["$b"]), validate=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise DecodeError(f"{next(iter(v))} can't be built: {error}") from error

    def _array(self, raw: Tensor, dtype: Json, shape: list[int]) -> npt.NDArray[np.generic]:
        name = _expect(str, dtype)
        self.left -= raw.nbytes  # every array has bytes of its own
        if raw.dtype != torch.uint8 or min(shape, default=0) < 0 or not _DTYPE.fullmatch(name):
            raise DecodeError(f"no array: type {_brief(name)}, shape {_brief(shape)}, stored as {raw.dtype}")
        if self.left < 0:
            raise DecodeError("arrays of more bytes than there are")
        return np.frombuffer(raw.numpy().tobytes(), name).reshape(shape).copy()


def _whole(v: Json) -> list[int]:
    if all(type(x) is int for x in _expect(list, v)):
        return _expect(list, v)
    raise DecodeError(f"whole numbers were expected, not {_brief(v)}")


def _expect(kind: type[T], v: Json) -> T:
    if not isinstance(v, kind):
        raise DecodeError(f"a {kind.__name__} was expected, not {_brief(v)}")
    return v


def encode(v: Any) -> bytes:
    """A value as bytes."""
    writer = _Writer()
    text = json.dumps({"shared": writer.shared, "root": writer.put(v)}, separators=(",", ":"))
    return safetensors.torch.save(writer.tensors, metadata={"potluck": text})


def decode(
    data: bytes, device: str = "cpu", *, allow: Collection[str] | None = None, limits: Limits | None = None
) -> Any:
    """The value that `encode` wrote; its tensors are put on a device.

    For bytes from outside, `allow` names the only values that may be built, and `limits` says how much there
    may be. Whatever is wrong with the bytes is a DecodeError.
    """
    limits = limits or Limits()
    if len(data) > limits.bytes:
        raise DecodeError(f"{len(data)} bytes, more than {limits.bytes}")
    try:
        content = _content(data, limits.tensors)
        items = min(limits.items, _SOME + _SHARED * int.from_bytes(data[:8], "little"))
        reader = _Reader(_tensors(data), device, allow, dataclasses.replace(limits, items=items))
        for entry in _expect(list, content["shared"]):
            reader.share(entry)
        return reader.get(content["root"])
    except RecursionError:
        raise DecodeError("nested too deep") from None


def _content(data: bytes, tensors: int) -> dict[str, Json]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise DecodeError(f"cut short: {len(data)} bytes")
    try:
        header = _expect(dict, json.loads(data[8 : 8 + length]))
        text = _expect(dict, header.get("__metadata__")).get("potluck")
        content = _expect(dict, json.loads(_expect(str, text)))
    except ValueError as error:
        raise DecodeError(f"not written by the codec: {error}") from None
    if len(header) - 1 > tensors:
        raise DecodeError(f"{len(header) - 1} tensors, more than {tensors}")
    if content.keys() != {"shared", "root"}:
        raise DecodeError(f"not written by the codec: {_brief(list(content))}")
    return content


def _tensors(data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # it raises whatever its parser and torch do
        raise DecodeError(f"tensors that can't be read: {error}") from error
