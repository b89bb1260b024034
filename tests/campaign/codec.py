"""Messages that were changed on their way: each gives a value that can be walked through, or one error."""

import json
import random
import resource
import struct
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import torch

from potluck.core import codec
from potluck.core.errors import DecodeError, JobError
from potluck.core.job import Cost, ModelSpec, Result
from potluck.core.messages import Lost, Note, Task, Until
from potluck.core.trees import copy_tree, finite, leaves, nbytes, same_form
from potluck.engine.checks import find_problem
from potluck.jobs import SGD, Prox, Train

TITLE = "mutated messages of the codec"
COUNT = 200_000
QUICK = 1_500

SECONDS, MEGABYTES = 5.0, 200  # that a message of a few kilobytes may take


def attempt(number: int, folder: Path) -> None:
    rng = random.Random(number)
    good = rng.choice(messages())
    data = rng.choice(WAYS)(rng, good)
    began, most = time.monotonic(), measure()
    with suppress(DecodeError):
        walk(codec.decode(data))
    assert time.monotonic() - began < SECONDS
    assert measure() - most < MEGABYTES


def walk(value) -> None:
    """All that is done with what came in, before anyone believes it."""
    finite(value)
    for each in (nbytes, leaves, copy_tree):
        with suppress(JobError):  # too deep, or too many
            each(value)
    promised = {"w": torch.zeros(4), "n": [1, 2]}
    same_form(value, promised)
    for sends in (None, promised):
        problem = find_problem(Result(value, value, None, value), Cost(sends=sends), trusted=False)
        assert isinstance(problem, str)


def measure() -> float:
    """The most memory that this process ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@cache
def messages() -> tuple[bytes, ...]:
    """Good ones, of all that the codec knows."""
    job = Train(ModelSpec("mlp"), Prox(0.1), optim=SGD(0.1), batch=4)
    model = {"w": torch.randn(3, 4), "b": torch.zeros(4, dtype=torch.float16), "n": torch.tensor(3)}
    tasks = [Task(i, job, {"model": model}, tag=("round", i), id=(0, 1, i)) for i in range(4)]
    plain = {"a": [1, 2.5, None, True, "x"], "t": ((1, "b"), b"bytes", range(3)), ("k", 1): {1, 2}}
    arrays = [np.arange(5), np.zeros((2, 3), np.float32), np.array(["ab", "c"]), frozenset({"a"})]
    values = (tasks, [Lost(tasks[0], "late"), Note("n", plain, "g"), Until(3.0)], plain, arrays, model)
    return tuple(codec.encode(value) for value in values)


# ------------------------------------------------------------------------------------ what happens to them


def flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(rng: random.Random, data: bytes) -> bytes:
    """A piece is cut out, put elsewhere, or taken from another message."""
    other = rng.choice(messages())
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(other))
    piece = rng.choice((b"", rng.randbytes(rng.randrange(9)), other[start : start + rng.randrange(200)]))
    return data[:at] + piece + data[at + rng.choice((0, 0, len(piece), rng.randrange(200))) :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))] + bytes(rng.choice((0, 0, 8, 1000)))


def lie(rng: random.Random, data: bytes) -> bytes:
    """Another length of the header, or other facts about a tensor."""
    if rng.random() < 0.2:
        return struct.pack("<Q", rng.choice((0, 7, len(data), 2**31, 2**63, rng.getrandbits(64)))) + data[8:]
    header, content, stored = open_message(data)
    names = [name for name in header if name != "__metadata__"]
    if names:
        fact = rng.choice(("dtype", "shape", "data_offsets"))
        header[rng.choice(names)][fact] = rng.choice((*LIES, junk(rng)))
    return seal(header, content, stored)


def rewrite(rng: random.Random, data: bytes) -> bytes:
    """Some places of what is said are something else."""
    header, content, stored = open_message(data)
    return seal(header, change(rng, content, rng.choice((0.02, 0.1, 0.3))), stored)


def multiply(rng: random.Random, data: bytes) -> bytes:
    """What is shared is named again and again: by doubling, in chains, in long lists, as keys."""
    header, content, stored = open_message(data)
    shared = content["shared"] = content["shared"] or [{"x": 1}]
    for _ in range(rng.choice((2, 5, 10, 20, 80))):
        last = {"$s": len(shared) - 1}
        shared.append(
            rng.choice(
                (
                    {"a": last, "b": last},
                    {"$v": "Until", "f": [last, last]},
                    {"$d": [[last, last], [1, [last] * 40]]},
                    {"a": [last] * rng.choice((1, 2, 100))},
                    {"a": {"$t": [last, {"$e": [1]}, {"$r": [0, 10**12, 1]}]}},
                )
            )
        )
    last = {"$s": len(shared) - 1}
    array = {"$n": 0, "dtype": "|u1", "shape": [rng.choice((0, 8, 40))]}
    content["root"] = rng.choice(
        ([last], {"$e": [last]}, {"$d": [[last, 1]]}, [array] * rng.choice((2, 20_000)), last)
    )
    return seal(header, content, stored)


WAYS = 6 * (flip, splice, lie, rewrite, rewrite) + (cut, multiply)  # the last takes a hundred times as long
LIES = ("F64", "BOOL", "Q8", [2**62, 2**62], [0, 2**63], [-1], [], [10**12], [0, 10**12], [8, 0], [0, 0])
PLAIN = (None, True, -1, 0, 2**70, 1e308, float("nan"), "", "x" * 300, "\ud800", "$s", "Until", "Task")


def junk(rng: random.Random, depth: int = 3):
    if not depth or rng.random() < 0.5:
        return rng.choice(PLAIN)
    if rng.random() < 0.4:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(4))]
    keys = rng.sample(("$s", "$v", "f", "$t", "$d", "$e", "$x", "$n", "dtype", "shape", "$r", "$b", "a"), 2)
    return {key: junk(rng, depth - 1) for key in keys[: rng.choice((1, 1, 2))]}


def change(rng: random.Random, v, odds: float):
    if isinstance(v, list):
        return [junk(rng) if rng.random() < odds / 4 else change(rng, x, odds) for x in v]
    if isinstance(v, dict):
        return {
            rng.choice(("$s", "$t", "f", k)) if rng.random() < odds / 4 else k: change(rng, x, odds)
            for k, x in v.items()
        }
    return junk(rng) if rng.random() < odds else v


def open_message(data: bytes):
    """The header of bytes, what the codec wrote into it, and the tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["potluck"]), data[8 + length :]


def seal(header, content, stored: bytes) -> bytes:
    text = json.dumps({**header, "__metadata__": {"potluck": json.dumps(content)}}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + stored
