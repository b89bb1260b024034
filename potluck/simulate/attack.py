"""What an attacker that lies alone sends instead of what it computed; see `potluck.fleet.attackers`.

A lie is a function of the honest result and of the task's own seed: it doesn't matter when it is told, in
which order or by which executor. All floating-point tensors of a training reply are falsified, those beside
the update too; whole numbers, weight and metrics stay as they are, but for misreports. What isn't training is
answered truly, but for malformed replies, misreports and forged affinity, which is of nothing else.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from potluck.core import keys
from potluck.core.job import Result, forgeable
from potluck.core.messages import Task
from potluck.core.trees import Tree, split
from potluck.fleet import Attack
from potluck.fleet.attackers import FLAWS, HUGE, MISREPORTS

LYING = -4  # stream of a task's seed; those of its training are -1 to -3
_GONE = object()
# Of any type, as whatever comes over a wire.
_WEIGHTS: dict[str, Tree] = {
    "huge": 1e308,
    "negative": -1.0,
    "nan": math.nan,
    "text": "malformed",
    "tensor": torch.ones(2),
}


def falsify(result: Result, sends: Tree, trained: bool, attack: Attack, seed: int) -> Result:
    """A false result; `sends`: the form that is expected, `trained`: whether it comes of training."""
    key = keys.derive(seed, LYING)
    if attack.kind == "malformed":
        return replace(result, body=_malform(result.body, sends, attack.what, key), finite=False)
    if attack.kind == "misreport":
        return _misreport(result, sends, attack.what, key)
    if not trained:
        return result
    tensors, rebuild = split(result.body)
    body = rebuild([_distort(t, attack, keys.derive(key, place)) for place, t in enumerate(tensors)])
    # Whoever doesn't train has nothing new to remember either.
    return replace(result, body=body, keep=None if attack.kind == "free_ride" else result.keep, finite=False)


def forge(task: Task, result: Result, attack: Attack, seed: int) -> Result | None:
    """A false word of where the device belongs; None where it isn't asked for one."""
    if not forgeable(task.job):
        return None
    assert attack.strength is not None
    key = keys.derive(seed, LYING)
    body = task.job.forge(result.body, task.send, attack.what == "gather", attack.strength, key)
    return replace(result, body=body, finite=False)


def _distort(t: Tensor, attack: Attack, key: int) -> Tensor:
    kind, scale = attack.kind, attack.strength
    assert scale is not None
    if not t.is_floating_point() or t.numel() == 0:
        return t
    if kind == "sign_flip":
        return t * -scale
    if kind == "scaling":
        return t * scale
    draw, shape = keys.as_tensor(key).to(t.device), tuple(t.shape)
    noise = scale * keys.normal(draw, shape, torch.float64)
    if kind == "free_ride":
        return noise.to(t.dtype)
    assert kind == "noise"
    honest = t.double()
    return (honest + honest.square().mean().sqrt() * noise).to(t.dtype)


def _malform(body: Tree, sends: Tree, what: str | None, key: int) -> Tree:
    """A body that isn't of the form that is expected, or that has numbers which are none."""
    tensors, rebuild = split(body)
    full = [place for place, t in enumerate(tensors) if t.numel()]
    if sends is None or not full:  # no form to miss, or no tensor to spoil
        return math.nan
    what = FLAWS[keys.derive(key, 0) % len(FLAWS)] if what is None else what
    if what == "nothing":
        return None
    if what == "empty":
        return {}
    place, bits = full[keys.derive(key, 1) % len(full)], keys.derive(key, 2)
    if what == "list":  # or the other way round
        return [*body.values()] if isinstance(body, dict) else {"body": body}
    if what == "extra":
        return {**body, "extra": tensors[place]} if isinstance(body, dict) else [body, body]
    spoilt: list[Tree] = list(tensors)
    spoilt[place] = _spoil(tensors[place], what, bits)
    return _drop_gone(rebuild(spoilt))


def _misreport(result: Result, sends: Tree, what: str | None, key: int) -> Result:
    """The same work, with something told beside it that can't be."""
    what = MISREPORTS[keys.derive(key, 0) % len(MISREPORTS)] if what is None else what
    kind, _, how = what.partition(" ")
    if kind == "weight":
        return replace(result, weight=_WEIGHTS[how], finite=False)
    if kind == "metrics":
        table: Tree = [*result.metrics.items()]
        return replace(result, metrics=table, finite=False)
    if kind == "metric":
        return replace(result, metrics=_spoil_metrics(result, how), finite=False)
    return replace(result, body=_spoil_number(result.body, sends, how), finite=False)


def _spoil_metrics(result: Result, how: str) -> Tree:
    first = next(iter(result.metrics), "extra")
    if how == "missing":  # where none is told, or none needs to be, not even a table is
        rest = {name: number for name, number in result.metrics.items() if name != first}
        return rest if result.metrics and result.weight > 0 else None
    if how == "extra":
        return {**result.metrics, "extra": 1.0}
    worst = {"nan": math.nan, "inf": math.inf, "huge": 1e308, "text": "malformed"}[how]
    return {**result.metrics, first: worst}


def _spoil_number(body: Tree, sends: Tree, how: str) -> Tree:
    """A number where a tensor is expected, or a whole number that can't be; NaN where neither is possible.

    `how`: huge or negative; of what isn't about whole numbers, nothing.
    """
    tensors, rebuild = split(body)
    spoilt: list[Tree] = list(tensors)
    if sends is None:
        return math.nan
    if not how and tensors:
        spoilt[0] = 1.0
        return rebuild(spoilt)
    for place, t in enumerate(tensors):
        if how and t.dtype == torch.int64 and t.numel():
            spoilt[place] = torch.full_like(t, 2**40 if how == "huge" else -1)
            return rebuild(spoilt)
    if how and isinstance(body, dict):
        for name, number in body.items():
            if type(number) is int:
                return {**body, name: 10**400 if how == "huge" else -1}
    return math.nan


def _spoil(t: Tensor, what: str, bits: int) -> Tree:
    """A tensor, not empty, as it must not be."""
    if what == "missing":
        return _GONE
    if what == "text":
        return "malformed"
    if what == "sparse":
        return t.to_sparse()
    if what == "dtype":
        return t.float() if t.dtype == torch.float64 else t.double()
    if what == "shape":  # one that would broadcast unnoticed, or twice as many numbers
        return t.unsqueeze(0) if bits % 2 else torch.cat([t.reshape(-1)] * 2)
    flat = (t if t.is_floating_point() else t.double()).clone().reshape(-1)
    worst = {"nan": math.nan, "inf": math.inf, HUGE: torch.finfo(flat.dtype).max}[what]
    flat[(bits >> 1) % len(flat)] = worst if bits % 2 else -worst
    return flat.reshape(t.shape)


def _drop_gone(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {k: _drop_gone(v) for k, v in tree.items() if v is not _GONE}
    if isinstance(tree, list | tuple):
        return [_drop_gone(v) for v in tree if v is not _GONE]
    return tree
