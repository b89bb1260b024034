"""A base rule with its layers, made by name: what an experiment's `layers` and `[layer.NAME]` ask for."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from potluck import algorithms
from potluck.algorithms._modes import fit_algorithm
from potluck.algorithms._parameters import Call, Terms, check_rule, fit
from potluck.algorithms._written import list_settings
from potluck.algorithms.fededge.edges import Edges
from potluck.algorithms.shufflefl.users import Users
from potluck.core.codec import Json
from potluck.core.errors import ConfigError, require, show_short
from potluck.core.rule import Rule, Runnable
from potluck.jobs import Train
from potluck.layers import between
from potluck.layers.matrix import FITTED, SERVES, find_terms, require_offered, show_term, sort_layers
from potluck.layers.presets import (
    BASE,
    COHORTS,
    EDGES,
    SHARED,
    SIZE_KINDS,
    Table,
    find_inner,
    listen_longer,
    open_preset,
    read_edges,
    settle,
    take_over,
)
from potluck.rules.edges import OwnModels
from potluck.rules.layered import Layered
from potluck.rules.serving import Served, Serves, Tuned, Weighed
from potluck.rules.wrap import is_cohort

NOTHING: Table = {}
TIERS: Mapping[str, Callable[..., Any]] = {"edges": between.edges, "users": between.users}
USES: Mapping[str, Callable[..., Any]] = {
    "tuned": between.tuned,
    "switch": between.switch,
    "prior": between.prior,
}


def stacked(
    base: str,
    local: Train = Train(),
    parameters: Table | None = None,
    rounds: int | None = None,
    **layers: Table,
) -> Runnable:
    """A base rule with layers, such as `stacked("fedyogi", users={}, cohorts={"kind": "auxo"})`.

    `base`: the algorithm's name. `local`: how devices train. `parameters`: the base rule's, as in
    [algorithms.NAME]. `rounds`: of the run, for rules that ask. `layers`: the settings of each, as in
    [layer.NAME].
    Not with what is fitted where models are scored: any rule may be, so it is an experiment that names it.
    """
    base, names = algorithms.canonical(base), sort_layers([*layers])
    for name, table in layers.items():
        fix = "should be a table of its settings; write {} for none"
        require(isinstance(table, Mapping), f"layer.{name}", table, fix)
    for name in FITTED:
        fix = f"{name} is of whatever a run serves, not of its rule; write Experiment(layers=[{name!r}], ...)"
        require(name not in layers, "layers", [*layers], fix)
    require_offered(base, names)
    for inner in find_inner(base, parameters or {}):
        require_offered(inner, [name for name in names if name in (*TIERS, *SERVES)], names)
    serves = [name for name in names if name in SERVES]
    around = {name: table for name, table in layers.items() if name not in SERVES}
    made = _make_trained(base, local, dict(parameters or {}), rounds, around, serves)
    for name in serves:
        made = serve_by(made, make_serving(name, layers[name], local))
    return made


def _make_trained(
    base: str,
    local: Train,
    parameters: dict[str, Any],
    rounds: int | None,
    layers: Mapping[str, Table],
    serves: Sequence[str],
) -> Runnable:
    """A base rule with the layers that train."""
    base, own, layers = open_preset(base, rounds, parameters, layers)
    names, kinds = sort_layers([*layers]), _list_rules(base, layers, own)
    if "sizes" in names:
        kind, settings = _read_kind("sizes", layers)
        algorithms.check(base, **own)  # under its own name: what sizes take of it is told of as theirs
        own = take_over(base, kind, own) | settings
        base, cloud = kind, _make_kind("sizes", kind, own, local, rounds)
        require_offered(base, serves)
    else:
        cloud = algorithms.make(base, local, rounds, **own)
    if "cohorts" in names:
        kind, settings = _read_kind("cohorts", layers)
        settings = listen_longer(kind, {base}, layers, settings)
        fix = "finds groups by whole changes, and sizes have parts; write 'auxo', or leave sizes out"
        require("sizes" not in names or kind == COHORTS[0], "layer.cohorts.kind", kind, fix)
        fix = "has no one model that a part of the devices could train; take such as 'fedavg' or 'fedyogi'"
        key = "layer.sizes.kind" if "sizes" in names else "algorithm"
        require(isinstance(cloud, Rule) and is_cohort(cloud), key, base, fix)
        cloud = _make_kind("cohorts", kind, {"inner": {"kind": base, **own}, **settings}, local, rounds)
    made = {name: fit_tier(name, kinds, layers[name], local).make() for name in names if name in TIERS}
    edges: Edges | None = made.get("edges")
    keeps, key = edges and isinstance(edges.edge, OwnModels), "go_on" if edges and edges.even else "own"
    fix = f"devices use models that they keep, tuned already; set {key} = false, or leave out "
    require(not (serves and keeps), f"layer.edges.{key}", True, fix + " and ".join(serves))
    return put_below(cloud, made.get("edges"), made.get("users")) if made else cloud


def serve_by(made: Runnable, by: Serves) -> Runnable:
    """The same whose first view is made devices' own; whoever is below the cloud passes on its word."""
    assert isinstance(by, Tuned), "what is fitted where models are scored is no part of a rule"
    if isinstance(made, Layered):
        return replace(made, cloud=Served(made.cloud, by))
    assert isinstance(made, Rule), "others aren't offered"
    return Served(made, by)


def put_below(cloud: Rule, edges: Edges | None, people: Users | None) -> Layered:
    """A rule at the cloud with these below it; whoever is right above users or edges oversees them."""
    if edges is None:
        assert people is not None
        return Layered(people.oversee(cloud), (("user", people.hub),))
    if people is None:
        return edges.put_below(cloud)
    return Layered(edges.oversee(cloud), (("edge", people.oversee(edges.edge)), ("user", people.hub)))


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


def _list_rules(base: str, layers: Mapping[str, Table], own: Table) -> set[str]:
    """The base rule, who groups members around it, and around whom a base rule that groups them is."""
    groups = {_read_kind("cohorts", layers)[0]} if "cohorts" in layers else set[str]()
    return {base, *find_inner(base, own), *groups}


def make_serving(name: str, table: Table = NOTHING, local: Train = Train()) -> Serves:
    """What a layer makes of the views that are served."""
    made: Serves = fit(USES[name], table, f"layer.{name}", Terms(local)).make()
    return made


def find_weighed(names: Collection[str], given: Mapping[str, Table]) -> Weighed | None:
    """What is fitted where models are scored, for these layers."""
    made = [make_serving(name, given.get(name, {})) for name in names if name in FITTED]
    return next((each for each in made if isinstance(each, Weighed)), None)


def find_source(view: str, views: Sequence[str]) -> tuple[str, str] | None:
    """The layer that serves a view, and the one of all views in their order that it is made of."""
    after = views[views.index(view) + 1 :]  # what is made of views leads
    for name in SERVES:
        if (source := make_serving(name).name_views(after).get(view)) is not None:
            return name, source
    return None


def complete_layers(
    names: Sequence[str], given: Mapping[str, Table], base: str = BASE, own: Table = NOTHING
) -> dict[str, dict[str, Json]]:
    """The tables of layers, around a base rule with a table of its own, to the last default."""
    found: dict[str, dict[str, Json]] = {}
    tables = {name: given.get(name, {}) for name in sort_layers(names)}
    around = {**tables, "edges": read_edges(base, own)} if base in EDGES else tables
    for name, table in tables.items():
        if name in TIERS:
            found[name] = list_settings(fit_tier(name, _list_rules(base, tables, own), table))
        elif name in USES:
            found[name] = list_settings(fit(USES[name], table, f"layer.{name}", Terms()))
        else:
            kind, settings = _read_kind(name, tables)
            settings = listen_longer(kind, {base}, around, settings)
            full = list_settings(fit_algorithm(kind, settings, f"layer.{name}", Terms()))
            named = dict[str, Json](kind=kind)
            beside = ("inner",) if name == "cohorts" else SHARED  # which another table says
            found[name] = named | {k: v for k, v in full.items() if k in settings or k not in beside}
    return found


def complete_base(
    base: str, layers: Mapping[str, Table], rounds: int | None, given: Table
) -> dict[str, Json]:
    """The base rule's own table to the last default."""
    table = algorithms.complete(base, rounds, **settle(base, layers, given))
    if "sizes" not in layers:
        return table
    kept = SIZE_KINDS[_read_kind("sizes", layers)[0]]
    return {k: v for k, v in table.items() if k in kept}


def _make_kind(layer: str, kind: str, table: Table, local: Train, rounds: int | None) -> Any:
    """The algorithm that a layer of several kinds is; errors name the layer's keys."""
    call = fit_algorithm(kind, table, f"layer.{layer}", Terms(local, rounds))
    return algorithms.follow_run(check_rule(kind, call.make()), rounds)


def _read_kind(layer: str, layers: Mapping[str, Table]) -> tuple[str, dict[str, Any]]:
    """Whose way a layer of several kinds goes, and its own parameters."""
    kinds, table = [*COHORTS] if layer == "cohorts" else [*SIZE_KINDS], layers.get(layer, {})
    kind = table.get("kind", kinds[0])
    require(kind in kinds, f"layer.{layer}.kind", kind, f"must be one of {', '.join(kinds)}")
    fix = "is the algorithm itself; write algorithm = '...' and [algorithms.NAME]"
    require("inner" not in table, f"layer.{layer}.inner", table.get("inner"), fix)
    return str(kind), {key: value for key, value in table.items() if key != "kind"}
