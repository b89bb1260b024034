"""The [fleet] table of an experiment and the tables in it."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from potluck.core.codec import Json
from potluck.core.errors import nearest
from potluck.core.ranges import AtLeast0, Chance, Count, Factor, Natural, Often, Portion, Share
from potluck.experiment.schema.table import Table
from potluck.fleet import SOURCES

Rate = Annotated[float, Field(ge=1e-3, le=1e15)]  # bits per second
Bytes = Annotated[float, Field(ge=1, le=1e18)]
Pace = Annotated[float, Field(ge=1e-9, le=1e9)]  # ms per sample
Latency = Annotated[float, Field(ge=0, le=1e6)]  # seconds
Spread = Annotated[float, Field(ge=1, le=1e9)]  # largest over smallest
Claimed = Annotated[float, Field(ge=1e-6, le=1e6)]  # over what is true
Amount = Annotated[float, Field(ge=0, le=1e18)]  # whatever the column
Deviation = Annotated[float, Field(ge=0, le=10)]
Online = Annotated[float, Field(ge=1e-3, le=1)]  # share of time; less would be looked for without end
Up = Annotated[float, Field(ge=1e-3, le=1)]  # share of what comes down


class Tier(Table):
    """[fleet.tiers.NAME]: machines of users, edges or the cloud, and their links to those above."""

    compute: Annotated[Pace | None, "ms per sample"] = None
    up: Annotated[Rate | None, "bits per second"] = None
    down: Annotated[Rate | None, "likewise"] = None
    latency: Annotated[Latency | None, "seconds"] = None
    memory: Annotated[Bytes | None, "bytes"] = None


class Link(Table):
    """[fleet.links.NAME]: links of the devices whose parent is of this tier in the topology in use."""

    up: Annotated[Rate | list[Rate] | None, "bits per second; one number, or [lowest, highest]"] = None
    down: Annotated[Rate | list[Rate] | None, "likewise"] = None
    latency: Annotated[Latency | list[Latency] | None, "seconds, one way"] = None


class Jitter(Table):
    """[fleet.jitter]: how devices change from one slot of time to the next."""

    every: Annotated[Often, "seconds"] = 60.0
    rates: Annotated[Deviation, "deviation of rates' factor"] = 0.2
    compute: Annotated[Deviation, "deviation of the logarithm of compute's factor"] = 0.0


class Claim(Table):
    """[[fleet.claims]]: devices that claim a multiple of what is true."""

    nodes: Annotated[list[Natural] | None, "these, or"] = None
    share: Annotated[Share | None, "a share of all"] = None
    compute: Annotated[Claimed | None, "claimed over true, as all below"] = None
    up: Annotated[Claimed | None, "likewise"] = None
    down: Annotated[Claimed | None, "likewise"] = None
    latency: Annotated[Claimed | None, "likewise"] = None
    memory: Annotated[Claimed | None, "likewise"] = None


class Stragglers(Table):
    """[fleet.stragglers]: devices that take several times as long as their source says, for everything."""

    share: Annotated[Share, "of all devices"]
    slower: Annotated[Factor, "times: computing, sending and receiving"]


class Attackers(Table):
    """[fleet.attack]: devices that falsify what they send; means over devices are of all others."""

    kind: Annotated[
        Literal["sign_flip", "scaling", "noise", "free_ride", "malformed", "misreport", "forge_affinity"]
        | Literal["fang", "fang_krum", "alie", "min_max", "min_sum", "ipm", "backdoor"],
        "how they lie: alone, or from fang on together",
    ]
    share: Annotated[Share | None, "of all devices, or"] = None
    per_edge: Annotated[Count | None, "so many of every edge's, or"] = None
    nodes: Annotated[list[Natural] | None, "these"] = None
    scale: Annotated[AtLeast0 | None, "of the lie; its unit goes by kind"] = None
    start: Annotated[AtLeast0, "virtual seconds: true answers before"] = 0.0
    what: Annotated[
        str | None,
        "of malformed and misreport: always this flaw; else one by hash each time; "
        "of min_max and min_sum: the direction, std, unit or sign; else std; "
        "of forge_affinity: spread over all groups or gather in one; else spread",
    ] = None
    knows: Annotated[
        Literal["all", "own"] | None,
        "of those who lie together: honest devices' updates, or their own true ones alone; else all",
    ] = None
    target: Annotated[Natural | None, "of backdoor: the class that a trigger stands for; else 0"] = None
    patch: Annotated[Count | None, "of backdoor: pixels of the trigger's side; else 3"] = None
    poisoned: Annotated[
        Portion | None, "of backdoor: share of attackers' train rows with the trigger; else 0.3"
    ] = None


class Devices(Table):
    """How fast devices and links are, and when they are there."""

    source: Annotated[str, "of devices' speeds and links"] = "mobile"
    path: Annotated[str | None, "of trace and table"] = None
    replace: Annotated[bool | None, "trace: a device may be drawn twice"] = None
    rows: Annotated[list[dict[str, Amount]] | None, "of table, in place of a path"] = None
    preset: Annotated[str | None, "of mix: d1 to d4"] = None
    slowdown: Annotated[Factor | None, "of mix: slow over fast"] = None
    slow_share: Annotated[Share | None, "of mix: how many are slow"] = None
    compute: Annotated[Pace | None, "ms per sample; mobile: the median"] = None
    compute_spread: Annotated[Spread | None, "slowest over fastest"] = None
    down: Annotated[Rate | None, "bits per second; mobile: the median"] = None
    up: Annotated[Rate | None, "bits per second"] = None
    up_share: Annotated[Up | None, "of down"] = None
    link_spread: Annotated[Spread | None, "of mobile: fastest over slowest"] = None
    latency: Annotated[Latency | list[Latency] | None, "seconds; mobile and trace: between two ends"] = None
    memory: Annotated[Bytes | list[Bytes] | None, "bytes; mobile and trace: between two ends"] = None
    users: Annotated[Count | None, "devices are dealt to so many"] = None
    edges: Annotated[Count | None, "likewise; those of a user together"] = None
    tiers: dict[str, Tier] = Field(default={})
    links: dict[str, Link] = Field(default={})
    jitter: Jitter | None = None
    claims: list[Claim] = Field(default=[])
    stragglers: Stragglers | None = None
    attack: Attackers | None = None
    forget: Annotated[Chance | None, "chance to have lost all memory, each task"] = None
    availability: Annotated[
        Literal["always", "on_off", "day_night", "intervals"], "when devices are online"
    ] = "always"
    period: Annotated[Often, "seconds, of on_off; of day_night: a day"] = 86_400.0
    share: Annotated[Online, "mean share of time online, of on_off"] = 0.5
    night: Annotated[list[AtLeast0], "local hours, of day_night"] = Field(default=[22.0, 6.0])
    night_spread: Annotated[AtLeast0, "hours, either way"] = 1.5
    zones: Annotated[Count, "time zones, of day_night"] = 1
    intervals: Annotated[str | None, "path, of intervals"] = None
    memories: Annotated[
        str | None, "folder of a run whose devices' knowledge of cohorts these begin with"
    ] = None

    @field_validator("source")
    @classmethod
    def _known_source(cls, name: str) -> str:
        if name not in SOURCES:
            raise ValueError(f"no such source; {nearest(name, list(SOURCES))}")
        return name

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.availability == "intervals") != (self.intervals is not None):
            raise ValueError(
                f"availability = {self.availability!r} and intervals = {self.intervals!r}: "
                "availability = 'intervals' and the path of a file belong together"
            )
        return self

    def options(self) -> dict[str, Json]:
        """What the source is told."""
        own = ("source", "users", "edges", "tiers", "links", "jitter", "claims", "stragglers", "forget")
        about = (
            *own,
            "attack",
            "availability",
            "period",
            "share",
            "night",
            "night_spread",
            "zones",
            "intervals",
            "memories",
        )
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in about}
        return {name: value for name, value in values.items() if value is not None}
