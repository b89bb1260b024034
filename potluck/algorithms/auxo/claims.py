"""Whether a device says what it was told: a check of claims that no noise makes an honest device fail.

That a device claims to fit and doesn't says little of it. Other rounds told it what it claims, and these err,
as does the round that finds it wrong; and who has gone when a round ends never hears of it, and claims the
same again. But its rewards are made of nothing else than what it was told, and its requests say how many
rounds it has heard of. So what a device said is remembered once its claim was wrong, with what it has been
told since. What it says later must follow from as many of these as it says it has heard, whichever those are;
a claim above them all is made up. Where this can't be checked, the device is believed.

So an honest device never fails, however long a run and however noisy its fits: what it says follows from
what it heard. A word from before it was watched may be on its way still; as words come in order, nothing of
that is left once it has heard one, and only then is it checked. (If two were on their way at once, the second
may be taken for a later one: a strike, at the beginning of watching.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from potluck.algorithms.auxo.criterion import Findings
from potluck.algorithms.auxo.device import Request, blend_rewards
from potluck.algorithms.auxo.state import Crowd, Told
from potluck.authoring import Node

WATCHED: Final = 10_000  # at most so many devices
UNHEARD: Final = 4  # rounds that a device may have missed and still be watched
ROUNDING: Final = 1e-9


def contradicts(told: Told, request: Request, gamma: float) -> bool:
    """Whether a device claims more than whatever it may have heard can have made it believe."""
    heard, cohort = request["times"] - told.times, request["cohort"]
    if not told.sure or not 0 <= heard <= len(told.since) or cohort not in told.rewards:
        return False
    return all(
        request["affinity"] > _take_in(told.rewards, fits, gamma)[cohort] + ROUNDING
        for fits in combinations(told.since, heard)
    )


def watch(
    m: Crowd,
    nodes: Sequence[Node],
    requests: Sequence[Request],
    findings: Findings[object],
    lies: Sequence[bool],
    gamma: float,
) -> tuple[Crowd, list[bool]]:
    """Which false claims contradict what their devices were told; what there is to check the next ones by."""
    watched, made_up = dict(m.told), [False] * len(nodes)
    for i, (node, request, lie) in enumerate(zip(nodes, requests, lies, strict=True)):
        told = watched.pop(node, None)
        if told is None and not lie:
            continue
        word, sure = _find_told(request["cohort"], findings, i), False
        since: tuple[dict[str, float], ...] = (word,)
        if told is not None:
            made_up[i] = lie and contradicts(told, request, gamma)
            heard = max(0, request["times"] - told.times)
            sure = told.sure or heard > 0
            # Of words in order the last ones may yet come; the first that was heard may be of before.
            since = (*told.since[heard if told.sure else max(0, heard - 1) :], word)
        if request["rewards"].keys() == m.cohorts.keys() and len(since) <= UNHEARD:
            watched[node] = Told(request["times"], dict(request["rewards"]), since, sure)
    while len(watched) > WATCHED:
        del watched[next(iter(watched))]
    return replace(m, told=watched), made_up


def _take_in(
    rewards: Mapping[str, float], since: Sequence[Mapping[str, float]], gamma: float
) -> Mapping[str, float]:
    """Rewards once a device has heard these, one after another."""
    for fits in since:
        rewards = blend_rewards(rewards, fits, gamma)
    return rewards


def _find_told(cohort: str, findings: Findings[object], place: int) -> dict[str, float]:
    """What this round tells a participant of its fits: nothing, if it couldn't be heard."""
    gain = None if findings.gain is None else findings.gain[place]
    if gain is None:
        return {}
    return {**({} if findings.others is None else findings.others[place]), cohort: gain}
