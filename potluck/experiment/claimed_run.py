"""A run whose folder other machines may take over: it looks whether they have, before it writes."""

from collections.abc import Callable
from typing import Self

from potluck.experiment.claim import PATIENCE, Claim
from potluck.experiment.schema.experiment import Experiment
from potluck.simulate import Simulation
from potluck.simulate.run_state import RunState

MISSED = 4  # snapshots, until a run is thought to have died


def find_patience(experiment: Experiment) -> float:
    """How long a run may give no sign of life until other machines may take it over, in seconds."""
    return max(PATIENCE, MISSED * experiment.run.snapshot_every)


class ClaimedRun(Simulation):
    """A simulation that gives a sign of life with every snapshot, and ends if its claim is gone."""

    claim: Claim | None = None  # of a run without a folder: none

    def keep_to(self, claim: Claim | None) -> Self:
        """From now on, as long as this claim holds."""
        self.claim = claim
        if claim is not None and claim.former:
            self.notices.append(f"taken over from {claim.former}")
        return self

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """As ever; who follows the run writes, too, so the claim is looked at first."""

        def look_first() -> None:
            if self.claim is not None:
                self.claim.look()
            look()

        super().run(look_first)

    def save(self) -> None:
        if self.claim is not None:
            self.claim.renew()
        super().save()

    def make_state(self) -> RunState:
        if self.claim is not None:
            self.devices.training.settle()  # it may take long, and what follows writes
            self.claim.renew()
        return super().make_state()
