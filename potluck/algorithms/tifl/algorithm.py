"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, Generic, Literal

from potluck.algorithms.tifl.device import Examine
from potluck.algorithms.tifl.tiers import find_chances, share_credits, sort_by_speed
from potluck.authoring import (
    Average,
    Command,
    Context,
    Factor,
    Few,
    Got,
    Node,
    Note,
    Params,
    RunRounds,
    Seconds,
    ServerOptim,
    Task,
    Train,
    Until,
    require,
    use_model,
    value,
)
from potluck.rules.server_optim import Opt

TIME, EXAMINE, TRAIN = "time", "examine", "train"


@value(eq=False)
class TiFLState(Generic[Opt]):
    """The model, and all that is known of devices and tiers."""

    params: Params
    opt: Opt  # of the server optimiser
    seconds: dict[Node, tuple[float, ...]] = field(default_factory=dict)  # of profiling, once each
    unable: frozenset[Node] = frozenset()  # those that refused
    tiers: tuple[tuple[Node, ...], ...] = ()  # the fastest first
    accuracy: tuple[float, ...] = ()  # of each tier when it was last examined; 0 before
    chance: tuple[float, ...] = ()
    credits: tuple[int, ...] | None = None  # that are left; None: no limit
    doing: str = TRAIN  # what was asked for last
    timings: int = 0  # in a row
    tier: int = 0  # drawn last
    looked: int = 0  # the round of the last look at accuracy
    round: int = 0

    def has_credit(self) -> list[bool]:
        return [self.credits is None or self.credits[t] > 0 for t in range(len(self.tiers))]

    def open_chances(self) -> list[float]:
        """Chances of the tiers that have credit."""
        return [c if has else 0.0 for c, has in zip(self.chance, self.has_credit(), strict=True)]


@value
class TiFL:
    """FedAvg with devices of one speed a round."""

    clients: Annotated[int, "devices a round"] = 10
    local: Train = Train()
    tier_count: Annotated[Few, "tiers"] = 5
    interval: Annotated[int, "rounds between two looks at accuracy"] = 10
    rounds: Annotated[RunRounds, "that credits are shares of; unlimited if the run ends by seconds alone"] = (
        None
    )
    credits: Annotated[
        Literal["equal", "unlimited"] | tuple[int, ...],
        "rounds that each tier may have: equal shares, no limit, or a list, the fastest first",
    ] = "equal"
    examined: Annotated[int, "devices of each tier that are asked for accuracy"] = 10
    profile_rounds: Annotated[Few, "trainings by which a device is timed"] = 1
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average()
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0
    deadline: Annotated[Seconds | None, "seconds"] = None

    def __post_init__(self) -> None:
        for name in ("clients", "tier_count", "interval", "examined", "profile_rounds", "overcommit"):
            number = getattr(self, name)
            require(number >= 1, name, number, "must be at least 1")
        if self.credits not in ("equal", "unlimited"):
            listed = list(self.credits) if isinstance(self.credits, tuple | list) else []
            good = len(listed) == self.tier_count and min(listed) >= 1
            fix = f"must be 'equal', 'unlimited' or {self.tier_count} numbers from 1, one a tier"
            require(good, "credits", listed or self.credits, fix)
        fix = "covers updates alone, but devices also tell how accurate the model is; leave it out"
        require(self.local.privacy is None, "train.privacy", self.local.privacy, fix)

    def start(self, ctx: Context) -> TiFLState:
        params = ctx.models[self.local.model].init(ctx.key)
        return TiFLState(params, self.server.start(params))

    def lanes(self, m: TiFLState, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: TiFLState, lane: None, ctx: Context) -> tuple[TiFLState, list[Command]]:
        due = m.round - m.looked >= self.interval
        there = [ctx.ready(tier) for tier in m.tiers]
        late = due and m.timings < self.profile_rounds
        strangers = self._find_strangers(m, ctx) if late or not any(there) else []
        send = {"params": m.params}
        if strangers:
            asked = ctx.only(strangers).sample(len(strangers))
            timing = [Task(n, self.local, send) for n in asked]
            return replace(m, doing=TIME, timings=m.timings + 1), [Until(self.deadline), *timing]
        if not any(there):
            return m, []
        if due:
            asked = [n for nodes in there for n in ctx.only(nodes).sample(self.examined)]
            questions = [Task(n, Examine(self.local.model), send) for n in asked]
            return replace(m, doing=EXAMINE), [Until(self.deadline), *questions]
        if not any(c > 0 and nodes for c, nodes in zip(m.open_chances(), there, strict=True)):
            m = self._renew_credits(m)  # those who are there have no credit: rather than wait for the others
        weights = [c if nodes else 0.0 for c, nodes in zip(m.open_chances(), there, strict=True)]
        tier = int(ctx.rng.choice(len(weights), p=[c / sum(weights) for c in weights]))
        nodes = ctx.only(there[tier]).sample(round(self.clients * self.overcommit))
        tasks = [Task(n, self.local, send) for n in nodes]
        return replace(m, doing=TRAIN, tier=tier), [Until(self.deadline, self.clients), *tasks]

    def merge(self, m: TiFLState, lane: None, got: Got, ctx: Context) -> tuple[TiFLState, list[Command]]:
        refused = {task.to for task in got.find_lost("refused")}
        if refused:
            m = self._sort_tiers(replace(m, unable=m.unable | refused))
        if m.doing == TIME:
            return self._take_times(m, got)
        if m.doing == EXAMINE:
            return self._take_accuracy(m, got)
        params, opt = self.server.step(m.params, m.opt, got.replies)
        m = replace(m, params=params, opt=opt, timings=0, round=m.round + 1)
        return self._charge(m), [Note("tier", m.tier)]

    def serve(self, m: TiFLState, node: Node, ctx: Context) -> dict[str, Task]:
        return {"global": Task(node, use_model(self.local.model), {"params": m.params})}

    # ------------------------------------------------------------------------------------------------- parts

    def _find_strangers(self, m: TiFLState, ctx: Context) -> list[Node]:
        """Devices that are there and not timed to the end."""
        known = {n for n, times in m.seconds.items() if len(times) >= self.profile_rounds} | m.unable
        return ctx.ready([int(n) for n in ctx.children if n not in known])

    def _take_times(self, m: TiFLState, got: Got) -> tuple[TiFLState, list[Command]]:
        took = {r.task.to: r.spent.total for r in got.replies}
        late = [task.to for task in got.find_lost("late")]
        took |= dict.fromkeys(late, self.deadline or 0.0)
        seconds = m.seconds | {n: (*m.seconds.get(n, ()), t) for n, t in took.items()}
        m = self._sort_tiers(replace(m, seconds=seconds))
        means = [sum(_mean(seconds[n]) for n in tier) / len(tier) for tier in m.tiers]
        facts = {"sizes": [len(tier) for tier in m.tiers], "seconds": means}
        return m, [Note("tiers", facts)] if m.tiers else []

    def _sort_tiers(self, m: TiFLState) -> TiFLState:
        """With tiers made of all devices whose timing is done."""
        done = {
            n: _mean(times)
            for n, times in m.seconds.items()
            if len(times) >= self.profile_rounds and n not in m.unable
        }
        tiers = sort_by_speed(done, self.tier_count)
        if len(tiers) == len(m.tiers):
            return replace(m, tiers=tiers)
        # More devices, more tiers: all begin again as equals.
        chance = (1 / len(tiers),) * len(tiers) if tiers else ()
        credits = self._give_credits(len(tiers))
        return replace(m, tiers=tiers, chance=chance, credits=credits, accuracy=(0.0,) * len(tiers))

    def _give_credits(self, tiers: int) -> tuple[int, ...] | None:
        if not isinstance(self.credits, str):
            return self.credits[:tiers]
        if self.credits == "unlimited" or self.rounds is None or tiers == 0:
            return None
        return share_credits(self.rounds, tiers)

    def _take_accuracy(self, m: TiFLState, got: Got) -> tuple[TiFLState, list[Command]]:
        of = {node: t for t, tier in enumerate(m.tiers) for node in tier}
        right, rows = [0.0] * len(m.tiers), [0.0] * len(m.tiers)
        for r in got.replies:
            if r.task.to in of:
                right[of[r.task.to]] += r.body["right"]
                rows[of[r.task.to]] += r.weight
        scores = zip(right, rows, m.accuracy, strict=True)
        accuracy = tuple(hits / all_ if all_ > 0 else before for hits, all_, before in scores)
        chance = find_chances(accuracy, m.has_credit())
        m = replace(m, accuracy=accuracy, chance=chance, looked=m.round)
        return m, [Note("tier_accuracy", list(accuracy)), Note("tier_chance", list(chance))]

    def _charge(self, m: TiFLState) -> TiFLState:
        """One credit less for the tier that was drawn; all anew when none is left."""
        if m.credits is None:
            return m
        left = tuple(c - (t == m.tier) for t, c in enumerate(m.credits))
        return replace(m, credits=left) if any(left) else self._renew_credits(m)

    def _renew_credits(self, m: TiFLState) -> TiFLState:
        m = replace(m, credits=self._give_credits(len(m.tiers)))
        # Before the first look at accuracy all tiers are equals, and none was ranked without its credit.
        return replace(m, chance=find_chances(m.accuracy, m.has_credit())) if m.looked else m


def _mean(times: tuple[float, ...]) -> float:
    return sum(times) / len(times)
