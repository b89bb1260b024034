"""Runs side by side: each in a process of its own, as many at a time as are asked for.

What comes out is what one after another gives. How runs are computed decides on their last digits, so that is
settled before the first one starts, by one process at a time: measured beside others, it might come out
otherwise. Runs that would start workers of their own train in a loop instead, which gives the same bytes.

Processes are forked: data are built once and shared, and models of the user's own are simply there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import connection

import torch

from potluck.core.errors import ConfigError
from potluck.engine.schedule import Progress
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment.launch import execution_plan, hardware
from potluck.experiment.launch.cards import USED, pick_card, take_card, uses_card
from potluck.experiment.launch.child import NEWS, Child, Tell, stop_on_exit
from potluck.experiment.launch.follower import Done, Follower, Missing
from potluck.experiment.launch.one_run import Relay, compute_run
from potluck.experiment.prepare import prepare
from potluck.experiment.schema.experiment import Experiment
from potluck.federation import Federation

MANY = 4  # times as many workers as there are runs: then workers do more than runs side by side

BuildFederation = Callable[[Experiment], Federation]
Choices = Mapping[str, PlanChoice]  # by the name of the card, "" being none; empty: settled already


def limit_jobs(jobs: int, missing: Sequence[Missing], cards: int = 0) -> tuple[int, str]:
    """How many of these runs at a time, and why not more; 0: one a core or a card, where that helps."""
    if jobs:
        return jobs, ""
    if any(map(uses_card, missing)):
        return max(1, cards), "they share the GPU"
    if hardware.count_cores() > 1 and any(run.experiment.run.executor == "workers" for run in missing):
        return 1, "each has workers of its own"
    return hardware.count_cores(), ""


def limit_jobs_beside_workers(choices: Sequence[Choices]) -> tuple[int, str]:
    """The same where that was left open, once it is known which runs have workers of their own."""
    plans = [choice.plan for by_card in choices for choice in by_card.values()]
    shared = [plan for plan in plans if plan.workers > 1]
    most, why = max((plan.workers for plan in shared), default=1), "each is fastest with workers of its own"
    if any(plan.executor == "stacked" for plan in shared):  # another way wouldn't give the same
        return max(1, hardware.count_cores() // most), why
    return (1, why) if MANY * len(choices) <= most else (hardware.count_cores(), "")


def compute(
    missing: Sequence[Missing],
    choices: Sequence[Choices],
    jobs: int,
    build_federation: BuildFederation,
    follower: Follower,
    cards: Sequence[str] = (),
) -> None:
    """Compute runs, `jobs` at a time, in their order; what is wrong with one stops the rest.

    Those that use a card get the one with the fewest runs.
    """
    jobs, under_way = min(jobs, len(missing)), dict[Child[Done], tuple[Missing, int | None]]()
    children: list[Child[Done]] = []
    with follower.showing(), stop_on_exit(children):
        waiting = list(zip(missing, choices, strict=True))[::-1]
        while waiting or children:
            while waiting and len(children) < jobs:
                run, by_card = waiting.pop()
                taken = [card for _, card in under_way.values()]
                card = pick_card(cards, taken) if uses_card(run) else None
                choice = by_card.get("" if card is None else cards[card])
                federation = run.federation or build_federation(run.experiment)
                made = partial(_compute, run, choice, card, federation, jobs > 1, follower.wants_events)
                children.append(child := Child(run.name, made, children))
                under_way[child] = run, card
                follower.start(run, "" if card is None else f"GPU {card}")
            ready = connection.wait([child.pipe for child in children])
            for child in [child for child in children if child.pipe in ready]:
                heard = child.next()
                if isinstance(heard, Progress):
                    follower.progress(under_way[child][0], heard)
                    continue
                if isinstance(heard, NEWS):
                    follower.event(heard)
                    continue
                children.remove(child)
                follower.end(under_way.pop(child)[0], heard)


def choose_plans(
    missing: Sequence[Missing], build_federation: BuildFederation, cards: Sequence[str] = (), sharing: int = 1
) -> list[Choices]:
    """How runs are to be computed, where that is measured: on one card of each name, which so many share.

    In a child: who has used a GPU can't fork.
    """
    if any(map(uses_card, missing)) and torch.cuda.is_initialized():
        raise ConfigError(USED)
    firsts: dict[str, int | None] = {name: cards.index(name) for name in cards}
    choices: list[Choices] = []
    children: list[Child[PlanChoice]] = []
    with stop_on_exit(children):
        for run in missing:
            found: dict[str, PlanChoice] = {}
            if run.state != "begun" and run.experiment.run.executor in ("auto", "stacked"):
                federation = run.federation or build_federation(run.experiment)
                for name, card in (firsts if uses_card(run) and firsts else {"": None}).items():
                    made = partial(_choose_plan, run, card, sharing, federation)
                    children.append(child := Child(run.name, made, children))
                    found[name] = child.wait()
                    children.remove(child)
            choices.append(found)
    return choices


# ----------------------------------------------------------------------------------------- what children do


def _choose_plan(
    run: Missing, card: int | None, sharing: int, federation: Federation, tell: Tell
) -> PlanChoice:
    take_card(card)
    return execution_plan.choose_plan(prepare(run.experiment, federation=federation), sharing)


def _compute(
    run: Missing,
    choice: PlanChoice | None,
    card: int | None,
    federation: Federation,
    beside: bool,
    relayed: bool,
    tell: Tell,
) -> Done:
    take_card(card)
    try:
        torch.zeros(1, requires_grad=True).sum().backward()
    except RuntimeError:  # better here than from within somebody's job
        raise ConfigError(USED) from None
    return compute_run(run, choice, federation, beside, [Relay(tell)] if relayed else [], tell)
