"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Literal

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.device import Anchored
from potluck.authoring import Cohort, Rule, Train, require
from potluck.rules.edges import EVERYBODY, Edge, EdgeTiers, EdgeView, EvenCloud, Mix, OwnModels
from potluck.rules.guard import RobustRule
from potluck.rules.robust import Robust
from potluck.rules.wrap import AroundRule, find_model, is_cohort, is_inner


def fededge(
    local: Train = Train(),
    inner: Annotated[Cohort | None, "what edges train by, its `clients` aside; left out: fedavg"] = None,
    local_rounds: Annotated[
        int | tuple[int, ...] | None, "of all edges, or of each; left out: as many as fit"
    ] = None,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    robust: Annotated[Robust | None, "which updates an edge leaves out; left out: none"] = None,
    mix: Annotated[
        Mix,
        "carry: the global model plus all that the edge learnt since its last answer; half: half and half",
    ] = "carry",
    upload_before_mix: Annotated[
        bool, "half: the cloud is sent the edge's own model, not the mixed one"
    ] = False,
    edge_view: Annotated[
        EdgeView, "what the view `edge` is: the edge's model before mixing, or after"
    ] = "own",
    anchor: Annotated[
        Literal["global", "edge"], "the model that fedprox and moon draw devices to"
    ] = "global",
) -> EdgeTiers:
    """Edges that go on training between the cloud's models."""
    rule: Cohort = FedAvg(local=local) if inner is None else inner
    fix = "can't train for an edge; take a rule in rounds with one model, such as 'fedprox'"
    require(is_inner(rule) and is_cohort(rule), "inner", type(rule).__name__, fix)
    model = find_model(rule) or local.model
    fix = f"the cloud has {local.model.name!r}: give `local` and the inner rule the same model"
    require(model == local.model, "inner.local.model", model, fix)
    require(anchor in ("global", "edge"), "anchor", anchor, "must be 'global' or 'edge'")
    rule = rule.resize(EVERYBODY if clients is None else clients, 1.0)
    trains = anchor_to_global(rule) if anchor == "global" else rule
    judged = trains if robust is None else RobustRule(trains, robust)
    assert is_inner(judged)
    edge = Edge(judged, local_rounds, mix, upload_before_mix, edge_view, shows=trains is not rule)
    return EdgeTiers(EvenCloud(FedAvg(EVERYBODY, local), local_rounds), OwnModels(edge))


def anchor_to_global(rule: Rule) -> Rule:
    """The same rule, whose devices are drawn to the global model if they are drawn to any."""
    if isinstance(rule, AroundRule):
        inner = anchor_to_global(rule.inner)
        return rule if inner is rule.inner else replace(rule, inner=inner)
    if isinstance(rule, FedAvg) and rule.local.objective.pulls:
        return replace(rule, local=replace(rule.local, objective=Anchored(rule.local.objective)))
    return rule
