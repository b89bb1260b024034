"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, TypeVar

import numpy as np

from potluck.algorithms.share.topology import find_shape, traffic
from potluck.authoring import (
    Average,
    Command,
    Context,
    FederationFacts,
    Few,
    Got,
    LabelCounts,
    Node,
    Note,
    Params,
    Seconds,
    Task,
    Train,
    Until,
    add,
    require,
    scale,
    sub,
    use_model,
    value,
)
from potluck.rules.edges import EVERYBODY

CENSUS = "census"
MOST = 5_000  # devices
T = TypeVar("T")


@value(eq=False)
class ShareState:
    """The cloud's model and those of its edges, and who belongs to each."""

    params: Params
    counts: dict[Node, tuple[int, ...]] = field(default_factory=dict)  # labels of devices
    unable: frozenset[Node] = frozenset()  # those that refused
    edges: tuple[tuple[Node, ...], ...] = ()  # their devices
    models: tuple[Params, ...] = ()  # of the edges
    done: tuple[int, ...] = ()  # rounds of the edges since the cloud's last
    rows: tuple[float, ...] = ()  # samples behind these
    asked: bool = False  # whether new devices were asked since the cloud's last round
    round: int = 0  # of the cloud


@value
class Share:
    """FedAvg of edges that do FedAvg, with edges shaped so that each sees labels like everybody's."""

    local: Train = Train()
    edges: Annotated[Few, "at most"] = 4
    edge_rounds: Annotated[int, "of every edge, for one of the cloud"] = 10
    nearness: Annotated[float, "how much traffic below edges counts beside that with the cloud; kappa_e"] = (
        1.0
    )
    gamma: Annotated[float, "how much divergence counts beside traffic; 0: not at all"] = 100.0
    capacity: Annotated[
        int | None, "devices that an edge takes; left out: as many as all need, shared alike"
    ] = None
    clients: Annotated[int | None, "devices of an edge a round; left out: all"] = None
    deadline: Annotated[Seconds | None, "seconds that an edge waits for its devices"] = None

    def __post_init__(self) -> None:
        for name in ("edges", "edge_rounds", "capacity", "clients"):
            number = getattr(self, name)
            require(number is None or number >= 1, name, number, "must be at least 1")
        for name in ("nearness", "gamma"):
            factor = getattr(self, name)
            require(0 <= factor < float("inf"), name, factor, "must be 0 or more; 0 leaves it out")
        fix = "covers updates alone, but devices also tell their labels; leave it out"
        require(self.local.privacy is None, "train.privacy", self.local.privacy, fix)

    def fits(self, federation: FederationFacts) -> None:
        fix = f"share looks at all pairs of devices, so {MOST:,} are the most; use hierfl"
        require(federation.devices <= MOST, "data.clients", federation.devices, fix)

    def start(self, ctx: Context) -> ShareState:
        return ShareState(ctx.models[self.local.model].init(ctx.key))

    def lanes(self, m: ShareState, ctx: Context) -> tuple[str | int, ...]:
        if not ctx.working:
            return ()
        if not m.edges or (not m.asked and self._find_strangers(m, ctx)):
            return (CENSUS,)
        return tuple(j for j, done in enumerate(m.done) if done < self.edge_rounds)

    def plan(self, m: ShareState, lane: str | int, ctx: Context) -> tuple[ShareState, list[Command]]:
        if isinstance(lane, str):
            nodes, ask = self._find_strangers(m, ctx), LabelCounts(ctx.models[self.local.model].classes)
            asked = ctx.only(nodes).sample(len(nodes))
            return m, [Until(self.deadline), *(Task(node, ask, {}) for node in asked)]
        few = EVERYBODY if self.clients is None else self.clients
        nodes, send = ctx.only(m.edges[lane]).sample(few), {"params": m.models[lane]}
        tasks = [Task(node, self.local, send) for node in nodes]
        return replace(m, asked=True), [Until(self.deadline), *tasks]

    def merge(
        self, m: ShareState, lane: str | int, got: Got, ctx: Context
    ) -> tuple[ShareState, list[Command]]:
        if isinstance(lane, str):
            counts = {r.task.to: tuple(r.body["counts"].tolist()) for r in got.replies}
            m = replace(m, counts=m.counts | counts, asked=True)
            return self._shape_edges(m, ctx) if counts else (m, [])
        refused = {task.to for task in got.find_lost("refused")}
        rows = m.rows[lane] + sum(r.weight for r in got.replies)
        m = replace(
            m,
            models=_put_at(m.models, lane, Average().step(m.models[lane], None, got.replies)[0]),
            done=_put_at(m.done, lane, m.done[lane] + 1),
            rows=_put_at(m.rows, lane, rows),
            unable=m.unable | refused,
        )
        return (m, []) if min(m.done) < self.edge_rounds else self._average(m, ctx)

    def serve(self, m: ShareState, node: Node, ctx: Context) -> dict[str, Task]:
        whole = Task(node, use_model(self.local.model), {"params": m.params})
        mine = next((j for j, nodes in enumerate(m.edges) if node in nodes), None)
        if node == ctx.me:
            return {"global": whole}
        edge = whole if mine is None else replace(whole, send={"params": m.models[mine]})
        return {"edge": edge, "global": whole}

    # ------------------------------------------------------------------------------------------------- parts

    def _find_strangers(self, m: ShareState, ctx: Context) -> list[Node]:
        """Devices that are there and whose labels aren't known."""
        return ctx.ready([int(n) for n in ctx.children if n not in m.counts and n not in m.unable])

    def _shape_edges(self, m: ShareState, ctx: Context) -> tuple[ShareState, list[Command]]:
        """With edges for all who are known; all begin with the cloud's model."""
        nodes = sorted(n for n in m.counts if n not in m.unable)
        if not nodes:
            return replace(m, edges=(), models=(), done=(), rows=()), []
        if self.capacity is not None:
            fix = f"{self.edges} edges can't take {len(nodes)} devices: raise it, or `edges`, or leave it out"
            require(self.edges * self.capacity >= len(nodes), "capacity", self.capacity, fix)
        near, far = traffic(ctx.profiles(nodes), ctx.models[self.local.model].nbytes)
        counts = np.array([m.counts[n] for n in nodes], float)
        shape = find_shape(counts, near, far, self.edges, self.gamma, self.nearness, self.capacity)
        edges = tuple(
            tuple(n for n, host in zip(nodes, shape.edge, strict=True) if host == h) for h in shape.hosts
        )
        facts = {
            "hosts": [nodes[h] for h in shape.hosts],
            "sizes": [len(members) for members in edges],
            "traffic": shape.traffic,
            "divergence": shape.divergence,
        }
        k = len(edges)
        m = replace(m, edges=edges, models=(m.params,) * k, done=(0,) * k, rows=(0.0,) * k)
        return m, [Note("shape", facts)]

    def _average(self, m: ShareState, ctx: Context) -> tuple[ShareState, list[Command]]:
        """The cloud's round: the edges' models by samples."""
        params, total = m.params, sum(m.rows)
        for model, rows in zip(m.models, m.rows, strict=True):
            if rows > 0:
                params = add(params, scale(sub(model, m.params), rows / total))
        k = len(m.edges)
        m = replace(m, params=params, asked=False, round=m.round + 1)
        m = replace(m, models=(params,) * k, done=(0,) * k, rows=(0.0,) * k)
        gone = any(node in m.unable for nodes in m.edges for node in nodes)
        return self._shape_edges(m, ctx) if gone else (m, [])


def _put_at(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])
