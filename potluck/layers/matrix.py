"""Which layers go together, with which base rules, and why others don't: read by commands, runs and tests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from potluck.core.errors import ConfigError, nearest, show_short

TRAINED = ("users", "edges", "cohorts", "sizes")  # from devices to the base rule
SERVES = ("tuned", "switch", "prior")  # of what is served, in the order in which they stand
FITTED = ("prior",)  # of these: over devices, where models are scored, so above whatever trained them
LAYERS = (*TRAINED, *SERVES)

_GROUPS = "it groups devices by itself"
_MANY = "it has several models, and nobody between may choose one for others"
_CLASSES = "it has a model for each class, and one update of a device is of one class alone"
_TIERS = "it says itself who stands between devices and cloud"
_USERS = "it has users already"
_EDGES = "it has edges already"
_DEVICES = "it chooses single devices by what only they can tell"
_MASKS = "its devices send masks, and several of them have no mean"
_WHOLE = "it has no way yet to train by a part of the devices"
_ALONE = "it merges every answer as it comes, and a group's answers are merged in rounds"
_WIDTHS = "its devices train models of several widths, and a user or an edge has one"
_PLACES = "it places all devices in tiers by itself, and cohorts share devices out by their own lanes"
_ONE = "a user or an edge has one model of one width, and sizes have several"
_SIZES = "it has sizes already"
_SIZED = "sizes stand inside cohorts; take heterofl with the layer cohorts"
_PARTS = "it finds groups by whole changes, and sizes have parts"
_PLAIN = "sizes average what their owners have, as FedAvg does and no other rule"
_TUNES = "it makes its model devices' own by itself"
_KEEPS = "its devices use models that they keep, tuned already"
_SEVERAL = "its devices use several models at once"

# By base rule and layer: why not. What isn't here is offered. In this order: users, edges, cohorts, sizes.
_REFUSED: Mapping[str, tuple[str | None, ...]] = {
    "auxo": (None, None, _GROUPS, _SIZED),
    "cfl": (None, None, _GROUPS, _PARTS),
    "classter": (_CLASSES, _CLASSES, _CLASSES, _CLASSES),
    "classter_async": (_CLASSES, _CLASSES, _CLASSES, _CLASSES),
    "dmpfl": (_MASKS, _MASKS, _MASKS, _PLAIN),
    "fedadagrad": (None, None, None, _PLAIN),
    "fedadam": (None, None, None, _PLAIN),
    "fedasync": (None, None, _ALONE, _PLAIN),
    "fedavg": (None, None, None, None),
    "fedbuff": (None, None, _ALONE, _PLAIN),
    "fededge": (None, _EDGES, None, _ONE),
    "fedgs": (_TIERS, _TIERS, _TIERS, _TIERS),
    "fedprox": (None, None, None, _PLAIN),
    "fedpvr": (None, None, None, _PLAIN),
    "fedrac": (_WIDTHS, _WIDTHS, _PLACES, _SIZES),
    "fedyogi": (None, None, None, _PLAIN),
    "flame": (_DEVICES, _DEVICES, None, _PLAIN),
    "flexcfl": (None, None, _GROUPS, _PARTS),
    "flhc": (None, None, _GROUPS, _PARTS),
    "ftfa": (None, None, None, _PLAIN),
    "heterofl": (_WIDTHS, _WIDTHS, None, _SIZES),
    "hierfl": (None, _EDGES, None, _ONE),
    "hybridfl": (_TIERS, _TIERS, _TIERS, _TIERS),
    "ifca": (_MANY, _MANY, _MANY, _MANY),
    "maverick": (None, _EDGES, None, _ONE),
    "moon": (None, None, None, _PLAIN),
    "oort": (None, None, None, _PLAIN),
    "pyramidfl": (None, None, None, _PLAIN),
    "qfedavg": (None, None, None, _PLAIN),
    "scaffold": (None, None, None, _PLAIN),
    "share": (_TIERS, _TIERS, _TIERS, _TIERS),
    "shufflefl": (_USERS, None, None, _ONE),
    "tifl": (None, None, _WHOLE, _PLAIN),
}
# By base rule: why what it serves isn't made devices' own by a layer.
_UNTUNED: Mapping[str, str] = {
    "classter": _TUNES,
    "classter_async": _TUNES,
    "dmpfl": _SEVERAL,
    "fededge": _KEEPS,
    "fedgs": _TIERS,
    "fedpvr": _KEEPS,
    "fedrac": _SEVERAL,
    "ftfa": _TUNES,
    "hierfl": _KEEPS,
    "hybridfl": _TIERS,
    "maverick": _KEEPS,
    "share": _TIERS,
}
_ROUNDS = "of several rounds, there is no one change of a control variate"
# What a layer's table says for a base rule, whatever else its default is: key, value, why.
_TERMS: Mapping[tuple[str, str], tuple[str, bool, str]] = {
    ("flexcfl", "users"): (
        "shuffle",
        False,
        "it trains by a number of steps, and where rows move, they decide",
    ),
    ("fedpvr", "edges"): ("go_on", False, _ROUNDS),
    ("pyramidfl", "edges"): (
        "go_on",
        False,
        "devices answer with parts of a change, and rounds begin with all",
    ),
    ("scaffold", "edges"): ("go_on", False, _ROUNDS),
}
_APART: Mapping[frozenset[str], str] = {
    frozenset({"users", "sizes"}): _ONE,
    frozenset({"edges", "sizes"}): _ONE,
    frozenset({"tuned", "switch"}): "both make the same model a device's own",
}


@dataclass(frozen=True)
class Row:
    """A base rule, and why some layers don't go around it."""

    algorithm: str
    refused: Mapping[str, str]  # by layer; others are offered
    terms: Mapping[str, str]  # by layer: what its table must say


def check_layer(name: str, told: str) -> None:
    """Refuse a name that is no layer's; `told`: where it stands, as a file has it."""
    if name not in LAYERS:
        raise ConfigError(f"{told}: no such layer; {nearest(name, LAYERS)}")


def sort_layers(names: Sequence[str]) -> list[str]:
    """The names of layers in the one order that there is."""
    for name in names:
        check_layer(name, f"layers = {show_short(name)}")
        if names.count(name) > 1:
            raise ConfigError(f"layers = {show_short(list(names))}: {name!r} twice; name each once")
    return sorted(names, key=LAYERS.index)


def find_refusal(base: str, layers: Collection[str]) -> str | None:
    """Why these layers don't stand around a base rule; None: they do, as far as names tell."""
    reasons = _read_reasons(base)
    for name in layers:
        if reason := reasons[name]:
            return f"{base} takes no {name}: {reason}"
    for pair, reason in _APART.items():
        if pair <= {*layers}:
            return f"{' and '.join(sorted(pair, key=LAYERS.index))} don't go together: {reason}"
    return None


def require_offered(base: str, layers: Sequence[str], named: Sequence[str] = ()) -> None:
    """Refuse layers that don't go together, or not with a base rule; `named`: all that there are, if more."""
    if refusal := find_refusal(base, layers):
        fix = "leave a layer out, or see potluck algorithms --layers"
        raise ConfigError(f"layers = {list(named or layers)}: {refusal}; {fix}")


def find_terms(names: Collection[str]) -> dict[str, tuple[str, bool, str]]:
    """By layer, what its table must say for these rules."""
    return {layer: term for (name, layer), term in _TERMS.items() if name in names}


def show_term(key: str, value: bool) -> str:
    """As a file says it."""
    return f"{key} = {str(value).lower()}"


def list_matrix(names: Sequence[str]) -> list[Row]:
    """Each base rule with the reasons against layers."""
    refused = {name: {k: why for k, why in _read_reasons(name).items() if why} for name in names}
    terms = {
        name: {layer: show_term(*term[:2]) for layer, term in find_terms([name]).items()} for name in names
    }
    return [Row(name, refused[name], terms[name]) for name in names]


def list_apart() -> dict[str, str]:
    """Layers that don't go together around any rule, and why."""
    return {" and ".join(sorted(pair, key=LAYERS.index)): reason for pair, reason in _APART.items()}


def _read_reasons(base: str) -> dict[str, str | None]:
    trained = dict(zip(TRAINED, _REFUSED.get(base, (None,) * len(TRAINED)), strict=True))
    return trained | {name: None if name in FITTED else _UNTUNED.get(base) for name in SERVES}


def drop_fitted(names: Sequence[str]) -> list[str]:
    """Layers without those that are fitted over devices where models are scored: the rule is of these."""
    return [name for name in names if name not in FITTED]
