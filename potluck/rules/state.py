"""What a rule with one global model remembers from round to round."""

from typing import Generic

from potluck.core.codec import value
from potluck.core.rule import Got
from potluck.core.trees import Params
from potluck.rules.select import Picks
from potluck.rules.server_optim import Opt


@value(eq=False)
class GlobalState(Generic[Picks, Opt]):
    """The model and the states of its parts; nothing that lasts may live elsewhere."""

    params: Params
    opt: Opt  # of the server optimiser
    picks: Picks  # of the selector
    round: int = 0
    since: int = 0  # rounds since a parent's model was adopted
    weight: float = 0.0  # samples behind the last merge

    def after(self, got: Got, params: Params, opt: Opt, picks: Picks) -> "GlobalState[Picks, Opt]":
        """The state one round later."""
        return GlobalState(
            params, opt, picks, self.round + 1, self.since + 1, sum(r.weight for r in got.replies)
        )
