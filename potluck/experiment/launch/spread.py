"""How runs are spread: how many at a time, and over which machines. No run's bytes depend on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from potluck.core.errors import require
from potluck.data import Pool
from potluck.experiment.launch import hardware
from potluck.experiment.launch.follower import Follower, Missing
from potluck.experiment.launch.part import Part, read_part
from potluck.experiment.launch.ray import read_cluster


class Where(Protocol):
    """Machines that compute runs in place of this one."""

    def compute(
        self, missing: Sequence[Missing], jobs: int, pool: Pool | None, follower: Follower
    ) -> None: ...  # all of them, into their places, `jobs` at a time (0: as many as fit); tells the follower
    def for_study(self, file: Path) -> "Where": ...  # the same, of runs that this file defines


@dataclass(frozen=True)
class Spread:
    """How a command's runs are spread."""

    jobs: int = 1  # runs at a time; 0: one a core or a GPU, where that helps
    where: Where | None = None  # other machines, which then compute all runs, a single one too
    part: Part | None = None  # of the runs; others are computed by other processes, into the same folder

    @property
    def one_by_one(self) -> bool:
        """Whether runs are computed in this process, each when it is asked for."""
        return self.jobs == 1 and self.where is None

    def for_study(self, file: Path) -> "Spread":
        """The same for runs that this file defines, which other machines have to know."""
        return self if self.where is None else replace(self, where=self.where.for_study(file))


def read_spread(
    jobs: int | None, out: Path | None, on: str | None = None, *, part: str | None = None
) -> Spread:
    """Refuse what can't be had: results travel through folders, so there must be one.

    `jobs`: None: one at a time here, on other machines as many as there is room for.
    """
    where = None if on is None else read_cluster(on)
    jobs = jobs if jobs is not None else 1 if where is None else 0
    require(
        isinstance(jobs, int) and jobs >= 0,
        "jobs",
        jobs,
        "write how many runs are computed at a time, or 0 for one a core",
    )
    if where is not None:
        require(out is not None, "on", on, "runs elsewhere need a folder here; name one with out")
    alone = (jobs or hardware.count_cores()) == 1
    require(alone or out is not None, "jobs", jobs, "runs side by side need a folder; name one with out")
    if part is None:
        return Spread(jobs, where)
    spread = Spread(jobs, where, read_part(part))
    require(out is not None, "part", part, "all parts write into one folder; name it with out")
    require(where is None, "part", part, "is for machines that nobody else gives runs; leave it or `on` out")
    return spread
