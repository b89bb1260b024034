"""Names that are stacks, and what layers take over from the tables of these and of base rules."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from potluck import algorithms
from potluck.core.errors import ConfigError
from potluck.core.parts import bare
from potluck.layers.matrix import find_terms
from potluck.rules.edges import EVERYBODY

Table = Mapping[str, object]
BASE: Final = "fedavg"  # unless another is named
COHORTS: Final = ("auxo", "cfl", "flexcfl", "flhc")  # those who group members around another rule
SHARED: Final = ("clients", "overcommit", "deadline")  # what sizes take of FedAvg's own table
SIZE_KINDS: Final = {"heterofl": SHARED, "fedrac": ()}  # by kind: what it takes; Fed-RAC asks whole tiers
LONGEST: Final = 10.0  # times the median answer of edges, up to which one is listened to
USERS: Final = "shufflefl"  # users below FedAvg
EDGES: Final[Mapping[str, Mapping[str, object]]] = {  # edges below it, by what the layer's table says
    "fededge": {"go_on": True},
    "hierfl": {"go_on": False, "own": True},
    "maverick": {"go_on": True},
}
OF_CONTRAST: Final = ("mu_p", "mu_a", "tau", "contrast", "top", "alike")  # of Maverick's: `edges.contrast`
TUNED: Final = "ftfa"  # tuned above FedAvg
OF_TUNING: Final = {"tune_epochs": "epochs", "tune_lr": "lr", "part": "part"}  # of its parameters
OF_BASE: Final = {"users": "clients", "select": "select", "deadline": "deadline"}  # of its parameters


def settle(base: str, layers: Mapping[str, Table], given: Table) -> dict[str, Any]:
    """A base rule's table, with what layers around it change of its defaults: see `fit_tier` for `cap`."""
    if base == USERS and "cohorts" in layers:
        return {"cap": False, **given}
    return listen_longer(base, find_inner(base, given), layers, given)


def find_inner(base: str, own: Table) -> set[str]:
    """The rule around which a base rule groups members, if it does and says so."""
    inner = own.get("inner") if base in COHORTS else None
    kind = inner.get("kind", BASE) if isinstance(inner, Mapping) else inner
    return {algorithms.canonical(kind, "inner")} if isinstance(kind, str) else set()


def listen_longer(
    kind: str, rules: Collection[str], layers: Mapping[str, Table], given: Table
) -> dict[str, Any]:
    """Of who groups edges that hold as many rounds as fit: answers of many rounds are long, and no nonsense.

    Calibrated sides leave out what is much longer than the median: of few edges too many, then.
    """
    edges, usual = layers.get("edges"), "faithful" if given.get("mode") == "published" else "calibrated"
    table = given.get("criterion", usual)
    named = dict(table) if isinstance(table, Mapping) else {"kind": table}
    if kind != "auxo" or bare(str(named.setdefault("kind", usual))) != "calibrated" or edges is None:
        return dict(given)
    goes_on = edges.get("go_on", "edges" not in find_terms(rules))
    even = isinstance(edges.get("local_rounds"), int)  # all answers are of as many rounds
    return {**given, "criterion": {"longest": LONGEST, **named}} if goes_on and not even else dict(given)


def open_preset(
    base: str, rounds: int | None, given: dict[str, Any], layers: Mapping[str, Table]
) -> tuple[str, dict[str, Any], dict[str, Table]]:
    """A name that is a stack, with more layers around it, as its base rule and all layers.

    Without more it is made as it is, and whatever isn't such a name stays as it is.
    """
    if base in EDGES and layers:
        table = dict(algorithms.complete(base, rounds, **given)) | given
        return BASE, {"clients": EVERYBODY}, {**layers, "edges": read_edges(base, table)}
    if base != USERS or not layers:
        return base, settle(base, layers, given), dict(layers)
    table = dict(algorithms.complete(base, rounds, **settle(base, layers, given))) | given
    mode, gamma = table.pop("mode"), table.pop("gamma")
    if gamma != 1:
        fix = "classes are merged by the cloud's model of users; among other layers leave it out"
        raise ConfigError(f"algorithms.{base}.gamma = {gamma} (mode {mode}): {fix}")
    own = {new: table.pop(old) for old, new in OF_BASE.items() if old in table}
    return BASE, own, {**layers, "users": table}


def read_edges(base: str, table: Table) -> dict[str, object]:
    """The layer's table, of the parameters of an algorithm whose edges it has."""
    own = {key: given for key, given in table.items() if key not in ("mode", "edge_rounds", *OF_CONTRAST)}
    if "edge_rounds" in table:
        own["local_rounds"] = table["edge_rounds"]
    if base == "maverick":
        own["contrast"] = {key: table[key] for key in OF_CONTRAST if key in table}
    return {**EDGES[base], **own}


def take_over(base: str, kind: str, own: dict[str, Any]) -> dict[str, Any]:
    """What models of several sizes are trained by, of the base rule's table."""
    for key, value in own.items():
        if key not in SIZE_KINDS[kind]:
            raise ConfigError(
                f"algorithms.{base}.{key} = {value!r}: sizes average in a way of their own; leave it out"
            )
    return own
