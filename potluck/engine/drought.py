"""How long nothing has come back: a run in which every task is lost ends, whatever its algorithm counts.

A wave is all that is under way when the first task of it is lost, whoever sent it: of one aggregator in
rounds, a round. A wave is barren if no device has answered until all of it was lost.
"""

from potluck.core.codec import value
from potluck.core.errors import StalledError
from potluck.core.messages import Why
from potluck.engine.queues import QueueState

MOST = 1_000  # barren waves in a row
_ASK: dict[Why, str] = {
    "gone": "is anyone online for as long as a task takes?",
    "late": "is the deadline longer than a task takes?",
    "bad": "no update was made of finite numbers; is train.lr low enough?",
    "refused": "does anyone have the rows that are to move?",
}


@value(frozen=False, eq=False)
class Drought:
    """Barren waves since a device last answered."""

    waves: int = 0
    last: int = 0  # flight of the wave that is being lost; 0: none is

    def lose(self, why: Why, queues: QueueState, now: float) -> None:
        """A task was lost; too many barren waves in a row end the run."""
        self.last = self.last or queues.serial
        oldest = queues.find_oldest()
        if oldest is not None and oldest <= self.last:
            return  # some of it may still be answered
        self.waves, self.last = self.waves + 1, 0
        if self.waves >= MOST:
            raise StalledError(
                f"at {now:.0f} virtual seconds nobody has answered for {MOST:,} rounds, and every task is "
                f"lost (the last one: {why}): {_ASK[why]}"
            )
