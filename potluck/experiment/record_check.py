"""Whether a line of records.jsonl is what a run writes: anybody may have made the file.

Times, names and what the engine itself measures are of known types. What an algorithm notes is anything that
JSON can hold.
"""

from typing import NotRequired, TypedDict

from potluck.core.codec import Json
from potluck.core.records import Record
from potluck.experiment.json_files import find_fault

HUGE = 1e300  # a number beyond isn't drawn
_FACTS = sorted(Record.__required_keys__)
_WHOSE: tuple[tuple[str, tuple[type, ...]], ...] = (("node", (int,)), ("group", (int, str)), ("view", (str,)))
_SPELLED: dict[type, str] = {int: "a whole number", str: "a text"}
_NUMBERS = frozenset(
    f"{prefix}{name}"
    for prefix, names in {
        "": ("accuracy", "bytes_down", "bytes_up", "lost", "device_seconds", "tasks", "participants"),
        "accuracy_": ("mean", "worst10", "best10", "variance"),
        "global_": ("accuracy",),
        "backdoor_": ("success",),
    }.items()
    for name in names
)


class Chosen(TypedDict):
    """Which model a device would choose, and how often it has trained."""

    name: str
    times: NotRequired[float]


class PrivateUpdates(TypedDict):
    """How often the most active device sent something under one noise."""

    sigma: float
    delta: float
    updates: int


class Judged(TypedDict):
    """Whose updates a judge has seen."""

    judged: list[int]


class GlobalTest(TypedDict):
    """What the models that devices use come to on the global test set."""

    accuracy: float
    models: int


class Shifted(TypedDict):
    """What devices' accuracies come to at another shift."""

    shift: float  # the share
    kind: NotRequired[str]  # unseen unless said
    mean: float
    worst10: float


class Prior(TypedDict):
    """What devices found together on validation rows."""

    temperature: float
    biases: list[float]
    rows: float
    rounds: float
    bytes: float


_VALUES: dict[str, object] = {
    "attackers": list[int],
    "flippers": list[int],
    "hidden_group": int,
    "chosen": Chosen,
    "accuracy_shifted": Shifted,
    "private_updates": PrivateUpdates,
    "guarded": Judged,
    "global_test": GlobalTest,
    "prior": Prior,
}


def find_record_fault(record: Json) -> str | None:
    """What is wrong with a line; None: nothing is."""
    if not isinstance(record, dict) or any(name not in record for name in _FACTS):
        return f"a line lacks one of {', '.join(_FACTS)}"
    metric, value = record["metric"], record["value"]
    if not isinstance(metric, str):
        return "a metric should be a text"
    if type(record["round"]) is not int or not all(_is_number(record[name]) for name in ("round", "time")):
        return f"{metric}: round and time should be numbers"
    for name, kinds in _WHOSE:
        if name in record and type(record[name]) not in kinds:
            return f"{metric}: {name} should be {' or '.join(_SPELLED[kind] for kind in kinds)}"
    if metric in _NUMBERS:
        return None if _is_number(value) else f"{metric} should be a number"
    fault = find_fault(value, _VALUES[metric]) if metric in _VALUES else None
    return None if fault is None else f"{metric}{fault}"


def _is_number(value: Json) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -HUGE < value < HUGE  # NaN isn't
