"""The tables within [data]: groups, wrong labels, test-time shift and changes."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from potluck.core.ranges import Chance, Portion, Positive, Seconds
from potluck.experiment.schema.config_errors import UNION_TAGS
from potluck.experiment.schema.table import Table

Degrees = Annotated[float, Field(ge=-360, le=360)]


class GroupsWithin(Table):
    """[data.groups.within]: groups within each group, of another kind; group k of group j of m is j m + k."""

    kind: Annotated[
        Literal["rotation", "permutation", "affine", "labels", "source"],
        "in what groups differ: images are turned, labels renamed, features stretched, rows of "
        "classes of their own, or populations that the source knows of (of MNIST, two)",
    ]
    count: Annotated[int, Field(ge=2, le=1000), "how many groups there are"]
    degrees: Annotated[
        Degrees | None,
        "of rotation: how far images turn from one group to the next; unless told, in even parts "
        "of a whole turn",
    ] = None
    share: Annotated[
        Portion | None, "of labels: the share of a client's rows that are of its group's own classes"
    ] = None
    sizes: Annotated[list[Positive] | None, "how large groups are, as weights; unless told, all alike"] = None
    by: Annotated[
        Literal["user", "edge"] | None,
        "who is of one group as a whole; left out: each device is dealt by itself",
    ] = None


class Groups(GroupsWithin):
    """[data.groups]: hidden groups of clients, each of which sees, or holds, other data."""

    within: Annotated[GroupsWithin | None, "groups within each group, of another kind"] = None


class Flip(Table):
    """[data.flip]: devices whose training labels are wrong; what they are tested on stays right."""

    share: Annotated[Portion, "share of the devices"]
    kind: Annotated[
        Literal["random", "next"], "which wrong label a row gets: another class by chance, or the next class"
    ] = "random"


class Change(Table):
    """[[data.changes]]: what happens to the data of some clients in mid-run."""

    at: Annotated[Seconds, "when, in virtual seconds"]
    kind: Annotated[Literal["labels", "rotation"], "what happens: rows are dealt anew, or images are turned"]
    degrees: Annotated[Degrees | None, "of rotation: how far, counter-clockwise"] = None
    share: Annotated[Portion, "share of the clients whose data change; of users, where there are some"] = 1.0

    @model_validator(mode="after")
    def _turns(self) -> Self:
        if self.kind == "rotation" and not (self.degrees or 0) % 360:
            raise ValueError(f"degrees = {self.degrees}: say how far images are turned, such as 90")
        if self.kind == "labels" and self.degrees is not None:
            raise ValueError(f"degrees = {self.degrees}: is of kind = 'rotation'; leave it out for 'labels'")
        return self


class Shift(Table):
    """[data.shift]: test rows that give way to other rows of the global test set."""

    kind: Annotated[
        Literal["unseen", "one", "least", "global", "onset", "gradual"],
        "which rows come: of classes that the device doesn't train on; all of one class; of the "
        "class that it has fewest of; of everybody's mix; or of classes that it doesn't train on, "
        "met last (onset) or ever more often (gradual)",
    ]
    share: Annotated[Chance, "share of the test rows that give way"]


def _shorten(given: float | Shift) -> float | Shift:
    """What has two spellings is written down in one."""
    return given.share if isinstance(given, Shift) and given.kind == "unseen" else given


def _name_form(given: object) -> str:
    return UNION_TAGS[isinstance(given, dict | Shift)]


ShiftLevel = Annotated[
    Annotated[Chance, Tag(UNION_TAGS[0])] | Annotated[Shift, Tag(UNION_TAGS[1])],
    Discriminator(_name_form),
    AfterValidator(_shorten),
]
