"""A run that others compute, as who asked for it knows it: its folder here, and its attempts there."""

import contextlib
import shutil

from potluck.engine import snapshot
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import code, folder, packages
from potluck.experiment.claim import Claim
from potluck.experiment.claimed_run import find_patience
from potluck.experiment.launch.folder_changes import Changes, write_changes
from potluck.experiment.launch.follower import Missing
from potluck.experiment.run_lock import lock_run

_FIRST = (folder.EXPERIMENT, folder.PLAN, code.RECORD, packages.RECORD)


class AskedRun:
    """A run that is asked for, as often as it takes."""

    def __init__(self, run: Missing) -> None:
        self.run, self.place = run, run.place
        self.choice: PlanChoice | None = None  # how it is computed, where that was measured
        self.made = run.state == "begun"  # whether the folder is this run's
        self.held = contextlib.ExitStack()  # the folder: nobody else computes it
        self.claim: Claim | None = None
        self.attempt = self.vain = 0  # vain: in a row, without a newer snapshot
        self.started = False  # whether a machine has taken it, and that was told
        self.gained = False  # a newer snapshot by this attempt
        self.round = 0  # from which it went on last
        self.host = self.kind = self.why = ""  # of the machine; how the last attempt ended

    def hold(self) -> None:
        """Refuse what can't be computed into this folder, and keep others from it."""
        if self.made:
            self._lock()
        else:
            folder.claim(self.place, self.run.state == "other")

    def write(self, changes: Changes) -> None:
        if not self.made:  # with what makes it a run, whole or not at all
            first = {name: changes.files[name][1].decode() for name in _FIRST if name in changes.files}
            folder.create(self.place, first, self.run.state == "other")
            self._lock()
            self.made = True
        if self.claim is not None:
            self.claim.renew()
        write_changes(self.place, changes)
        self.gained = self.gained or changes.has_snapshot

    def look(self) -> None:
        """Give a sign of life now and then, also while it waits for a machine."""
        if self.claim is not None:
            self.claim.look()

    def let_go(self) -> None:
        self.claim = None
        self.held.close()

    def _lock(self) -> None:
        self.claim = self.held.enter_context(lock_run(self.place, find_patience(self.run.experiment)))

    def remove_if_vain(self) -> None:
        """A run that failed before it got anywhere leaves nothing, here as anywhere."""
        self.let_go()
        if self.made and self.run.state != "begun" and not snapshot.list_all(self.place):
            shutil.rmtree(self.place)
