"""What a device knows of cohorts: its record, which it keeps itself, and what it does with it.

A record holds how well the device fitted each cohort (reward), on which side of each it was (side: one answer
for every number of parts that the cohort may split into) and how often it took part in each (times). The
device chooses its cohort from it and asks for that; the server forgets it as soon as the round is over. A
device that lost its record begins anew.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.trees import Tree
from potluck.jobs.cohort_tree import below, distance, parts
from potluck.jobs.losses import row_losses

SLOT = "affinity"
Explore = Literal["adds", "sets", "told"]


def blank() -> dict[str, Any]:
    """The record of a device that knows nothing."""
    return {"reward": {}, "side": {}, "times": {}}


def inherited(record: dict[str, Any], leaves: Sequence[str], bonus: float) -> dict[str, Any]:
    """The record after splits that the device hadn't heard of: children begin with their parent's reward.

    The child on the device's own side begins above, so that it is what the device asks for.
    """
    if all(leaf in record["reward"] for leaf in leaves):
        return record
    reward = dict(record["reward"])
    for cohort in sorted(record["reward"], key=len):
        for leaf in below(cohort, leaves):
            path = cohort
            while path != leaf:  # step by step: a side is known of each level apart
                side = record["side"].get(path, {}).get(parts(path, leaves))
                old, path = reward[path], leaf[: len(path) + 1]
                reward.setdefault(path, old + (bonus if side == int(path[-1]) else 0.0))
    return {**record, "reward": reward}


def chosen(record: Mapping[str, Any], leaves: Sequence[str], epsilon: float, key: int) -> str:
    """The leaf that a device asks for: mostly its best, any at random now and then or if it has no best."""
    known: dict[str, float] = {}
    if record["reward"]:
        known = {leaf: reward for leaf in leaves if (reward := _known(record, leaf)) is not None}
    if not known or keys.chance(key, 0) < epsilon:
        return leaves[int(keys.chance(key, 1) * len(leaves))]
    top = max(known.values())
    best = [leaf for leaf, r in known.items() if r == top]
    return best[0] if len(best) == 1 else best[int(keys.chance(key, 2) * len(best))]


def _known(record: Mapping[str, Any], leaf: str) -> float | None:
    """The reward of a leaf; of one that had split before its server forgot that, the best of its parts."""
    rewards: dict[str, float] = record["reward"]
    if leaf in rewards:
        return rewards[leaf]
    return max((r for name, r in rewards.items() if name.startswith(leaf)), default=None)


def learnt(
    record: Mapping[str, Any], told: Mapping[str, Any], gamma: float, explore: Explore
) -> dict[str, Any]:
    """The record after a round: the cohort's own reward, the side in it, and what it means for the others."""
    cohort, gain = told["cohort"], told["gain"]
    reward, times = dict(record["reward"]), dict(record["times"])
    times[cohort] = times.get(cohort, 0) + 1
    side = {**record["side"], cohort: told["side"]} if told["side"] else record["side"]
    if gain is None:
        if told["side"]:  # a member, with nothing said yet of how well it fits
            reward.setdefault(cohort, 0.0)
    elif explore == "told":  # the cohort could tell about all of them; a first word counts whole
        for name, said in {**told["others"], cohort: gain}.items():
            reward[name] = gamma * said + (1 - gamma) * reward[name] if name in reward else said
    else:
        reward[cohort] = gamma * gain + (1 - gamma) * reward.get(cohort, 0.0)
        for other in told["leaves"]:
            if other != cohort and other not in times:  # never tried: a guess from how near it is
                guess = gain / (distance(cohort, other) + 1)
                reward[other] = guess + (reward.get(other, 0.0) if explore == "adds" else 0.0)
    return {"reward": reward, "side": dict(side), "times": times}


@value
class CheckIn:
    """The affinity request: which cohort the device would train in, how well it fits, and its side there."""

    bonus: float = 0.1
    every: bool = False  # tell how well it fits all other cohorts too

    def cost(self, at: Local) -> Cost:
        rewards = len(at.inbox["leaves"]) if self.every else 0
        return Cost(sends=bytes(_HEAD.size + 8 * rewards))

    def run(self, at: Local) -> Result:
        leaves, kept = at.inbox["leaves"], at.keep
        record = blank() if kept is None else inherited(kept, leaves, self.bonus)
        cohort, reward = chosen(record, leaves, at.inbox["epsilon"], at.seed), record["reward"]
        side, times = record["side"].get(cohort, {}), sum(record["times"].values())
        request = packed(leaves, cohort, reward.get(cohort, 0.0), side, times, reward if self.every else None)
        return Result(request, keep=None if kept is None or record is kept else record)


# Place of the cohort among the leaves, affinity, one letter of side for two to ten sides, times.
_HEAD = struct.Struct("<Hd9sI")
_NOWHERE = b"." * 9
_NAN = float("nan")


def packed(
    leaves: Sequence[str],
    cohort: str,
    affinity: float,
    side: Mapping[int, int],
    times: int,
    rewards: Mapping[str, float] | None,
) -> bytes:
    """A request as it travels; `rewards` of all leaves, NaN where nothing is known, or None."""
    letters = "".join(str(side.get(k, ".")) for k in range(2, 11)).encode() if side else _NOWHERE
    head = _HEAD.pack(leaves.index(cohort), affinity, letters, times)
    if rewards is None:
        return head
    return head + struct.pack(f"<{len(leaves)}d", *[rewards.get(leaf, _NAN) for leaf in leaves])


def unpacked(request: bytes, leaves: Sequence[str]) -> dict[str, Any]:
    """A request as the server reads it; `leaves` are those that the device was told."""
    place, affinity, letters, times = _HEAD.unpack_from(request)
    side = {} if letters == _NOWHERE else {k: c - 48 for k, c in enumerate(letters, 2) if c != 46}
    rewards: dict[str, float] = {}
    if times and len(request) > _HEAD.size:
        found = zip(leaves, struct.unpack_from(f"<{len(leaves)}d", request, _HEAD.size), strict=True)
        rewards = {leaf: r for leaf, r in found if r == r}
    return {"cohort": leaves[place], "affinity": affinity, "side": side, "times": times, "rewards": rewards}


@value(name="auxo.Remember")
class Remember:
    """The affinity feedback: what a round has told of the device and its cohort."""

    gamma: float = 0.9
    explore: Explore = "adds"
    bonus: float = 0.1

    def cost(self, at: Local) -> Cost:
        return Cost()

    def run(self, at: Local) -> Result:
        # Sides are of the round that has ended, so they are noted before a split is taken in.
        record = learnt(blank() if at.keep is None else at.keep, at.inbox, self.gamma, self.explore)
        return Result(None, keep=inherited(record, at.inbox["leaves"], self.bonus))


@value
class Settle:
    """Which cohort's model a device uses: its best; if it was never seen, that of least loss on its rows."""

    model: ModelSpec
    bonus: float = 0.1

    def cost(self, at: Local) -> Cost:
        net = at.models[self.model]
        return Cost(float(len(at.rows) * len(at.inbox["models"]) * net.ops))

    def run(self, at: Local) -> Result:
        models: dict[str, Tree] = at.inbox["models"]
        record = blank() if at.keep is None else inherited(at.keep, list(models), self.bonus)
        times = {"times": float(sum(record["times"].values()))}
        if any(_known(record, leaf) is not None for leaf in models) or len(models) == 1:
            return Result(chosen(record, list(models), 0.0, at.seed), metrics=times)
        net = at.models[self.model]
        with torch.no_grad():
            losses = {k: float(row_losses(net(p, at.x), at.y).mean()) for k, p in models.items()}
        return Result(min(losses, key=lambda k: losses[k]), metrics=times)
