"""What Auxo's server remembers: cohorts, and who waits for one; nothing here grows with the population."""

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from potluck.algorithms.auxo.authors import AuthorsState
from potluck.algorithms.auxo.calibrated import CalibratedState
from potluck.algorithms.auxo.device import Request
from potluck.algorithms.auxo.faithful import FaithfulState
from potluck.algorithms.auxo.tree import count_parts, find_known_ancestor, name_children, replace_by_parts
from potluck.authoring import Node, RuleState, value

Learnt = FaithfulState | CalibratedState | AuthorsState  # of a criterion


@value(eq=False)
class CohortState:
    """A cohort: the inner rule's state and what was learnt of its members."""

    inner: RuleState  # of the inner rule
    learnt: Learnt
    round: int = 0  # of the crowd, when it last trained
    deserted: bool = False  # and it was said so


@value
class Told:
    """What a device that is watched said, and what it has been told since: how well it fits which cohort."""

    times: int  # rounds that it had heard of
    rewards: dict[str, float]
    since: tuple[dict[str, float], ...]
    sure: bool = False  # nothing else may be on its way, of what it was told before it was watched


@value(name="auxo.Crowd", eq=False)
class Crowd:
    """The tree of cohorts, by its leaves, and who waits."""

    cohorts: dict[str, CohortState]
    queue: dict[str, dict[Node, Request]]
    flags: dict[Node, int]  # false claims that count, of those who made any
    running: tuple[str, ...] = ()
    dry: bool = False  # nobody more could be invited
    round: int = 0
    messages: int = 0  # bytes of requests and feedback
    forced: int = 0  # splits at rounds that were given
    told: dict[Node, Told] = field(default_factory=dict)  # of who made false claims

    def update(self, name: str, cohort: CohortState) -> "Crowd":
        """The same with one cohort changed."""
        return replace(self, cohorts=self.cohorts | {name: cohort})

    def learnt(self) -> dict[str, Learnt]:
        """What every cohort has learnt so far."""
        return {name: cohort.learnt for name, cohort in self.cohorts.items()}

    def find_leaf(self, request: Request, bonus: float, rng: np.random.Generator) -> tuple[str, Request]:
        """The leaf that a request means by now, and the request as it would be made for that leaf."""
        if request["cohort"] in self.cohorts:
            return request["cohort"], request
        name, side = find_known_ancestor(request["cohort"], self.cohorts), request["side"]
        reward = request["affinity"]
        if name != request["cohort"]:
            side = {}  # of a cohort that the server has forgotten
        while name not in self.cohorts:
            count = count_parts(name, self.cohorts)
            own = side.get(count, int(rng.integers(count)))
            name, reward, side = f"{name}{own}", reward + bonus * (count in side), {}
        return name, {**request, "cohort": name, "affinity": reward, "side": {}}

    def split(
        self, cohort: str, into: int, learnt: Mapping[str, Learnt], bonus: float, rng: np.random.Generator
    ) -> "Crowd":
        """Parts in a cohort's place, which go on with its model; who waited for it waits for them."""
        names, inner = name_children(cohort, into), self.cohorts[cohort].inner
        young = [CohortState(inner, learnt[name], self.round) for name in names]
        cohorts = replace_by_parts(self.cohorts, cohort, young)
        cohorts = {name: replace(one, learnt=learnt[name]) for name, one in cohorts.items()}
        empty: list[dict[Node, Request]] = [{} for _ in names]
        queue = replace_by_parts(self.queue, cohort, empty)
        crowd = replace(self, cohorts=cohorts, queue=queue, told={})  # what they know is of other cohorts now
        for node, request in self.queue[cohort].items():
            leaf, request = crowd.find_leaf(request, bonus, rng)
            queue[leaf][node] = request
        return crowd
