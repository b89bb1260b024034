"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.device import Anchored
from potluck.algorithms.moon.device import Moon
from potluck.core.errors import require
from potluck.core.rule import Cohort, Rule
from potluck.jobs import Prox, Train
from potluck.rules.edges import EVERYBODY, Edge, Edged, EvenCloud, OwnModels
from potluck.rules.guard import Guarded
from potluck.rules.robust import AdaptiveKrum, Robust
from potluck.rules.wrap import is_cohort, is_inner, trained_model


def fededge(
    local: Train = Train(),
    inner: Annotated[Cohort | None, "what edges train by, its `clients` aside; left out: fedavg"] = None,
    local_rounds: Annotated[
        int | tuple[int, ...] | None, "of all edges, or of each; left out: as many as fit"
    ] = None,
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None,
    robust: Annotated[
        Robust | None, "which updates an edge leaves out; attackers = 0: none"
    ] = AdaptiveKrum(),
    upload_before_mix: Annotated[bool, "the cloud is sent the edge's own model, not the mixed one"] = False,
    anchor: Annotated[
        Literal["global", "edge"], "the model that fedprox and moon draw devices to"
    ] = "global",
) -> Edged:
    """Edges that go on training between the cloud's models."""
    rule: Cohort = FedAvg(local=local) if inner is None else inner
    fix = "can't train for an edge; take a rule in rounds with one model, such as 'fedprox'"
    require(is_inner(rule) and is_cohort(rule), "inner", type(rule).__name__, fix)
    model = trained_model(rule) or local.model
    fix = f"the cloud has {local.model.name!r}: give `local` and the inner rule the same model"
    require(model == local.model, "inner.local.model", model, fix)
    require(anchor in ("global", "edge"), "anchor", anchor, "must be 'global' or 'edge'")
    rule = rule.resize(EVERYBODY if clients is None else clients, 1.0)
    drawn: Rule = anchored(rule) if anchor == "global" else rule
    judged = drawn if robust is None else Guarded(drawn, robust)
    assert is_inner(judged)
    edge = Edge(judged, local_rounds, upload_before_mix, shows=drawn is not rule)
    return Edged(EvenCloud(FedAvg(EVERYBODY, local), local_rounds), OwnModels(edge))


def anchored(rule: Any) -> Any:
    """The same rule with its devices drawn to the global model, if they are drawn to any."""
    if isinstance(rule, FedAvg):
        job = rule.local
        pulls = isinstance(job.objective, Prox | Moon)
        return replace(rule, local=replace(job, objective=Anchored(job.objective))) if pulls else rule
    inside = getattr(rule, "inner", None)
    changed = inside if inside is None else anchored(inside)
    return rule if changed is inside else replace(rule, inner=changed)
