"""One tagged codec for snapshots and wires: safetensors for the numbers, JSON for the rest; no pickle.

`@value` makes a class a dataclass that the codec knows. Decoding can only build registered values and plain
containers: it never imports, looks up or calls anything that the bytes name.
Objects that were shared (a tensor in a hundred tasks, a job in a thousand) are written once and are shared
again after decoding, so batching by identity works the same on both sides.
"""

import base64
import dataclasses
import json
import struct
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform, overload

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from potluck.core.errors import PotluckError

T = TypeVar("T")
_KNOWN: dict[str, type] = {}
_FIELDS: dict[type, tuple[str, tuple[str, ...]]] = {}


@overload
def value(cls: type[T], /) -> type[T]: ...
@overload
def value(*, frozen: bool = True, eq: bool = True, light: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def value(cls: type | None = None, /, *, frozen: bool = True, eq: bool = True, light: bool = False) -> Any:
    """Make a class a slotted dataclass, frozen unless said, that can be snapshotted and sent.

    `light` leaves freezing to the type checker: made by the thousand, such values cost a third.
    """

    def make(cls: type) -> type:
        made: type = dataclasses.dataclass(frozen=frozen and not light, eq=eq, slots=True)(cls)
        name = f"{made.__module__}:{made.__qualname__}"
        _KNOWN[name] = made
        _FIELDS[made] = (name, tuple(f.name for f in dataclasses.fields(made)))
        return made

    return make if cls is None else make(cls)


def known(name: str) -> type | None:
    """The registered value class of a full name (`module:Class`)."""
    return _KNOWN.get(name)


def values() -> dict[str, type]:
    """All registered value classes."""
    return dict(_KNOWN)


class _Writer:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.seen: dict[Any, int] = {}  # storage, offset and form of a tensor -> its index
        self.shared: list[Any] = []
        self.where: dict[int, int] = {}  # id of a shared object -> its index
        self.alive: list[Any] = []  # keeps ids from being used again while writing

    def tensor(self, t: Tensor) -> int:
        form = (t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride(), t.dtype, t.device)
        index = self.seen.get(form)
        if index is None:
            index = self.seen[form] = len(self.tensors)
            self.alive.append(t)
            # Cloned: safetensors refuses tensors that share memory, and rows of one stack do.
            self.tensors[str(index)] = t.detach().to("cpu").clone(memory_format=torch.contiguous_format)
        return index

    def put(self, v: Any) -> Any:
        kind = type(v)
        if v is None or kind in (bool, int, float, str):
            return v
        if kind is list:
            return [self.put(x) for x in v]
        if kind is tuple:
            return {"$t": [self.put(x) for x in v]}
        if isinstance(v, Tensor):
            return {"$x": self.tensor(v)}
        if kind is dict or kind in _FIELDS:
            index = self.where.get(id(v))
            if index is None:
                body = self._dict(v) if kind is dict else self._value(v)
                index = self.where[id(v)] = len(self.shared)
                self.shared.append(body)
                self.alive.append(v)
            return {"$s": index}
        return self._rare(v)

    def _dict(self, v: dict[Any, Any]) -> Any:
        if all(type(k) is str and not k.startswith("$") for k in v):
            return {k: self.put(x) for k, x in v.items()}
        return {"$d": [[self.put(k), self.put(x)] for k, x in v.items()]}

    def _value(self, v: Any) -> Any:
        name, fields = _FIELDS[type(v)]
        return {"$v": name, "f": [self.put(getattr(v, f)) for f in fields]}

    def _rare(self, v: Any) -> Any:
        if isinstance(v, np.ndarray) and v.dtype.kind in "biufcSUmM":
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
    def __init__(self, tensors: dict[str, Tensor], device: str) -> None:
        self.tensors, self.device = tensors, device
        self.placed: dict[int, Tensor] = {}  # shared ones stay shared
        self.shared: list[Any] = []

    def get(self, v: Any) -> Any:
        if isinstance(v, list):
            return [self.get(x) for x in v]
        if not isinstance(v, dict):
            return v
        if len(v) == 1 or "$v" in v or "$n" in v:
            for tag, read in self._READ.items():
                if tag in v:
                    return read(self, v)
        return {k: self.get(x) for k, x in v.items()}

    def _value(self, v: dict[str, Any]) -> Any:
        cls = _KNOWN.get(v["$v"])
        if cls is None:
            raise PotluckError(f"unknown kind of value {v['$v']!r}: import the module that defines it first")
        return cls(*(self.get(x) for x in v["f"]))

    def _tensor(self, index: int) -> Tensor:
        if index not in self.placed:
            self.placed[index] = self.tensors[str(index)].to(self.device)
        return self.placed[index]

    def _array(self, v: dict[str, Any]) -> Any:
        raw = self.tensors[str(v["$n"])].numpy().tobytes()
        return np.frombuffer(raw, np.dtype(v["dtype"])).reshape(v["shape"]).copy()

    _READ: ClassVar[dict[str, "Callable[[_Reader, dict[str, Any]], Any]"]] = {
        "$s": lambda self, v: self.shared[v["$s"]],
        "$v": _value,
        "$t": lambda self, v: tuple(self.get(x) for x in v["$t"]),
        "$x": lambda self, v: self._tensor(v["$x"]),
        "$d": lambda self, v: {self.get(k): self.get(x) for k, x in v["$d"]},
        "$n": _array,
        "$r": lambda self, v: range(*v["$r"]),
        "$e": lambda self, v: {self.get(x) for x in v["$e"]},
        "$f": lambda self, v: frozenset(self.get(x) for x in v["$f"]),
        "$b": lambda self, v: base64.b64decode(v["$b"]),
    }


def encode(v: Any) -> bytes:
    """A value as bytes."""
    writer = _Writer()
    root = writer.put(v)
    text = json.dumps({"shared": writer.shared, "root": root}, separators=(",", ":"))
    return safetensors.torch.save(writer.tensors, metadata={"potluck": text})


def decode(data: bytes, device: str = "cpu") -> Any:
    """The value that `encode` wrote; its tensors are put on a device."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    content = json.loads(header["__metadata__"]["potluck"])
    reader = _Reader(safetensors.torch.load(data), device)
    for item in content["shared"]:
        reader.shared.append(reader.get(item))
    return reader.get(content["root"])
