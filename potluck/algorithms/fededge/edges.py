"""Edges as a layer: what each does, and what the cloud above them knows of them."""

from dataclasses import replace
from typing import Literal, Protocol, TypeAlias

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.fededge.device import Anchored
from potluck.authoring import Cohort, Rule, Select, Train, Uniform, require, value
from potluck.core.rule import Inner
from potluck.rules.edges import EVERYBODY, Edge, EdgeView, EvenCloud, Learns, Mix, OwnModels
from potluck.rules.guard import guard_rule
from potluck.rules.layered import Layered
from potluck.rules.relay import Relay
from potluck.rules.robust import Robust
from potluck.rules.wrap import find_model, is_cohort, is_inner

To: TypeAlias = Literal["global", "edge"]


class Contrasts(Learns, Protocol):
    """What devices learn by what their edge has judged odd."""

    def put_around(self, rule: Inner, robust: Robust | None) -> Inner: ...


@value
class Anchor:
    """Who is drawn to the model that was sent is drawn to the cloud's instead."""

    def take(self, job: Train) -> Train:
        return replace(job, objective=Anchored(job.objective)) if job.objective.pulls else job

    def shows(self, job: Train) -> bool:
        return isinstance(job.objective, Anchored)


@value
class Edges:
    """What stands at each edge."""

    edge: Rule
    local_rounds: int | tuple[int, ...] | None = None
    even: bool = False  # each has one vote at the cloud

    def oversee(self, cloud: Rule) -> Rule:
        """A rule whose members are edges."""
        return EvenCloud(cloud, self.local_rounds) if self.even else cloud

    def put_below(self, cloud: Rule) -> Layered:
        """Edges and nobody else between devices and cloud."""
        return Layered(self.oversee(cloud), (("edge", self.edge),))


def make_going_on(
    local: Train,
    clients: int | None = None,
    deadline: float | None = None,
    select: Select = Uniform(),
    local_rounds: int | tuple[int, ...] | None = None,
    inner: Cohort | None = None,
    robust: Robust | None = None,
    mix: Mix = "carry",
    upload_before_mix: bool = False,
    edge_view: EdgeView = "own",
    anchor: To = "edge",
    contrast: Contrasts | None = None,
) -> Edges:
    """Edges that train between the cloud's models: as the cloud asks, or by a rule of their own (`inner`)."""
    fix = "can't train for an edge; take a rule in rounds with one model, such as 'fedprox'"
    good = inner is None or (is_inner(inner) and is_cohort(inner))
    require(good, "inner", type(inner).__name__, fix)
    model = local.model if inner is None else find_model(inner) or local.model
    fix = f"the cloud has {local.model.name!r}: give `local` and the inner rule the same model"
    require(model == local.model, "inner.local.model", model, fix)
    for key, given, usual in (("select", select, Uniform()), ("deadline", deadline, None)):
        require(inner is None or given == usual, key, given, f"is of the rule inside; write inner.{key}")
    require(anchor in ("global", "edge"), "anchor", anchor, "must be 'global' or 'edge'")
    many = EVERYBODY if clients is None else clients
    trains = FedAvg(many, local, select, deadline=deadline) if inner is None else inner.resize(many, 1.0)
    assert is_inner(trains)
    learns: Learns | None = Anchor() if anchor == "global" else None
    judged = trains if robust is None else guard_rule(trains, robust)
    if contrast is not None:
        judged, learns = contrast.put_around(trains, robust), contrast
    edge = Edge(judged, local_rounds, mix, upload_before_mix, edge_view, learns, passes=inner is None)
    return Edges(OwnModels(edge), local_rounds, even=True)


def make_passing(
    local: Train,
    clients: int | None = None,
    deadline: float | None = None,
    select: Select = Uniform(),
    rounds: int = 1,
    own: bool = False,
) -> Edges:
    """Edges that wait for the cloud and answer by rows; `own`: devices use models of their own or edges'."""
    relay = Relay(clients, deadline, select, rounds, local.model if own else None)
    return Edges(OwnModels(relay) if own else relay)
