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
        "images turned, labels renamed, features stretched; rows of classes of their own; or the populations "
        "that the source knows of (of MNIST, two)",
    ]
    count: Annotated[int, Field(ge=2, le=1000), "of groups"]
    degrees: Annotated[Degrees | None, "of rotation, from one group to the next; even turns unless said"] = (
        None
    )
    share: Annotated[Portion | None, "of labels: of a client's rows, those of its group's own classes"] = None
    sizes: Annotated[list[Positive] | None, "of groups, as weights; even unless said"] = None
    by: Annotated[
        Literal["user", "edge"] | None, "whose devices are of one group; left out: each device by itself"
    ] = None


class Groups(GroupsWithin):
    """[data.groups]: hidden groups of clients, each of which sees, or holds, other data."""

    within: Annotated[GroupsWithin | None, "groups within each group, of another kind"] = None


class Flip(Table):
    """[data.flip]: devices whose training labels are wrong; what they are tested on stays right."""

    share: Annotated[Portion, "of the devices"]
    kind: Annotated[Literal["random", "next"], "another class by chance for each row, or the next class"] = (
        "random"
    )


class Change(Table):
    """[[data.changes]]: what happens to the data of some clients in mid-run."""

    at: Annotated[Seconds, "virtual seconds"]
    kind: Annotated[Literal["labels", "rotation"], "rows are dealt anew, or images are turned"]
    degrees: Annotated[Degrees | None, "of rotation, counter-clockwise"] = None
    share: Annotated[Portion, "of the clients; of users, where there are some"] = 1.0

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
        "Which they are: of classes that aren't trained on; of one class; of the class that the device has "
        "fewest of; of everybody's mix. Of classes that aren't trained on, but met last, or ever more often.",
    ]
    share: Annotated[Chance, "of the test rows"]


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
