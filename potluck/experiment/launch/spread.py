"""How runs are spread: how many at a time, and over which machines. No run's bytes depend on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from potluck.core.errors import require
from potluck.data import Pool
from potluck.experiment.launch import hardware
from potluck.experiment.launch.follower import Follower, Missing
from potluck.experiment.launch.part import Part, read_part


class Where(Protocol):
    """Machines that compute runs in place of this one."""

    def compute(
        self, missing: Sequence[Missing], jobs: int, pool: Pool | None, follower: Follower
    ) -> None: ...  # all of them, into their places, `jobs` at a time (0: as many as fit); tells the follower


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


def read_spread(
    jobs: int, out: Path | None, *, where: Where | None = None, part: str | None = None
) -> Spread:
    """Refuse what can't be had: results travel through folders, so there must be one."""
    require(jobs >= 0, "jobs", jobs, "write how many runs are computed at a time, or 0 for one a core")
    alone = (jobs or hardware.count_cores()) == 1
    require(alone or out is not None, "jobs", jobs, "runs side by side need a folder; name one with out")
    if part is None:
        return Spread(jobs, where)
    spread = Spread(jobs, where, read_part(part))
    require(out is not None, "part", part, "all parts write into one folder; name it with out")
    require(where is None, "part", part, "is for machines that nobody else gives runs; leave it or `on` out")
    return spread
