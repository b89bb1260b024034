"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import field, replace
from typing import Annotated, Literal

import numpy as np

from potluck.algorithms.heterofl.device import InPlace, Narrow
from potluck.algorithms.heterofl.levels import By, Ladder, build_ladder, cap_levels
from potluck.authoring import (
    Command,
    ConfigError,
    Context,
    Factor,
    FederationFacts,
    Got,
    ModelSpec,
    Nets,
    Node,
    Note,
    Params,
    Reply,
    Seconds,
    Task,
    Train,
    Until,
    add,
    require,
    use_model,
    value,
    zeros,
)
from potluck.core import keys
from potluck.models import as_model
from potluck.models.footprint import training_bytes
from potluck.rules.nested import Part, average_owners, cut_model, find_narrow

REACH = 10_000  # devices of a larger crowd whose claims say where levels end
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625)
CLIP = 1.0  # the authors' longest gradient


@value(eq=False)
class Levels:
    """The global model, its parts, and what decides on a device's level."""

    params: Params
    parts: tuple[Params, ...]  # of every level
    ladder: Ladder
    least: dict[Node, int] = field(default_factory=dict)  # of devices that refused: the next level
    noted: bool = False  # how many devices there are on each level
    round: int = 0


@value
class HeteroFL:
    """Averaging of models of several widths, each number over those who have it."""

    clients: Annotated[int, "devices a round"] = 10
    local: Train = Train()
    rates: Annotated[tuple[float, ...], "widths of the levels, as shares of the model's own"] = RATES
    by: Annotated[By, "what decides on a device's level"] = "compute"
    given: Annotated[tuple[int, ...] | None, "or the level of every device, from 0, the widest"] = None
    shares: Annotated[tuple[float, ...] | None, "of the devices that each level gets; left out: alike"] = None
    weigh: Annotated[Literal["clients", "samples"], "one vote each, or by rows"] = "clients"
    scaler: Annotated[bool, "outputs of narrow layers are divided by their rate"] = True
    clip: Annotated[bool, "gradients are at most 1 long, or as long as [train] clip says"] = True
    masked: Annotated[bool, "classes that a device doesn't hold are left out of its loss"] = True
    inplace: Annotated[
        bool, "devices also train the narrower levels' models, which lie in theirs, by what theirs says"
    ] = False
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.0
    deadline: Annotated[Seconds | None, "seconds"] = None

    def __post_init__(self) -> None:
        rates, levels = list(self.rates), len(self.rates)
        falling = levels > 0 and rates[0] == 1 and sorted(set(rates), reverse=True) == rates and rates[-1] > 0
        require(falling, "rates", rates, "must begin with 1, the whole model, and fall: such as [1.0, 0.5]")
        require(self.clients >= 1, "clients", self.clients, "must be at least 1: devices a round")
        require(self.by in ("compute", "memory", "lot"), "by", self.by, "must be compute, memory or lot")
        require(self.weigh in ("clients", "samples"), "weigh", self.weigh, "must be clients or samples")
        require(self.overcommit >= 1, "overcommit", self.overcommit, "must be at least 1")
        if self.given is not None:
            good = all(0 <= level < levels for level in self.given)
            require(good, "given", list(self.given), f"levels are 0 (the widest) to {levels - 1}: see rates")
        if self.shares is not None:
            good = len(self.shares) == levels and min(self.shares) >= 0 and abs(sum(self.shares) - 1) < 1e-6
            require(good, "shares", list(self.shares), f"must be {levels} shares, one a rate, that sum to 1")
        fix = "must be all: the levels' models are averaged whole"
        require(self.local.part == "all", "train.part", self.local.part, fix)
        fix = (
            "covers updates alone, but devices tell which classes they hold; leave it out, or masked = false"
        )
        private = self.local.privacy is not None
        require(not (private and self.masked), "train.privacy", self.local.privacy, fix)

    def fits(self, federation: FederationFacts) -> None:
        if self.given is not None:
            fix = f"names {len(self.given)} devices: give a level for each of {federation.devices}"
            require(len(self.given) == federation.devices, "given", list(self.given), fix)

    def start(self, ctx: Context) -> Levels:
        params = ctx.models[self.local.model].init(ctx.key)
        optim, batch = self.local.optim, self.local.batch
        needs = [training_bytes(as_model(ctx.models[spec]), optim, batch) for spec in self._specs]
        shares = self.shares or (1 / len(self.rates),) * len(self.rates)
        claims = ctx.profiles(self._sample_devices(ctx))
        found = build_ladder(self.by, shares, needs, claims, keys.derive(ctx.key, 1))
        return Levels(params, self._parts(params, ctx.models), found)

    def lanes(self, m: Levels, ctx: Context) -> tuple[None, ...]:
        return (None,) if ctx.working else ()

    def plan(self, m: Levels, lane: None, ctx: Context) -> tuple[Levels, list[Command]]:
        notes: list[Command] = []
        if not m.noted:
            m, notes = replace(m, noted=True), [self._note_levels(m, ctx)]
        chosen = self._choose(m, round(self.clients * self.overcommit), ctx)
        jobs = {level: self._job(level, ctx.models) for level in set(chosen.values())}
        sends = {level: {"params": m.parts[level]} for level in jobs}
        tasks = [Task(node, jobs[level], sends[level]) for node, level in chosen.items()]
        return m, [*notes, Until(self.deadline, self.clients), *tasks]

    def merge(self, m: Levels, lane: None, got: Got, ctx: Context) -> tuple[Levels, list[Command]]:
        parts = [self._part(r, ctx.models) for r in got.replies if r.weight > 0]
        change = average_owners(zeros(m.params), ctx.models[self.local.model], parts)
        params = add(m.params, change) if parts else m.params
        least = m.least | {task.to: self._specs.index(_model(task)) + 1 for task in got.find_lost("refused")}
        m = replace(m, params=params, least=least, round=m.round + 1)
        return replace(m, parts=self._parts(params, ctx.models)) if parts else m, []

    def serve(self, m: Levels, node: Node, ctx: Context) -> dict[str, Task]:
        whole = Task(node, use_model(self.local.model), {"params": m.params})
        if node == ctx.me:
            narrow = range(1, len(self.rates))
            views = {f"rate {self.rates[k]:g}": self._serve_level(m, k, node, ctx) for k in narrow}
            return {**views, "global": whole}
        level = self.levels(m, [node], ctx)[0]
        mine = len(self.rates) - 1 if level is None else level  # the narrowest, for one that can train none
        return {"level": self._serve_level(m, mine, node, ctx), "global": whole}

    def resize(self, clients: int, rate: float) -> "HeteroFL":
        return replace(self, clients=clients, local=self.local.scale_rate(rate))

    def comparable(self, reply: Reply, ctx: Context) -> Params:
        """What all levels have of a change: the narrowest one's part."""
        return cut_model(reply.body["delta"], ctx.models[_model(reply.task)], ctx.models[self._specs[-1]])

    # ------------------------------------------------------------------------------------------------ levels

    def levels(self, m: Levels, nodes: list[Node], ctx: Context) -> list[int | None]:
        """Of these devices, from 0, the widest; None for one that can't train even the narrowest."""
        claims = ctx.profiles(nodes)
        given = self.given
        wanted = m.ladder.assign(nodes, claims) if given is None else [given[n] for n in nodes]
        return m.ladder.fit_memory(cap_levels(wanted, m.least, nodes), claims)

    def _choose(self, m: Levels, count: int, ctx: Context) -> dict[Node, int]:
        """Devices of a round and their levels; those that can't train any are passed over."""
        chosen: dict[Node, int] = {}
        while more := ctx.sample(count - len(chosen)):
            levels = self.levels(m, more, ctx)
            chosen |= {n: level for n, level in zip(more, levels, strict=True) if level is not None}
            if len(chosen) >= count:
                break
        return chosen

    def _note_levels(self, m: Levels, ctx: Context) -> Note:
        nodes = self._sample_devices(ctx)
        found = self.levels(m, nodes, ctx)
        if nodes and all(level is None for level in found):
            raise ConfigError(
                f"rates = {list(self.rates)}: no device has the {m.ladder.needs[-1]:,} bytes of memory that "
                "training the narrowest model takes; add a lower rate, or give devices more fleet.memory"
            )
        sizes = [found.count(level) for level in range(len(self.rates))]
        return Note("levels", {"rates": list(self.rates), "devices": sizes, "unable": found.count(None)})

    def _sample_devices(self, ctx: Context) -> list[Node]:
        children, n = ctx.children, len(ctx.children)
        if n <= REACH:
            return [int(node) for node in children]
        return [int(children[i]) for i in np.unique(keys.generator(ctx.key).integers(n, size=REACH))]

    # ------------------------------------------------------------------------------------------------- parts

    @property
    def _specs(self) -> list[ModelSpec]:
        model = self.local.model
        return [replace(model, width=model.width * rate) for rate in self.rates]

    def _parts(self, params: Params, models: Nets) -> tuple[Params, ...]:
        big = models[self.local.model]
        return tuple(cut_model(params, big, models[spec]) for spec in self._specs)

    def _objective(self, level: int, models: Nets, classes: int | None) -> Narrow:
        big, small = models[self.local.model], models[self._specs[level]]
        names = find_narrow(big, small) if self.scaler else ()
        return Narrow(self.local.objective, self.rates[level], names, classes)

    def _job(self, level: int, models: Nets) -> Train:
        classes = models[self.local.model].classes if self.masked else None
        own = self._objective(level, models, classes)
        below = range(level + 1, len(self.rates))
        parts = tuple((self._specs[f], self._objective(f, models, classes)) for f in below)
        objective = InPlace(own, parts) if self.inplace else own
        clip = CLIP if self.clip and self.local.clip is None else self.local.clip
        return replace(self.local, model=self._specs[level], objective=objective, clip=clip)

    def _serve_level(self, m: Levels, level: int, node: Node, ctx: Context) -> Task:
        plain = use_model(self._specs[level])
        objective = replace(self._objective(level, ctx.models, None), inner=plain.objective)
        return Task(node, replace(plain, objective=objective), {"params": m.parts[level]})

    def _part(self, reply: Reply, models: Nets) -> Part:
        net = models[_model(reply.task)]
        counts = dict.fromkeys(net.head_names, reply.body["holds"]) if self.masked else {}
        weight = reply.weight if self.weigh == "samples" else 1.0
        return Part(net, reply.body["delta"], weight, counts)


def _model(task: Task) -> ModelSpec:
    assert isinstance(task.job, Train)
    return task.job.model
