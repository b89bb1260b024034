"""The start of a run, for who measures how it is best computed."""

from potluck.rules.rounds import LoopState
from potluck.simulate.simulation import Simulation


class Trial:
    """A simulation that hasn't begun; models aren't evaluated before it trains."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim

    @property
    def tasks(self) -> int:
        return self.sim.accounts.tasks

    @property
    def lanes(self) -> int:
        state = self.sim.cloud.own.state
        return len(state.open) if isinstance(state, LoopState) else 0

    def start(self) -> None:
        self.sim.start(evaluate=False)

    def step(self) -> bool:
        return self.sim.step()

    def settle(self) -> None:
        self.sim.devices.training.settle()

    def close(self) -> None:
        self.sim.close()
