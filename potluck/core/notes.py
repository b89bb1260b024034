"""How an algorithm's notes read in a report: said by the algorithm, so that a report needs no list of them.

An algorithm says it in a constant NOTES: of `notes.py` in its folder, or of its own file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from potluck.core.errors import require
from potluck.core.records import Record

Kind = Literal["counts", "stretches", "tree", "tiers"]
Trait = Literal["classes", "kinds", "edges", "users", "sizes"]
Tell: TypeAlias = Callable[[Sequence[Record]], str]


@dataclass(frozen=True)
class Figure:
    """A figure of its own for one note; notes without one are drawn as numbers over time, group by group.

    `kind` is what the note holds, and so how it is drawn:
    counts      a list of counts, noted again and again: who is behind the most counted one
    stretches   a group's count since it last noted one, such as rounds between two models
    tree        a group that splits: `{"into": names, "sizes": ...}`
    tiers       the tier of one device, `{"tier": name}`, or a tier's devices as a list
    """

    kind: Kind
    note: str
    title: str
    hint: str  # what to look for
    each: str = ""  # what one place of a list of counts is, such as class
    number: str = ""  # another note whose last number is told below the figure

    def __post_init__(self) -> None:
        known = get_args(Kind)
        require(self.kind in known, "Figure.kind", self.kind, f"write one of {', '.join(known)}")


@dataclass(frozen=True)
class Crowd:
    """Whom an algorithm is for.

    `trait` is what its devices differ in, and so how a report draws them:
    classes     the classes that each holds, and those that it meets
    kinds       kinds of devices that disagree about the same rows
    edges       what they hang below, near devices and far from the cloud
    users       whom several belong to
    sizes       how much each can do
    """

    trait: Trait
    told: str  # in a sentence

    def __post_init__(self) -> None:
        known = get_args(Trait)
        require(self.trait in known, "Crowd.trait", self.trait, f"write one of {', '.join(known)}")


@dataclass(frozen=True)
class Notes:
    """All that a report should know of an algorithm's notes."""

    # What the numbers of a note are, by its name; where a note is a table, by name and key: "cohort reward".
    words: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    # What the algorithm did in a run, in a sentence, from all of the run's records; "" if they tell nothing.
    tell: Tell | None = None
    crowd: Crowd | None = None
    group: str = ""  # what a group is that is noted by its bare number, such as class: "class 3"
    views: Mapping[str, str] = field(
        default_factory=dict
    )  # what each view is: "personal": "the device's own model"
