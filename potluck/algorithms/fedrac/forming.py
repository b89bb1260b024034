"""How Fed-RAC forms tiers: clusters of devices, a model and a time for each, everybody's place in them."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, isfinite, log

import numpy as np

from potluck.algorithms.fedrac.admission import GROWTH, Bound, Surrogate, grow_threshold
from potluck.algorithms.fedrac.assignment import (
    Assignment,
    Judge,
    Need,
    Place,
    Terms,
    allow_by_score,
    assign,
)
from potluck.algorithms.fedrac.budgets import estimate_time, share_time
from potluck.algorithms.fedrac.clustering.methods import cluster, find_clusters, merge_small
from potluck.algorithms.fedrac.clustering.resources import Floats, Ints, Resources, weigh_resources
from potluck.algorithms.fedrac.costs import Costs, estimate_costs
from potluck.algorithms.fedrac.distillation import find_teachers
from potluck.algorithms.fedrac.notes import CONSTANT_RESOURCES, LATE_AT_BEST, LEFT_OUT, TIERS
from potluck.algorithms.fedrac.settings import ENDLESS, Clustering, FedRACSettings
from potluck.algorithms.fedrac.sizing import (
    find_models,
    find_unable,
    measure_bytes,
    read_scale,
    refuse_unable,
)
from potluck.algorithms.fedrac.state import (
    Tiers,
    close_tiers,
    find_nearest_clusters,
    note_place,
    place_devices,
)
from potluck.authoring import Command, Context, ModelSpec, Nets, Node, Note, require
from potluck.rules.nested import cut_model

LEAST = 4  # participants: with fewer there are no two clusters to choose from


def leave_out(s: FedRACSettings, ctx: Context) -> frozenset[Node]:
    """Those, there or not, that can't hold even the smallest model: refused, unless that is allowed."""
    memory = _read_memory(ctx)
    lacking = find_unable(s, memory, ctx.models)
    if not s.sizes.leave_out:
        refuse_unable(lacking, memory)
    fix = "too few are left without them; choose a smaller model or batch"
    enough = len(memory) - len(lacking) >= LEAST
    require(enough or not lacking, "sizes.leave_out", s.sizes.leave_out, fix)
    return frozenset(lacking)


def build_tiers(s: FedRACSettings, m: Tiers, ctx: Context) -> tuple[Tiers, list[Command]]:
    """The tiers of everybody who is known."""
    why = "too little memory for the smallest model"
    notes: list[Command] = [Note(LEFT_OUT, why, n) for n in sorted(m.left_out)]
    nodes = sorted(m.known)
    resources = _weigh_devices(s, m, nodes)
    if resources.constant:
        notes.append(Note(CONSTANT_RESOURCES, list(resources.constant)))
    labels, index = cluster_devices(s.clustering, resources)
    specs = _find_specs(s, m, dict(zip(nodes, labels.tolist(), strict=True)), ctx)
    m = _begin(s, m, specs, labels, nodes, ctx)
    total = s.time.mar
    if total is None:
        costs, epochs = _find_costs(s, m, nodes, resources.scores, ctx.models), s.list_epochs(len(specs))
        homes = _find_homes(s, m, costs, labels, ctx) if s.admission.judge == "able" else labels
        how = s.time.kappa, s.schedule.chained, s.at_once, s.at_once and s.admission.judge == "able"
        total = estimate_time(costs, homes, epochs, m.rounds, *how)
    times = share_time(total, len(specs), s.time.kappa, s.schedule.chained, s.at_once)
    m = replace(m, seconds=tuple(float(t) / r for t, r in zip(times, m.rounds, strict=True)))
    places = find_places(s, m, ctx)
    m = place_devices(m, places)
    found = {k: reached if isfinite(reached) else "infinite" for k, reached in index.items()}
    summary = {"index": found, "clusters": np.bincount(labels).tolist(), "members": list(m.sizes),
            "scales": [read_scale(spec, s.sizes.by) for spec in specs],
            "bytes": [ctx.models[spec].nbytes for spec in specs],
            "mar": None if ENDLESS in m.rounds else total, "seconds": list(m.seconds),
            "rounds": [None if rounds == ENDLESS else rounds for rounds in m.rounds]}  # fmt: skip
    late = [n for n, place in places.items() if place.late]
    notes += [Note(TIERS, summary), *(note_place(n, place, "resources") for n, place in places.items())]
    return m, [*notes, *([Note(LATE_AT_BEST, late)] if late else [])]


def cluster_devices(how: Clustering, resources: Resources, seed: int = 0) -> tuple[Ints, dict[int, float]]:
    """Each participant's cluster, the richest first, and the Dunn indices of the numbers that were tried."""
    alone = np.zeros(len(resources.scores), np.int64)
    if not resources.points.any():  # nothing that has a weight tells them apart
        return alone, {}
    index: dict[int, float] = {}
    k = how.k
    if k is None:
        found = find_clusters(resources, how.method, seed)
        index, k = found.index, max(2, found.count - how.fewer)
    if k == 1:
        return alone, index
    return merge_small(cluster(resources, k, how.method, seed).labels, how.smallest), index


def find_places(s: FedRACSettings, m: Tiers, ctx: Context) -> dict[Node, Place]:
    """Everybody's place, by what is known of them now."""
    nodes = sorted(m.known)
    scores = _weigh_devices(s, m, nodes).scores
    clusters = find_nearest_clusters(m, nodes, scores)
    labels = np.array([clusters[n] for n in nodes])
    allowed = allow_by_score(scores, labels) if s.admission.judge == "surrogate" else None
    work, open_tiers = weigh_work(s, m, nodes, ctx), close_tiers(m, nodes, allowed)
    found = assign(*work, _make_judge(s, m, nodes, ctx), open_tiers)
    if s.admission.judge == "bound" and not m.places:
        _refuse_closed(found, assign(*work, None, open_tiers), len(m.specs))
    if not s.sizes.leave_out:
        refuse_unable([nodes[i] for i in found.unable], _read_memory(ctx))
    return {nodes[place.who]: place for place in found.places}


def weigh_work(s: FedRACSettings, m: Tiers, nodes: Sequence[Node], ctx: Context) -> tuple[Costs, Terms, Need]:
    """What tiers' models cost these devices, what tiers ask, and the bytes that training takes."""
    able = s.admission.judge == "able"
    scores = _weigh_devices(s, m, nodes).scores
    epochs, seconds = s.list_epochs(len(m.specs)), np.array(m.seconds)
    terms = Terms(seconds, epochs, s.local.batch, s.time.least_rows, whole=able, reserve=able and s.at_once)
    return _find_costs(s, m, nodes, scores, ctx.models), terms, _make_need(s, m, ctx)


def find_richest(s: FedRACSettings, m: Tiers, nodes: Sequence[Node], share: float) -> list[Node]:
    """This share of some devices, rounded up, by what is known of everybody now."""
    everybody = sorted(m.known)
    scores = dict(zip(everybody, _weigh_devices(s, m, everybody).scores.tolist(), strict=True))
    return sorted(sorted(nodes, key=lambda n: -scores[n])[: ceil(share * len(nodes))])


def _weigh_devices(s: FedRACSettings, m: Tiers, nodes: Sequence[Node]) -> Resources:
    return weigh_resources(np.array([m.known[n].vector for n in nodes]), s.clustering.weights)


def _find_costs(s: FedRACSettings, m: Tiers, nodes: Sequence[Node], scores: Floats, models: Nets) -> Costs:
    devices, teachers = [m.known[n] for n in nodes], find_teachers(s, m.specs)
    return estimate_costs(devices, scores, models, m.specs, m.rounds, teachers, s.distillation.hint > 0)


def _make_need(s: FedRACSettings, m: Tiers, ctx: Context) -> Need:
    return lambda tier, batch: measure_bytes(ctx.models, m.specs[tier], s.local, batch)


def _find_homes(s: FedRACSettings, m: Tiers, costs: Costs, labels: Ints, ctx: Context) -> Ints:
    """The tier of each cluster, or the next poorer one whose model a device can hold."""
    needs = np.array([_make_need(s, m, ctx)(tier, s.local.batch) for tier in range(len(m.specs))])
    holds = needs <= costs.memory[:, None]
    holds[:, -1] = True
    homes: Ints = np.maximum(labels, holds.argmax(1))
    return homes


def _refuse_closed(found: Assignment, able: Assignment, tiers: int) -> None:
    """Refuse bounds that leave a tier to one device although more could train there.

    One alone is consistent whatever the constants are, so bounds that can't hold look like tiers of one.
    """
    for tier in range(tiers - 1):
        admitted, could = len(found.members(tier)), len(able.members(tier))
        fix = (
            f"its bounds admit {admitted} to tier {tier}, where {could} could train: give [landscape] the "
            "constants of your losses, more admission.theta or admission.delta, or take judge = 'able'"
        )
        require(admitted > 1 or could <= 1, "algorithms.fedrac.admission.judge", "bound", fix)


def _find_specs(
    s: FedRACSettings, m: Tiers, clusters: dict[Node, int], ctx: Context
) -> tuple[ModelSpec, ...]:
    """The tiers' models."""
    memory = {n: there for n, there in _read_memory(ctx).items() if n not in m.left_out}
    last = max(clusters.values())  # its model is for those who come later, too
    labels = np.array([clusters.get(n, last) for n in memory])
    return find_models(s, np.array(list(memory.values())), labels, ctx.models)


def _begin(
    s: FedRACSettings, m: Tiers, specs: tuple[ModelSpec, ...], labels: Ints, nodes: list[Node], ctx: Context
) -> Tiers:
    """Models before training, and how many rounds each has."""
    big, whole = ctx.models[specs[0]], ctx.models[specs[0]].init(ctx.key)
    nets = [ctx.models[spec] for spec in specs]
    # Layers can be averaged across tiers only if their channels mean the same: parts of one model then.
    params = [cut_model(whole, big, net) if s.mixing.nested else net.init(ctx.key) for net in nets]
    clusters = dict(zip(nodes, labels.tolist(), strict=True))
    none = (0,) * len(specs)
    return replace(m, specs=specs, params=tuple(params), rounds=tuple(s.list_rounds(len(specs))), done=none,
                   sizes=none, clusters=clusters, at_once=s.at_once)  # fmt: skip


def _make_judge(s: FedRACSettings, m: Tiers, nodes: Sequence[Node], ctx: Context) -> Judge:
    tiers = len(m.specs)
    delta, theta = grow_threshold(tiers, s.admission.delta), grow_threshold(tiers, s.admission.theta, GROWTH)
    if s.admission.judge == "bound":
        return Bound(s.landscape, np.array(m.rounds, np.float64), s.local.optim.lr, delta, theta)
    guess = log(max(2, ctx.models[m.specs[0]].classes))  # the loss of a guess
    return Surrogate(np.array([m.losses.get(n, np.nan) for n in nodes]) / guess, delta, theta)


def _read_memory(ctx: Context) -> dict[Node, float]:
    """Bytes that everybody says to have, whether there or not."""
    nodes = [int(n) for n in ctx.children]
    return dict(zip(nodes, ctx.profiles(nodes).memory.tolist(), strict=True))
