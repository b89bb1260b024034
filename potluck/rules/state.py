"""What a rule with one global model remembers from round to round."""

from dataclasses import replace
from typing import Generic

from potluck.core.codec import value
from potluck.core.messages import Task
from potluck.core.replies import list_weights
from potluck.core.rule import Got
from potluck.core.trees import Params, Tree, sub
from potluck.rules.select import Picks
from potluck.rules.server_optim import Opt, ServerOptim


@value(eq=False)
class GlobalState(Generic[Picks, Opt]):
    """The model and the states of its parts; nothing that lasts may live elsewhere."""

    params: Params
    opt: Opt  # of the server optimiser
    picks: Picks  # of the selector
    round: int = 0
    since: int = 0  # rounds since a parent's model was adopted
    weight: float = 0.0  # samples behind the last merge

    def advance(self, got: Got, server: ServerOptim[Opt], picks: Picks) -> "GlobalState[Picks, Opt]":
        """One round later: the server optimiser has taken its step."""
        params, opt = server.step(self.params, self.opt, got.replies)
        weight = sum(list_weights(got.replies))
        return GlobalState(params, opt, picks, self.round + 1, self.since + 1, weight)

    def adopt(self, task: Task) -> "GlobalState[Picks, Opt]":
        """With a parent's model."""
        return replace(self, params=task.send["params"], since=0)

    def report(self, task: Task) -> tuple[Tree, float]:
        """What a parent is told: the change of its model, and the samples behind it."""
        return {"delta": sub(self.params, task.send["params"])}, self.weight
