"""What a device knows of cohorts: its record, which it keeps itself, and what it does with it.

A record holds how well the device fitted each cohort (reward), on which side of each it was (side: one answer
for every number of parts that the cohort may split into) and how often it took part in each (times). The
device chooses its cohort from it and asks for that; the server forgets it as soon as the round is over. A
device that lost its record begins anew.
"""

import struct
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import ClassVar, Final, Literal, TypedDict

from potluck.algorithms.auxo.tree import count_parts, distance, find_descendants
from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.trees import Tree
from potluck.jobs.least_loss import LeastLoss

SLOT: Final = "affinity"  # the memory that holds the record
CLEARLY: Final = 0.1  # by so much of its loss must another cohort's model be better than the known best
Explore = Literal["adds", "sets", "told", "sums"]  # sums: no guesses, and rewards of a cohort add up


class AffinityRecord(TypedDict):
    """What a device keeps; of each cohort, by its name."""

    reward: dict[str, float]
    side: dict[str, dict[int, int]]  # by the number of sides
    times: dict[str, int]


class Request(TypedDict):
    """What a device says when it checks in."""

    cohort: str  # that it would train in
    affinity: float  # how well it fits there
    side: Mapping[int, int]  # its side there, by the number of sides
    times: int  # that it has trained, in any cohort
    rewards: Mapping[str, float]  # of all leaves that it knows, if it tells them


class Feedback(TypedDict):
    """What a round has told of a participant."""

    cohort: str
    side: dict[int, int]  # by the number of sides; empty: unknown
    leaves: list[str]
    gain: float | None  # how well it fits this cohort; None: nothing can be said
    others: dict[str, float]  # and each other one, if it can be told


def begin_record() -> AffinityRecord:
    """The record of a device that knows nothing."""
    return {"reward": {}, "side": {}, "times": {}}


def inherit_rewards(record: AffinityRecord, leaves: Sequence[str], bonus: float) -> AffinityRecord:
    """The record after splits that the device hadn't heard of: children begin with their parent's reward.

    The child on the device's own side begins above, so that it is what the device asks for.
    """
    if all(leaf in record["reward"] for leaf in leaves):
        return record
    reward = dict(record["reward"])
    for cohort in sorted(record["reward"], key=len):
        for leaf in find_descendants(cohort, leaves):
            path = cohort
            while path != leaf:  # step by step: a side is known of each level apart
                side = record["side"].get(path, {}).get(count_parts(path, leaves))
                old, path = reward[path], leaf[: len(path) + 1]
                reward.setdefault(path, old + (bonus if side == int(path[-1]) else 0.0))
    return {"reward": reward, "side": record["side"], "times": record["times"]}


def choose_leaf(record: AffinityRecord, leaves: Sequence[str], epsilon: float, key: int) -> str:
    """The leaf that a device asks for: mostly its best, any at random now and then or if it has no best."""
    known: dict[str, float] = {}
    if record["reward"]:
        known = {leaf: reward for leaf in leaves if (reward := _find_reward(record, leaf)) is not None}
    if not known or keys.chance(key, 0) < epsilon:
        return leaves[int(keys.chance(key, 1) * len(leaves))]
    top = max(known.values())
    best = [leaf for leaf, r in known.items() if r == top]
    return best[0] if len(best) == 1 else best[int(keys.chance(key, 2) * len(best))]


def _find_reward(record: AffinityRecord, leaf: str) -> float | None:
    """The reward of a leaf; of one that had split before its server forgot that, the best of its parts."""
    rewards = record["reward"]
    if leaf in rewards:
        return rewards[leaf]
    return max((r for name, r in rewards.items() if name.startswith(leaf)), default=None)


def blend_rewards(rewards: Mapping[str, float], fits: Mapping[str, float], gamma: float) -> dict[str, float]:
    """Rewards after a word about all of them; a first word counts whole."""
    after = dict(rewards)
    for name, fit in fits.items():
        after[name] = gamma * fit + (1 - gamma) * after[name] if name in after else fit
    return after


def update_record(
    record: AffinityRecord, feedback: Feedback, gamma: float, explore: Explore
) -> AffinityRecord:
    """The record after a round: the cohort's own reward, the side in it, and what it means for the others."""
    cohort, gain = feedback["cohort"], feedback["gain"]
    reward, times = dict(record["reward"]), dict(record["times"])
    times[cohort] = times.get(cohort, 0) + 1
    side = {**record["side"], cohort: feedback["side"]} if feedback["side"] else record["side"]
    if gain is None:
        if feedback["side"]:  # a member, with nothing said yet of how well it fits
            reward.setdefault(cohort, 0.0)
    elif explore == "told":  # the cohort could tell about all of them
        reward = blend_rewards(reward, {**feedback["others"], cohort: gain}, gamma)
    elif explore == "sums":
        reward[cohort] = reward.get(cohort, 0.0) + gain
    else:
        reward[cohort] = gamma * gain + (1 - gamma) * reward.get(cohort, 0.0)
        for other in feedback["leaves"]:
            if other != cohort and other not in times:  # never tried: a guess from how near it is
                guess = gain / (distance(cohort, other) + 1)
                reward[other] = guess + (reward.get(other, 0.0) if explore == "adds" else 0.0)
    return {"reward": reward, "side": dict(side), "times": times}


@value
class CheckIn:
    """The affinity request: which cohort the device would train in, how well it fits, and its side there."""

    bonus: float = 0.1
    every: bool = False  # tell how well it fits all other cohorts too

    at: ClassVar = "memory"

    def cost(self, at: Local) -> Cost:
        rewards = len(at.inbox["leaves"]) if self.every else 0
        return Cost(sends=bytes(_HEAD.size + 8 * rewards))

    def run(self, at: Local) -> Result:
        leaves: list[str] = at.inbox["leaves"]
        kept: AffinityRecord | None = at.keep
        record = begin_record() if kept is None else inherit_rewards(kept, leaves, self.bonus)
        cohort = choose_leaf(record, leaves, at.inbox["epsilon"], at.seed)
        request: Request = {
            "cohort": cohort,
            "affinity": record["reward"].get(cohort, 0.0),
            "side": record["side"].get(cohort, {}),
            "times": sum(record["times"].values()),
            "rewards": record["reward"],
        }
        body = pack_request(request, leaves, self.every)
        return Result(body, keep=None if kept is None or record is kept else record)

    def forge(self, body: bytes, sent: Mapping[str, Tree], gather: bool, claim: float, key: int) -> bytes:
        """The request of a liar (`fleet.attack.kind = "forge_affinity"`): that it fits a cohort so well.

        The first one, to gather with others there; or any, another each time.
        """
        leaves: list[str] = sent["leaves"]
        own = unpack_request(body, leaves)
        cohort = leaves[0 if gather else int(keys.chance(key, 0) * len(leaves))]
        request: Request = {
            "cohort": cohort,
            "affinity": claim,
            "side": own["side"] if own and own["cohort"] == cohort else {},
            "times": max(1, own["times"] if own else 0),  # newcomers aren't believed to know anything
            "rewards": {leaf: claim if leaf == cohort else -claim for leaf in leaves},
        }
        return pack_request(request, leaves, self.every)


# Place of the cohort among the leaves, affinity, one letter of side for two to ten sides, times.
_HEAD = struct.Struct("<Hd9sI")
_NOWHERE = b"." * 9
_NAN = float("nan")


def pack_request(request: Request, leaves: Sequence[str], every: bool = False) -> bytes:
    """A request as it travels; with `every`, rewards of all leaves too, NaN where nothing is known."""
    side = request["side"]
    letters = "".join(str(side.get(k, ".")) for k in range(2, 11)).encode() if side else _NOWHERE
    head = _HEAD.pack(leaves.index(request["cohort"]), request["affinity"], letters, request["times"])
    if not every:
        return head
    rewards = request["rewards"]
    return head + struct.pack(f"<{len(leaves)}d", *[rewards.get(leaf, _NAN) for leaf in leaves])


def unpack_request(body: bytes, leaves: Sequence[str]) -> Request | None:
    """A request as the server reads it; `leaves` are those that the device was told. None: no request."""
    place, affinity, letters, times = _HEAD.unpack_from(body)
    side = {k: c - 48 for k, c in enumerate(letters, 2) if c != 46}
    there = all(0 <= one < k for k, one in side.items())
    if place >= len(leaves) or not isfinite(affinity) or not there:
        return None
    rewards: dict[str, float] = {}
    if times and len(body) > _HEAD.size:
        found = zip(leaves, struct.unpack_from(f"<{len(leaves)}d", body, _HEAD.size), strict=True)
        rewards = {leaf: r for leaf, r in found if isfinite(r)}
    return {"cohort": leaves[place], "affinity": affinity, "side": side, "times": times, "rewards": rewards}


@value
class TakeFeedback:
    """The affinity feedback: the device takes into its record what a round has told of it."""

    gamma: float = 0.9
    explore: Explore = "adds"
    bonus: float = 0.1

    at: ClassVar = "memory"

    def cost(self, at: Local) -> Cost:
        return Cost()

    def run(self, at: Local) -> Result:
        feedback: Feedback = at.inbox["feedback"]
        # Sides are of the round that has ended, so they are noted before a split is taken in.
        record = update_record(at.keep or begin_record(), feedback, self.gamma, self.explore)
        return Result(None, keep=inherit_rewards(record, feedback["leaves"], self.bonus))


@value
class ChooseCohort:
    """Which cohort's model a device uses: its best; if seldom seen, one of clearly less loss on its rows."""

    model: ModelSpec
    bonus: float = 0.1
    sure: int = 0  # rounds of the cohorts, from which on it knows its best

    def cost(self, at: Local) -> Cost:
        return LeastLoss(self.model).cost(at)

    def run(self, at: Local) -> Result:
        leaves = list(at.inbox["models"])
        record = begin_record() if at.keep is None else inherit_rewards(at.keep, leaves, self.bonus)
        times = {"times": float(sum(record["times"].values()))}
        known = any(_find_reward(record, leaf) is not None for leaf in leaves)
        seldom = sum(record["times"].get(leaf, 0) for leaf in leaves) < self.sure
        own = choose_leaf(record, leaves, 0.0, at.seed) if known else None
        if len(leaves) == 1 or (known and not seldom):
            return Result(own or leaves[0], metrics=times)
        losses = LeastLoss(self.model).measure(at)
        best = min(losses, key=lambda name: losses[name])
        # Soon after a split all models are alike, and what it was told says more.
        clearly = own is None or losses[best] < (1 - CLEARLY) * losses[own]
        return Result(best if clearly else own, metrics=times)
