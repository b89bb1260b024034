"""What is compared: algorithms, each in one way or in several, under labels that tell them apart.

    compare = ["fedavg", "classter", { algorithm = "classter", mode = "published" }]

A table has parameters as `[algorithms.NAME]` would, which they are laid over, and may have a `name`; else its
label is made of what it says. It may have `layers` and `layer` of its own, in place of the experiment's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from potluck import algorithms as registry
from potluck.core.errors import ConfigError, error_context, nearest, require
from potluck.experiment import folder
from potluck.experiment.schema.compare_list import LABEL, Entry, check_entry
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import dump_given
from potluck.experiment.tuned_keys import tell_value

AROUND = ("layers", "layer")  # keys of a table that are no parameters


@dataclass(frozen=True)
class Method:
    """One line of a comparison."""

    label: str  # tables and folders are named after it
    algorithm: str
    parameters: Mapping[str, Any]  # what it has otherwise than [algorithms.NAME]
    around: Mapping[str, Any] = field(default_factory=dict)  # `layers` and `layer`, if it has its own

    def lay_over(self, experiment: Experiment, **changes: Any) -> Experiment:
        """The experiment with this algorithm, its parameters, and other top-level values."""
        if self.parameters:
            tables = dump_given(experiment).get("algorithms", {})
            changes["algorithms"] = overlay(tables, {self.algorithm: self.parameters})
        changes |= self.around
        layers = changes.get("layers", experiment.layers)
        if "layer" not in changes and experiment.layer:
            changes["layer"] = {name: own for name, own in experiment.layer.items() if name in layers}
        return experiment.with_values(algorithm=self.algorithm, **changes)

    def to_entry(self) -> Entry:
        """As the list `compare` has it."""
        if not self.parameters and not self.around and self.label == self.algorithm:
            return self.algorithm
        return {"algorithm": self.algorithm, "name": self.label, **self.parameters, **self.around}

    @contextmanager
    def blame(self) -> Iterator[None]:
        """Say of a setting that is refused that it may stand in this line."""
        try:
            yield
        except ConfigError as error:
            if not self.parameters or f"algorithms.{self.algorithm}." not in str(error):
                raise
            raise error.retell(f"{error} (of {self.label!r} in compare)") from error.__cause__


def list_methods(
    experiment: Experiment, wanted: Sequence[str | Mapping[str, Any]] = (), key: str = "compare"
) -> list[Method]:
    """What is `wanted`, else what the experiment compares, else its one algorithm.

    A name is a label of the experiment's list, or that of an algorithm.
    """
    require(not isinstance(wanted, str), key, wanted, f"write a list, such as [{wanted!r}]")
    with error_context(experiment.source):
        experiment.check_layers()
        listed = [_read_entry(entry) for entry in experiment.compare]
        if not wanted:
            one = [] if listed else [_read_entry(registry.canonical(experiment.algorithm))]
            return _check_labels(listed or one, "compare")
    known = {method.label: method for method in listed}
    return _check_labels([_find(each, known, key) for each in wanted], key)


def overlay(base: Mapping[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with others laid over them, key by key; nothing is changed in place."""
    laid = {key: overlay(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for change in changes:
        for key, value in change.items():
            below = laid.get(key, {})
            if isinstance(value, Mapping):
                below = {"kind": below} if isinstance(below, str) else below  # a part by its name alone
                value = overlay(below if isinstance(below, Mapping) else {}, value)
            laid[key] = value
    return laid


def _check_labels(methods: list[Method], key: str) -> list[Method]:
    labels = [method.label for method in methods]
    places = [folder.to_path_part(label) for label in labels]
    for i, label in enumerate(labels):
        fix = f"is named twice; leave one out, or give it another name, such as name = '{label} 2'"
        require(places[i] not in places[:i], key, labels, f"{label!r} {fix}")
    return methods


def _find(wanted: str | Mapping[str, Any], listed: Mapping[str, Method], key: str) -> Method:
    if not isinstance(wanted, str):
        try:
            return _read_entry(check_entry(wanted))
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from None
    if wanted in listed:
        return listed[wanted]
    try:
        return _read_entry(registry.canonical(wanted, key))
    except ConfigError:
        hint = nearest(wanted, [*listed])
        if not hint.startswith("did"):
            raise
        raise ConfigError(f"{key} = {wanted!r}: no such algorithm; {hint}") from None


def _read_entry(entry: str | Mapping[str, Any]) -> Method:
    if isinstance(entry, str):
        return Method(entry, entry, {})
    algorithm: str = entry["algorithm"]
    own = {key: value for key, value in entry.items() if key not in ("algorithm", "name", *AROUND)}
    around = {key: entry[key] for key in AROUND if key in entry}
    told = " ".join(_tell(key, value) for key, value in (own | around).items())
    label = entry.get("name") or " ".join(re.sub(r"[^\w .+=%()-]+", " ", f"{algorithm} {told}").split())
    fix = f"makes the label {label!r} of {algorithm}, which is too long; give it a short name = '...'"
    require(LABEL.fullmatch(label) is not None, "compare", own, fix)
    return Method(label, algorithm, own, around)


def _tell(key: str, value: object) -> str:
    """A parameter in words, a mode by itself: `published`, `mu 0.1`, `inner kind fedyogi`."""
    if isinstance(value, Mapping):
        return f"{key} " + " ".join(_tell(*inner) for inner in value.items())
    value = "none" if value == [] else value
    told = tell_value(value) if isinstance(value, bool | int | float | str | list) else type(value).__name__
    return told if key == "mode" else f"{key} {told}"
