"""What every machine can do, and what it says it can do: arrays with one entry a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.fleet.attackers import Attack
from potluck.fleet.availability import Availability
from potluck.fleet.jitter import Jitter
from potluck.fleet.topology import CLOUD
from potluck.fleet.validation import check, read_ends, read_number

Column = NDArray[np.float64]
Ranges = Mapping[str, tuple[float, float]]  # columns, each between two ends
Nodes = range | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Profiles:
    """Speeds, links and memory of many nodes."""

    compute: Column  # ms per sample: one forward pass of the reference model (cost.REFERENCE_OPS)
    up: Column  # bits per second
    down: Column  # bits per second
    latency: Column  # seconds, one way
    memory: Column  # bytes for training

    def __len__(self) -> int:
        return len(self.compute)

    def take(self, nodes: Nodes) -> "Profiles":
        """The profiles of these nodes, in their order; of a range, views."""
        at: slice | NDArray[np.intp]
        if isinstance(nodes, range) and nodes.step > 0:  # a slice would misread a descending one's -1
            at = slice(nodes.start, nodes.stop, nodes.step)
        else:
            at = np.asarray(nodes, dtype=np.intp)
        return Profiles(*(getattr(self, name)[at] for name in COLUMNS))

    def check(self) -> "Profiles":
        """Itself, or an error that names the first entry with which no duration can be computed."""
        for name in COLUMNS:
            column: Column = getattr(self, name)
            if column.shape != (len(self),):
                raise ConfigError(
                    f"fleet.{name} has shape {column.shape}: give one number for each of {len(self)} nodes"
                )
            least, most = ENDS[name]
            good = (column >= least) & (column <= most)  # NaN fails both
            if not good.all():
                node = int(np.argmin(good))
                raise ConfigError(
                    f"fleet.{name} of node {node} = {column[node]}: give a number from {least:g} to {most:g}"
                )
        return self


COLUMNS: tuple[str, ...] = tuple(column.name for column in fields(Profiles))
# Within these, no time of any task is 0 by rounding, or infinite.
ENDS = {"compute": (1e-12, 1e12), "up": (1e-6, 1e15), "down": (1e-6, 1e15), "latency": (0.0, 1e6)}
ENDS |= {"memory": (1e-3, 1e18)}
LINK_COLUMNS = ("up", "down", "latency")


def check_column(name: str) -> str:
    """The name of a column of `Profiles`, or an error that names the closest one."""
    if name not in COLUMNS:
        raise ConfigError(f"fleet: no column {name!r}; {nearest(name, COLUMNS)}")
    return name


@dataclass(frozen=True, eq=False)
class Fleet:
    """The devices of a federation: what they can do, when they are there, and whom they belong to."""

    true: Profiles  # what the runtime uses
    claimed: Profiles  # what aggregators are told; the same object unless somebody lies
    availability: Availability
    user: NDArray[np.int32]  # of each device; -1: none
    edge: NDArray[np.int32]
    group: NDArray[np.int32]
    # By tier. A topology need not use all of them: one federation serves algorithms of several shapes.
    tiers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what aggregators have instead
    links: Mapping[str, Ranges] = field(default_factory=dict)  # what devices below it have instead
    jitter: Jitter | None = None
    key: int = 0  # of where devices lie within `links`
    forget: float = 0.0  # chance that a device has lost all that it kept when it begins a task
    attack: Attack | None = None  # how attackers lie
    attackers: NDArray[np.bool_] | None = None  # who does, if somebody does

    def __post_init__(self) -> None:
        self._check_tiers()
        fix = "give a chance between 0 (never) and 1 (always)"
        check("forget", self.forget, 0 <= read_number(self.forget) <= 1, fix)
        assert (self.attack is None) == (self.attackers is None), "who attacks and how belong together"
        liars = {} if self.attackers is None else {"attackers": self.attackers}
        sizes = {k: len(v) for k, v in {**self.groups, **liars}.items()}
        for name, size in {"claimed": len(self.claimed), **sizes}.items():
            if size != len(self):
                raise ConfigError(
                    f"fleet.{name} has {size} entries: give one for each of {len(self)} devices"
                )

    def __len__(self) -> int:
        return len(self.true)

    @property
    def groups(self) -> Mapping[str, NDArray[np.int32]]:
        """The tiers that a topology can be built from, by name."""
        return {"user": self.user, "edge": self.edge, "group": self.group}

    def _check_tiers(self) -> None:
        for table, entries, columns in (("tiers", self.tiers, COLUMNS), ("links", self.links, LINK_COLUMNS)):
            for tier, own in entries.items():
                if tier not in (known := (CLOUD, *self.groups)):
                    raise ConfigError(f"fleet.{table}.{tier}: no such tier; {nearest(tier, known)}")
                for name, value in own.items():
                    key = f"{table}.{tier}.{name}"
                    if name not in columns:
                        raise ConfigError(f"fleet.{key}: no such column; {nearest(name, columns)}")
                    low = read_ends(key, value)[0] if table == "links" else read_number(value)
                    least, most = ENDS[name]
                    check(key, value, least <= low <= most, f"give numbers from {least:g} to {most:g}")

    def claim(self, nodes: Nodes, **columns: ArrayLike) -> "Fleet":
        """A copy in which these nodes claim other values; the columns that nobody lies about are shared."""
        liars = np.asarray(nodes, dtype=np.intp)
        wrong = liars[(liars < 0) | (liars >= len(self))]
        if wrong.size:
            raise ConfigError(
                f"fleet: node {wrong[0]} can't claim anything; devices are 0 to {len(self) - 1}"
            )
        lies = {}
        for name, values in columns.items():
            lies[name] = getattr(self.claimed, check_column(name)).copy()
            try:
                lies[name][liars] = values
            except ValueError:
                raise ConfigError(
                    f"fleet.{name}: {np.size(values)} claims by {len(liars)} nodes; give one each"
                ) from None
        return replace(self, claimed=replace(self.claimed, **lies).check())
