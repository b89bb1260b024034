"""FedEdge (Wang, He, Chen, Jin, Yang 2023, FedEdge: Accelerating Edge-Assisted Federated Learning).

Edges don't idle while the cloud averages and its model travels: they hold rounds with their devices, as many
as fit. When the global model comes, an edge finishes its round, mixes the two models half and half, answers
and goes on. Updates that stand out among an edge's are left out (Adaptive-Krum).

The paper's text was not at hand: the rules are those that Maverick's paper tells of it. As in its pseudocode
the mixed model is what the cloud is sent (so that global models are damped); `upload_before_mix` sends the
edge's own, as its text says. The cloud gives each edge one vote. A local round is one training of the edge's
devices; `local_rounds` counts all of them between two answers, the first one too. At least one is held, so an
edge without anybody online keeps the cloud waiting; the others rest after 1,000 rounds without a word. The
first answer has nothing to be mixed with. What Adaptive-Krum does is Potluck's own reading. Devices are
weighted by samples within their edge.

`inner` is what edges train by: fedprox, moon or fedpvr within FedEdge are that paper's baselines. Their
devices are drawn to the global model (`anchor`), as it says, which they are then sent as well; with "edge" it
is the edge's, which training begins with. Control variates of fedpvr are each edge's own, and stay there.
Views: as in hierfl.
"""

from dataclasses import replace
from typing import Any, Final, Literal

from potluck.aggregate.edges import EVERYBODY, Edge, Edged, EvenCloud, OwnModels
from potluck.aggregate.guarded import Guarded
from potluck.aggregate.robust import AdaptiveKrum, Robust
from potluck.algorithms.fedavg import FedAvg
from potluck.contracts import Cohort
from potluck.errors import require
from potluck.jobs import Anchored, Moon, Prox, Train

FIDELITY: Final = "paper of Maverick"


def fededge(
    local: Train = Train(),
    inner: Cohort[Any] | None = None,  # what edges train by, its `clients` aside; left out: fedavg
    local_rounds: int | tuple[int, ...] | None = None,  # of all edges, or of each; left out: as many as fit
    clients: int | None = None,  # devices of an edge a round; left out: all
    robust: Robust | None = AdaptiveKrum(),  # which updates an edge leaves out; attackers = 0: none
    upload_before_mix: bool = False,  # the cloud is sent the edge's own model, not the mixed one
    anchor: Literal["global", "edge"] = "global",  # the model that fedprox and moon draw devices to
) -> Edged:
    """Edges that go on training between the cloud's models."""
    rule: Any = FedAvg(local=local) if inner is None else inner
    fits = hasattr(rule, "adopt") and hasattr(rule, "resized")
    fix = "can't train for an edge; take a rule in rounds with one model, such as 'fedprox'"
    require(fits, "inner", type(rule).__name__, fix)
    model = getattr(getattr(rule, "local", None), "model", local.model)
    fix = f"the cloud has {local.model.name!r}: give `local` and the inner rule the same model"
    require(model == local.model, "inner.local.model", model, fix)
    require(anchor in ("global", "edge"), "anchor", anchor, "must be 'global' or 'edge'")
    rule = rule.resized(EVERYBODY if clients is None else clients, 1.0)
    drawn = anchored(rule) if anchor == "global" else rule
    judged = drawn if robust is None else Guarded(drawn, robust)
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
