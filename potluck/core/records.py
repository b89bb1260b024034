"""A line of what a run records, as it is stored and read."""

from typing import Any, NotRequired, TypedDict

Group = int | str  # an aggregator's node, or a name that an algorithm gave


class Whose(TypedDict, total=False):
    """Of whom a fact is; None says nothing."""

    node: int | None
    group: Group | None
    view: str | None


class Record(TypedDict):
    """One line of records.jsonl: a fact, when it was so on the virtual clock, and whose it is."""

    round: int
    time: float
    metric: str
    value: Any  # what a rule notes is anything that JSON can hold
    node: NotRequired[int]
    group: NotRequired[Group]
    view: NotRequired[str]
