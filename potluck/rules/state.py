"""What a rule with one global model remembers from round to round."""

from typing import Any

from potluck.core.codec import value
from potluck.core.rule import Got
from potluck.core.trees import Params


@value(eq=False)
class GlobalState:
    """The model and the states of its parts; nothing that lasts may live elsewhere."""

    params: Params
    opt: Any  # of the server optimiser
    picks: Any  # of the selector
    round: int = 0
    since: int = 0  # rounds since a parent's model was adopted
    weight: float = 0.0  # samples behind the last merge

    def after(self, got: Got, params: Params, opt: Any, picks: Any) -> "GlobalState":
        """The state one round later."""
        return GlobalState(
            params, opt, picks, self.round + 1, self.since + 1, sum(r.weight for r in got.replies)
        )
