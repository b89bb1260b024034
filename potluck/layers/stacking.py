"""A base rule with its layers, made by name: what an experiment's `layers` and `[layer.NAME]` ask for."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from potluck import algorithms
from potluck.algorithms._parameters import Call, Terms, fit
from potluck.algorithms._written import list_settings
from potluck.algorithms.shufflefl.users import Users
from potluck.core.codec import Json
from potluck.core.errors import ConfigError, require, show_short
from potluck.core.rule import Rule, Runnable
from potluck.jobs import Train
from potluck.jobs.prior import ServedForm
from potluck.layers import between
from potluck.layers.matrix import PRIOR, find_terms, require_offered, show_term, sort_layers
from potluck.rules.layered import Layered
from potluck.rules.wrap import is_cohort

Table = Mapping[str, object]
TIERS: Mapping[str, Callable[..., Any]] = {"edges": between.edges, "users": between.users}
COHORTS = ("auxo", "cfl", "flexcfl", "flhc")  # those who group members around another rule
SIZES = "heterofl"
SHARED = ("clients", "overcommit", "deadline")  # what sizes take of FedAvg's own table


def stacked(
    base: str,
    local: Train = Train(),
    parameters: Table | None = None,
    rounds: int | None = None,
    **layers: Table,
) -> Runnable:
    """A base rule with layers, such as `stacked("fedyogi", users={}, cohorts={"kind": "auxo"})`.

    Not with `prior`: that is how any rule is scored, so it is an experiment that names it.
    """
    if PRIOR in layers:
        fix = f"is of whatever a run serves, not of its rule; write Experiment(layers=[{PRIOR!r}], ...)"
        raise ConfigError(f"layers = {show_short([*layers])}: {PRIOR} {fix}")
    base, names = algorithms.canonical(base), sort_layers([*layers])
    require_offered(base, names)
    own, kinds = dict(parameters or {}), _list_kinds(base, names, layers)
    if "sizes" in names:
        base, own = SIZES, _take_over(base, own) | dict(layers["sizes"])
    if "cohorts" in names:
        kind, settings = _read_kind(layers["cohorts"])
        fix = "finds groups by whole changes, and sizes have parts; write 'auxo', or leave sizes out"
        require("sizes" not in names or kind == COHORTS[0], "layer.cohorts.kind", kind, fix)
        inner = algorithms.make(base, local, rounds, **own)
        fix = "has no one model that a part of the devices could train; take such as 'fedavg' or 'fedyogi'"
        require(isinstance(inner, Rule) and is_cohort(inner), "algorithm", base, fix)
        cloud = algorithms.make(kind, local, rounds, inner={"kind": base, **own}, **settings)
    else:
        cloud = algorithms.make(base, local, rounds, **own)
    made = {name: fit_tier(name, kinds, layers[name], local).make() for name in names if name in TIERS}
    return put_below(cloud, made.get("edges"), made.get("users")) if made else cloud


def put_below(cloud: Rule, edge: Rule | None, people: Users | None) -> Layered:
    """A rule at the cloud with these below it; whoever is right above users oversees them."""
    if people is None:
        return Layered(cloud, () if edge is None else (("edge", edge),))
    if edge is None:
        return Layered(people.oversee(cloud), (("user", people.hub),))
    return Layered(cloud, (("edge", people.oversee(edge)), ("user", people.hub)))


def fit_tier(name: str, kinds: Collection[str], own: Table, local: Train = Train()) -> Call:
    """What makes a tier, by its table; `kinds`: the base rule, and who groups.

    Users below groups aren't capped, unless that is said: groups are told apart by members' changes, and that
    of a few batches tells little.
    """
    defaults = {"cap": False} if name == "users" and not {*kinds}.isdisjoint(COHORTS) else {}
    if (term := find_terms(kinds).get(name)) is not None:
        key, value, why = term
        if own.get(key, value) != value:
            fix = f"{' and '.join(sorted(kinds))} take {name} with {show_term(key, value)} alone: {why}"
            raise ConfigError(f"layer.{name}.{key} = {show_short(own[key])}: {fix}")
        defaults[key] = value
    return fit(TIERS[name], own, f"layer.{name}", Terms(local), defaults)


def find_prior(names: Collection[str], given: Mapping[str, Table]) -> ServedForm | None:
    """The form of the priors that what is served has beside; None: it has none."""
    if PRIOR not in names:
        return None
    form: ServedForm = fit(between.prior, given.get(PRIOR, {}), f"layer.{PRIOR}", Terms()).make()
    return form


def complete_layers(
    base: str, names: Sequence[str], given: Mapping[str, Table]
) -> dict[str, dict[str, Json]]:
    """The tables of a base rule's layers to the last default."""
    found: dict[str, dict[str, Json]] = {}
    for name in sort_layers(names):
        own = given.get(name, {})
        if name in TIERS:
            found[name] = list_settings(fit_tier(name, _list_kinds(base, names, given), own))
        elif name == PRIOR:
            found[name] = list_settings(fit(between.prior, own, f"layer.{name}", Terms()))
        elif name == "cohorts":
            kind, settings = _read_kind(own)
            table = algorithms.complete(kind, **settings)
            named: dict[str, Json] = {"kind": kind}
            found[name] = named | {k: v for k, v in table.items() if k != "inner"}
        else:
            table = algorithms.complete(SIZES, **own)
            found[name] = {k: v for k, v in table.items() if k in own or k not in SHARED}
    return found


def complete_base(base: str, names: Sequence[str], rounds: int | None, given: Table) -> dict[str, Json]:
    """The base rule's own table to the last default."""
    table = algorithms.complete(base, rounds, **given)
    return {k: v for k, v in table.items() if k in SHARED} if "sizes" in names else table


def _list_kinds(base: str, names: Collection[str], given: Mapping[str, Table]) -> set[str]:
    """The base rule, and who groups members around it."""
    return {base, _read_kind(given.get("cohorts", {}))[0]} if "cohorts" in names else {base}


def _read_kind(table: Table) -> tuple[str, dict[str, Any]]:
    """Who groups, and its own parameters."""
    kind = table.get("kind", COHORTS[0])
    require(kind in COHORTS, "layer.cohorts.kind", kind, f"must be one of {', '.join(COHORTS)}")
    fix = "is the algorithm itself; write algorithm = '...' and [algorithms.NAME]"
    require("inner" not in table, "layer.cohorts.inner", table.get("inner"), fix)
    return str(kind), {key: value for key, value in table.items() if key != "kind"}


def _take_over(base: str, own: dict[str, Any]) -> dict[str, Any]:
    """What models of several widths are trained by, of the base rule's table."""
    for key, value in own.items():
        if key not in SHARED:
            raise ConfigError(
                f"algorithms.{base}.{key} = {value!r}: sizes average in a way of their own; leave it out"
            )
    return own
