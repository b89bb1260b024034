"""What a device may answer to work, and none of which may count: by kind, each with many forms."""

import dataclasses

import numpy as np
import torch

from potluck.core import codec
from potluck.core.codec import Limits
from potluck.core.messages import Lost, Task
from potluck.core.trees import copy_tree, leaves, tmap
from potluck.deploy import parcels
from potluck.deploy.parcels import BODY, Done, Failed, Hello, Present, Scored

LIMITS = Limits(1 << 20, BODY.tensors, BODY.depth, BODY.items)  # of those who are lied to


def junk(rng, done, body):
    return rng.randbytes(rng.choice((1, 3, 4, 5, 40, 1000)))


def nothing(rng, done, body):
    return bytes(rng.choice((1, 4, 8, 100)))


def cut_short(rng, done, body):
    whole = parcels.pack(done, codec.encode(body))
    return whole[: rng.randrange(1, len(whole))]


def too_large(rng, done, body):
    return parcels.pack(done, codec.encode(body) + bytes(LIMITS.bytes))


def too_deep(rng, done, body):
    deep = body
    for _ in range(rng.choice((70, 100, 150))):
        deep = rng.choice(([deep], {"x": deep}))
    return parcels.pack(done, codec.encode(deep))


def foreign(rng, done, body):
    """A value, where there are none but of reports, and none at all in a body."""
    values = (Task(0, None, {}), Lost(Task(0, None, {}), "late"), Hello(1, "r", 0), LIMITS)
    value = rng.choice(values[:3])
    if rng.random() < 0.5:
        return parcels.pack(dataclasses.replace(done, metrics={"loss": value}), codec.encode(body))
    return parcels.pack(done, codec.encode({**body, "params": value}))


def not_a_number(rng, done, body):
    made = copy_tree(body)
    numbers = rng.choice(leaves(made)).view(-1)
    numbers[rng.randrange(len(numbers))] = rng.choice((float("nan"), float("inf"), -float("inf")))
    return parcels.pack(done, codec.encode(made))


def other_shape(rng, done, body):
    change = rng.choice((lambda t: t[None], lambda t: t.reshape(-1)[:-1], lambda t: t.to(torch.float16)))
    return parcels.pack(done, codec.encode(tmap(change, body)))


def other_keys(rng, done, body):
    name = next(iter(body))
    wrong = ({}, {**body, "more": 1}, {f"{name}x": body[name]}, [body], body[name], 7, "x", {name: None})
    return parcels.pack(done, codec.encode(rng.choice(wrong)))


def no_body(rng, done, body):
    return parcels.pack(done)


def wrong_weight(rng, done, body):
    weight = rng.choice((1e9, -1.0, float("nan"), float("inf"), 2**70, 10**400, "9", None, [1.0]))
    weight = rng.choice((weight, torch.tensor(1.0), np.ones(2)))
    return parcels.pack(dataclasses.replace(done, weight=weight), codec.encode(body))


def many_metrics(rng, done, body):
    metrics = {f"m{i}": 1.0 for i in range(65)}
    return parcels.pack(dataclasses.replace(done, metrics=metrics), codec.encode(body))


def wrong_metrics(rng, done, body):
    number = rng.choice((float("nan"), 1e31, "x", None, torch.ones(3), [1.0]))
    wrong = (
        {"loss": number},
        {"other": 1.0},
        {1: 1.0},
        {("a", 1): 2.0},
        {"\ud800": 1.0},
        [1.0],
        None,
        "loss",
    )
    wrong += ({"x" * 1000: 1.0},)
    return parcels.pack(dataclasses.replace(done, metrics=rng.choice(wrong)), codec.encode(body))


def wrong_fields(rng, done, body):
    """Whatever else may stand where a text or a number was."""
    name = rng.choice(("key", "kept", "down", "compute"))
    thing = rng.choice((np.array(["ok", "bad"]), torch.ones(2), [1], {"a": 1}, None, 10**300 * 10**300, b"x"))
    if name == "key" or not isinstance(thing, int):
        return parcels.pack(dataclasses.replace(done, **{name: thing}), codec.encode(body))
    return parcels.pack(dataclasses.replace(done, kept=thing), codec.encode(body))


def other_report(rng, done, body):
    """A report, but on something else."""
    odd = rng.choice(
        (np.array(["refused", "x"]), torch.ones(2), 3, None, "bad", "\x1b[2J\n\ud800", "x" * 10**5)
    )
    heads = (
        Present(1, "", {}, [], {}),
        Scored(done.key, {"accuracy": 1.0}),
        Failed(done.key, "bad", odd),
        Failed(done.key, "failed", "\x1b]0;x\x07\nround 9\ud800"),
        Hello(1, "r", 0),
    )
    return parcels.pack(rng.choice(heads), codec.encode(body))


def long_head(rng, done, body):
    metrics = {f"m{i}": 0.5 for i in range(rng.choice((20_000, 60_000)))}
    return parcels.pack(dataclasses.replace(done, metrics=metrics), codec.encode(body))


def lying_length(rng, done, body):
    whole = parcels.pack(done, codec.encode(body))
    return rng.choice((0, 7, 2**31, 2**32 - 1)).to_bytes(4, "little") + whole[4:]


KINDS = (
    *(junk, nothing, cut_short, too_large, too_deep, foreign, not_a_number, other_shape, other_keys, no_body),
    *(wrong_weight, many_metrics, wrong_metrics, wrong_fields, other_report, long_head, lying_length),
)


def spoil(rng, report, kind=None):
    """A report on work, made into one that can't count."""
    done, rest = parcels.unpack_report(report)
    assert isinstance(done, Done)
    return (kind or rng.choice(KINDS))(rng, done, parcels.read_body(rest))
