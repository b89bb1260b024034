"""The [fleet] table of an experiment and the tables in it."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from potluck.core.codec import Json
from potluck.core.errors import nearest
from potluck.experiment.schema.settings import Count, Positive, Share, Table
from potluck.fleet import SOURCES

Ends = float | list[float] | None  # one number, or [lowest, highest]
AtLeast0 = Annotated[float, Field(ge=0)]


class Tier(Table):
    """[fleet.tiers.NAME]: machines of users, edges or the cloud, and their links to those above."""

    compute: Positive | None = None  # ms per sample
    up: Positive | None = None  # bits per second
    down: Positive | None = None  # likewise
    latency: AtLeast0 | None = None  # seconds
    memory: Positive | None = None  # bytes


class Link(Table):
    """[fleet.links.NAME]: links of the devices whose parent is of this tier in the topology in use."""

    up: Ends = None  # bits per second
    down: Ends = None  # likewise
    latency: Ends = None  # seconds, one way


class Jitter(Table):
    """[fleet.jitter]: how devices change from one slot of time to the next."""

    every: Positive = 60.0  # seconds
    rates: AtLeast0 = 0.2  # deviation of rates' factor
    compute: AtLeast0 = 0.0  # deviation of the logarithm of compute's factor


class Claim(Table):
    """[[fleet.claims]]: devices that claim a multiple of what is true."""

    nodes: list[Annotated[int, Field(ge=0)]] | None = None  # these, or
    share: Share | None = None  # a share of all
    compute: Positive | None = None  # claimed over true, as all below
    up: Positive | None = None  # likewise
    down: Positive | None = None  # likewise
    latency: Positive | None = None  # likewise
    memory: Positive | None = None  # likewise


class Stragglers(Table):
    """[fleet.stragglers]: devices that take several times as long as their source says, for everything."""

    share: Share  # of all devices
    slower: Annotated[float, Field(ge=1)]  # times: computing, sending and receiving


class Attackers(Table):
    """[fleet.attack]: devices that falsify what they send; means over devices are of all others."""

    kind: Literal["sign_flip", "scaling", "noise", "free_ride", "fang", "malformed"]  # how they lie
    share: Share | None = None  # of all devices, or
    per_edge: Count | None = None  # so many of every edge's, or
    nodes: list[Annotated[int, Field(ge=0)]] | None = None  # these
    scale: AtLeast0 | None = None  # of the lie; its unit goes by kind
    start: AtLeast0 = 0.0  # virtual seconds: true answers before
    what: str | None = None  # of malformed: always this flaw; else one by hash each time


class Devices(Table):
    """How fast devices and links are, and when they are there."""

    source: str = "mobile"  # of devices' speeds and links
    path: str | None = None  # of trace and table
    replace: bool | None = None  # trace: a device may be drawn twice
    rows: list[dict[str, float]] | None = None  # of table, in place of a path
    preset: str | None = None  # of mix: d1 to d4
    slowdown: float | None = None  # of mix: slow over fast
    slow_share: float | None = None  # of mix: how many are slow
    compute: Positive | None = None  # ms per sample; mobile: the median
    compute_spread: float | None = None  # slowest over fastest
    down: Positive | None = None  # bits per second; mobile: the median
    up: Positive | None = None  # bits per second
    up_share: Positive | None = None  # of down
    link_spread: float | None = None  # of mobile: fastest over slowest
    latency: Ends = None  # seconds; mobile and trace: between two ends
    memory: Ends = None  # bytes; mobile and trace: between two ends
    users: Count | None = None  # devices are dealt to so many
    edges: Count | None = None  # likewise; those of a user together
    tiers: dict[str, Tier] = Field(default={})
    links: dict[str, Link] = Field(default={})
    jitter: Jitter | None = None
    claims: list[Claim] = Field(default=[])
    stragglers: Stragglers | None = None
    attack: Attackers | None = None
    forget: Annotated[float, Field(ge=0, le=1)] | None = None  # chance to have lost all memory, each task
    availability: Literal["always", "on_off", "day_night", "intervals"] = "always"  # when devices are online
    period: Positive = 86_400.0  # seconds, of on_off; of day_night: a day
    share: Annotated[float, Field(gt=0, le=1)] = 0.5  # mean share of time online, of on_off
    night: list[float] = Field(default=[22.0, 6.0])  # local hours, of day_night
    night_spread: AtLeast0 = 1.5  # hours, either way
    zones: Count = 1  # time zones, of day_night
    intervals: str | None = None  # path, of intervals
    memories: str | None = None  # folder of a run whose devices' knowledge of cohorts these begin with

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
