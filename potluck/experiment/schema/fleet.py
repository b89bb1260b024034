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

    compute: Annotated[Pace | None, "milliseconds that it computes for a sample"] = None
    up: Annotated[Rate | None, "bits per second towards the cloud"] = None
    down: Annotated[Rate | None, "bits per second from above"] = None
    latency: Annotated[Latency | None, "seconds, one way"] = None
    memory: Annotated[Bytes | None, "bytes of memory"] = None


class Link(Table):
    """[fleet.links.NAME]: links of the devices whose parent is of this tier in the topology in use."""

    up: Annotated[
        Rate | list[Rate] | None, "bits per second towards the cloud: one number, or [lowest, highest]"
    ] = None
    down: Annotated[
        Rate | list[Rate] | None, "bits per second from above: one number, or [lowest, highest]"
    ] = None
    latency: Annotated[
        Latency | list[Latency] | None, "seconds, one way: one number, or [lowest, highest]"
    ] = None


class Jitter(Table):
    """[fleet.jitter]: how devices change from one slot of time to the next."""

    every: Annotated[Often, "how many seconds a slot of time lasts"] = 60.0
    rates: Annotated[
        Deviation, "how far links are off in a slot: the deviation of a factor on their rates"
    ] = 0.2
    compute: Annotated[
        Deviation, "how far speed is off in a slot: the deviation of the logarithm of a factor on it"
    ] = 0.0


class Claim(Table):
    """[[fleet.claims]]: devices that claim a multiple of what is true."""

    nodes: Annotated[list[Natural] | None, "which devices claim it, by number; or give a share"] = None
    share: Annotated[Share | None, "share of all devices that claim it"] = None
    compute: Annotated[
        Claimed | None, "what is claimed over what is true, here of the milliseconds for a sample"
    ] = None
    up: Annotated[Claimed | None, "the same of bits per second up"] = None
    down: Annotated[Claimed | None, "the same of bits per second down"] = None
    latency: Annotated[Claimed | None, "the same of latency"] = None
    memory: Annotated[Claimed | None, "the same of memory"] = None


class Stragglers(Table):
    """[fleet.stragglers]: devices that take several times as long as their source says, for everything."""

    share: Annotated[Share, "share of all devices"]
    slower: Annotated[Factor, "how many times as long they take for computing, sending and receiving"]


class Attackers(Table):
    """[fleet.attack]: devices that falsify what they send; means over devices are of all others."""

    kind: Annotated[
        Literal["sign_flip", "scaling", "noise", "free_ride", "malformed", "misreport", "forge_affinity"]
        | Literal["fang", "fang_krum", "alie", "min_max", "min_sum", "ipm", "backdoor"],
        "how they lie: each alone, or, from fang on, together",
    ]
    share: Annotated[Share | None, "share of all devices that lie; or give per_edge or nodes"] = None
    per_edge: Annotated[Count | None, "how many devices of every edge lie"] = None
    nodes: Annotated[list[Natural] | None, "which devices lie, by number"] = None
    scale: Annotated[AtLeast0 | None, "how strong the lie is; what 1 means goes by kind"] = None
    start: Annotated[AtLeast0, "when they begin to lie, in virtual seconds; before, they answer truly"] = 0.0
    what: Annotated[
        str | None,
        "of malformed and misreport: always this flaw, else one by hash each time; of min_max and "
        "min_sum: the direction (std, unless told, unit or sign); of forge_affinity: whether they "
        "spread over all groups, unless told, or gather in one",
    ] = None
    knows: Annotated[
        Literal["all", "own"] | None,
        "of those who lie together: whether they know honest devices' updates (all, unless told) "
        "or their own true ones alone",
    ] = None
    target: Annotated[Natural | None, "of backdoor: the class that a trigger stands for; 0, unless told"] = (
        None
    )
    patch: Annotated[
        Count | None, "of backdoor: how many pixels the trigger is wide and high; 3, unless told"
    ] = None
    poisoned: Annotated[
        Portion | None, "of backdoor: share of attackers' train rows that bear the trigger; 0.3, unless told"
    ] = None


class Devices(Table):
    """How fast devices and links are, and when they are there."""

    source: Annotated[str, "where devices' speeds and links come from, see below"] = "mobile"
    path: Annotated[str | None, "of trace and table: the file"] = None
    replace: Annotated[bool | None, "of trace: whether a device of the trace may be drawn twice"] = None
    rows: Annotated[list[dict[str, Amount]] | None, "of table: a row for each device, in place of a file"] = (
        None
    )
    preset: Annotated[str | None, "of mix: which mix, d1 to d4"] = None
    slowdown: Annotated[Factor | None, "of mix: how many times slower slow devices are"] = None
    slow_share: Annotated[Share | None, "of mix: share of devices that are slow"] = None
    compute: Annotated[
        Pace | None, "milliseconds that a device computes for a sample; of mobile, the median"
    ] = None
    compute_spread: Annotated[
        Spread | None, "how many times slower the slowest device is than the fastest"
    ] = None
    down: Annotated[Rate | None, "bits per second to the device; of mobile, the median"] = None
    up: Annotated[Rate | None, "bits per second from the device"] = None
    up_share: Annotated[Up | None, "rate up, as a share of the rate down"] = None
    link_spread: Annotated[
        Spread | None, "of mobile: how many times faster the fastest link is than the slowest"
    ] = None
    latency: Annotated[
        Latency | list[Latency] | None, "seconds, one way; of mobile and trace, [lowest, highest]"
    ] = None
    memory: Annotated[
        Bytes | list[Bytes] | None, "bytes of memory; of mobile and trace, [lowest, highest]"
    ] = None
    users: Annotated[Count | None, "how many users devices are dealt to"] = None
    edges: Annotated[
        Count | None, "how many edges devices are dealt to; those of one user go to the same edge"
    ] = None
    tiers: dict[str, Tier] = Field(default={})
    links: dict[str, Link] = Field(default={})
    jitter: Jitter | None = None
    claims: list[Claim] = Field(default=[])
    stragglers: Stragglers | None = None
    attack: Attackers | None = None
    forget: Annotated[Chance | None, "chance that a device has lost its memory when it begins a task"] = None
    availability: Annotated[
        Literal["always", "on_off", "day_night", "intervals"], "when devices are online"
    ] = "always"
    period: Annotated[
        Often, "of on_off: seconds of one turn of on and off; of day_night: seconds of a day"
    ] = 86_400.0
    share: Annotated[Online, "of on_off: share of time that a device is online, on average"] = 0.5
    night: Annotated[list[AtLeast0], "of day_night: when devices are online, in local hours, from and to"] = (
        Field(default=[22.0, 6.0])
    )
    night_spread: Annotated[
        AtLeast0, "of day_night: how many hours earlier or later a device may begin and end"
    ] = 1.5
    zones: Annotated[Count, "of day_night: how many time zones devices are in"] = 1
    intervals: Annotated[str | None, "of intervals: the file that says when each device is online"] = None
    memories: Annotated[
        str | None, "folder of an earlier run: devices begin with what they knew of cohorts there"
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
