"""What crosses a wire between a server and a device: a small head, and the bytes of a tree.

A head is a value of this file. Bodies are encoded once, however many devices they go to. Both sides decode
with limits, and build nothing but what is allowed: see `vocabulary`.
"""

from collections.abc import Collection, Hashable
from dataclasses import fields
from types import NoneType

from potluck.core import codec
from potluck.core.codec import Limits, value
from potluck.core.errors import DecodeError
from potluck.core.job import Job
from potluck.core.trees import Tree

PROTOCOL = 1
LINE = 200  # characters of what is told of a failure
HEAD = Limits(bytes=8 << 20, tensors=64, depth=64, items=100_000)
BODY = Limits(bytes=512 << 20, tensors=100_000, depth=64, items=10_000_000)
_LENGTH = 4  # bytes in front of a parcel: how long its head is


# ------------------------------------------------------------------------------------------- to a device


@value(name="deploy.Hello")
class Hello:
    """To a node that has come: which run this is, and who it is there."""

    protocol: int
    run: str
    node: int


@value(name="deploy.Work", eq=False)
class Work:
    """A task, or a tell; its body is what is sent to the job."""

    key: str  # run, sender, count: the same after any restart
    job: Job
    seed: int
    slot: Hashable
    base: str | None  # the last key of this slot whose result counted: the memory to begin with
    node: int


@value(name="deploy.Score", eq=False)
class Score:
    """Score a model that is served, on own test rows; nothing is kept of it."""

    key: str
    job: Job
    seed: int
    slot: Hashable
    base: str | None
    node: int
    part: str  # of own rows: test or validation


@value(name="deploy.Choose", eq=False)
class Choose:
    """Choose between several models, then score the chosen one; the body has what each of them is sent."""

    key: str
    job: Job  # it names the one
    seed: int
    slot: Hashable
    base: str | None
    scores: dict[str, Score]
    node: int


@value(name="deploy.CallOff")
class CallOff:
    """This work is no longer wanted."""

    key: str


Order = Hello | Work | Score | Choose | CallOff


# ----------------------------------------------------------------------------------------- from a device


@value(name="deploy.Present", eq=False)
class Present:
    """The answer to a hello: rows by part, and what the device says of itself."""

    protocol: int
    version: str  # of Potluck
    rows: dict[str, int]
    labels: list[int]  # train rows by class
    claims: dict[str, float]  # columns of fleet.Profiles


@value(name="deploy.Done", eq=False)
class Done:
    """Work is done; its body is the result's."""

    key: str
    weight: float
    metrics: dict[str, float]
    kept: bool  # whether the device's memory changed with it
    down: float = 0.0  # seconds
    compute: float = 0.0


@value(name="deploy.Scored", eq=False)
class Scored:
    """What a served model came to."""

    key: str
    metrics: dict[str, float]
    chosen: dict[str, float | str] | None = None  # its name, and what was measured to choose it


@value(name="deploy.Failed", eq=False)
class Failed:
    """Work that wasn't done, and why: refused (not allowed here), bad (own check), failed (an exception)."""

    key: str
    status: str
    why: str


Report = Present | Done | Scored | Failed
# What a report's fields are, in order: a device may write anything into them.
_NUMBER = (int, float)
_KINDS: dict[type, tuple[type | tuple[type, ...], ...]] = {
    Present: (int, str, dict, list, dict),
    Done: (str, _NUMBER, dict, bool, _NUMBER, _NUMBER),
    Scored: (str, dict, (dict, NoneType)),
    Failed: (str, str, str),
}
REPORTS = ("deploy.Present", "deploy.Done", "deploy.Scored", "deploy.Failed")
ORDERS = ("deploy.Hello", "deploy.Work", "deploy.Score", "deploy.Choose", "deploy.CallOff")


# ----------------------------------------------------------------------------------------------- as bytes


def make_line(text: str, most: int = LINE) -> str:
    """A text from elsewhere, fit for a log: one line, without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def pack(head: Order | Report, body: bytes = b"") -> bytes:
    """A parcel as bytes."""
    front = codec.encode(head)
    return len(front).to_bytes(_LENGTH, "little") + front + body


def unpack_order(data: bytes, allow: Collection[str], limits: Limits = BODY) -> tuple[Order, bytes]:
    """What a device is asked for, and the body, not decoded yet. Anything else is a DecodeError."""
    head, body = _unpack(data, (*allow, *ORDERS), limits)
    if isinstance(head, Order):
        return head, body
    raise DecodeError(f"a {type(head).__name__} was sent; expected: {', '.join(ORDERS)}")


def unpack_report(data: bytes, limits: Limits = BODY) -> tuple[Report, bytes]:
    """What a device says, and the body, not decoded yet. Anything else is a DecodeError."""
    head, body = _unpack(data, REPORTS, limits)
    if not isinstance(head, Report):
        raise DecodeError(f"a {type(head).__name__} was sent; expected: {', '.join(REPORTS)}")
    for field, kind in zip(fields(head), _KINDS[type(head)], strict=True):
        told = getattr(head, field.name)
        if not isinstance(told, kind):
            raise DecodeError(f"{type(head).__name__}.{field.name} is a {type(told).__name__}")
    return head, body


def _unpack(data: bytes, allow: Collection[str], limits: Limits) -> tuple[object, bytes]:
    if len(data) > limits.bytes:
        raise DecodeError(f"{len(data)} bytes, more than {limits.bytes}")
    length = int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or length > len(data) - _LENGTH:
        raise DecodeError(f"cut short: {len(data)} bytes")
    head: object = codec.decode(data[_LENGTH : _LENGTH + length], allow=allow, limits=HEAD)
    return head, data[_LENGTH + length :]


def read_body(body: bytes, allow: Collection[str] = (), limits: Limits = BODY) -> Tree:
    """The tree of a body; an empty one is None."""
    return codec.decode(body, allow=allow, limits=limits) if body else None
