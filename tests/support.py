"""A small real context and a model of two numbers, so that rules and jobs can be tested by hand."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import torch

from potluck.core import keys
from potluck.core.job import Batch, Local, ModelSpec, Trace
from potluck.core.messages import Cancel, Note, Reply, Spent, Task
from potluck.core.trees import leaves, sub

SPEC = ModelSpec()


def try_rates(*rates, seeds=(1,), **more):
    """[tune] with these learning rates and nothing around them."""
    grid = {"train": {"lr": list(rates)}}
    return {"trials": len(rates), "refine": 0, "seeds": list(seeds), "grid": grid, **more}


def numbers(w=0.0, b=0.0):
    """The parameters of a Line."""
    return {"w": torch.tensor([w], dtype=torch.float64), "b": torch.tensor([b], dtype=torch.float64)}


class Line:
    """Two classes, one feature, two parameters: logits (0, w x + b); b is the head."""

    ops, nbytes, head_names = 2, 16, ("b",)

    def __init__(self, w=0.0, b=0.0):
        self.first = (w, b)

    def init(self, key):
        return numbers(*self.first)

    def __call__(self, params, x, key=None):
        return self.head(params, self.features(params, x, key))

    def features(self, params, x, key=None):
        return params["w"] * x

    def head(self, params, z):
        return torch.cat([torch.zeros_like(z), z + params["b"]], dim=-1)


@dataclass
class Desk:
    """What a rule sees while it handles one event; `children` are idle unless they are in `busy`."""

    models: dict = field(default_factory=lambda: {SPEC: Line()})
    children: object = range(10)
    now: float = 0.0
    me: int = 100
    here: int = 100
    parent: int | None = None
    owed: Task | None = None
    stop: bool = False
    busy: set = field(default_factory=set)
    users: dict = field(default_factory=dict)  # of devices; who isn't in it belongs to nobody
    sizes: dict = field(default_factory=dict)  # train rows of devices; who isn't in it has 10
    seed: int = 0
    event: int = 0
    rng: np.random.Generator = None

    def __post_init__(self):
        if self.rng is None:
            self.rng = keys.generator(self.key)

    @property
    def key(self):
        return keys.derive(self.seed, self.event)

    @property
    def working(self):
        return not self.stop and (self.parent is None or self.owed is not None)

    def profiles(self, nodes):
        ones = np.ones(len(nodes))
        return SimpleNamespace(compute=ones, up=ones, down=ones, latency=ones, memory=ones)

    def rows(self, nodes):
        return np.array([self.sizes.get(n, 10) for n in nodes], np.int64)

    def sample(self, count, but=()):
        idle = [node for node in self.children if node not in self.busy and node not in but]
        found = [idle[i] for i in self.rng.permutation(len(idle))[:count]]
        self.busy.update(found)  # another lane of the same event must not get them too
        return found

    def ready(self, nodes):
        return [node for node in nodes if node not in self.busy]

    def release(self, nodes):
        self.busy.difference_update(nodes)

    def siblings(self, node):
        if node not in self.users:
            return [node]
        return [n for n in self.children if self.users.get(n) == self.users[node]]

    def only(self, nodes):
        return replace(self, children=list(nodes))

    def holding(self, owed, stop):
        return replace(self, owed=owed, stop=stop)

    def later(self, **changes):
        """The context of the next event."""
        return replace(self, event=self.event + 1, rng=None, **changes)


def tasks(commands):
    return [c for c in commands if isinstance(c, Task)]


def cancelled(commands):
    return [c.id for c in commands if isinstance(c, Cancel)]


def notes(commands):
    return [(c.name, c.value) for c in commands if isinstance(c, Note)]


def answer(task, w=0.0, b=0.0, weight=1.0, **more):
    """A reply whose delta is (w, b)."""
    return Reply(task, {"delta": numbers(w, b), **more}, weight, {}, Spent())


def local(x, y, inbox, keep=None, seed=0, models=None, test=None):
    """A device that holds exactly these rows."""
    pool = SimpleNamespace(
        x=torch.tensor(x, dtype=torch.float64).reshape(-1, 1), y=torch.tensor(y, dtype=torch.int64)
    )
    return Local(0, np.arange(len(y)), inbox, keep, seed, models or {SPEC: Line()}, pool, test)


def batches(job, at):
    """A job's steps, one after another."""
    rows = job.draw(at)
    for step, (index, weight) in enumerate(zip(rows.index, rows.weight, strict=True)):
        key = keys.as_tensor(keys.derive(at.seed, -1, step))
        yield Batch(at.x[index], at.y[index], torch.tensor(weight, dtype=at.x.dtype), key, None)


def fit(job, at):
    """Train as plainly as can be: body, keep and metrics of a job."""
    net = at.models[job.model]
    keep = job.blank(at.inbox) if at.keep is None else at.keep
    params, held = job.begin(net, at.inbox, keep, None)
    params = {name: p.clone() for name, p in params.items()}
    state = job.optim.start(list(params.values()))
    steps = 0
    for steps, batch in enumerate(batches(job, at), start=1):
        grads, _ = torch.func.grad(lambda p, b=batch: job.loss(net, p, b, held), has_aux=True)(params)
        job.optim.step(
            list(params.values()), [grads[name] for name in params], state, float(job.optim.lr), steps
        )
    lr, count = (torch.tensor(v, dtype=torch.float64) for v in (job.optim.lr, float(steps)))
    return job.finish(params, at.inbox, keep, held, Trace({}, count, lr))


def close(tree, expected, tolerance=1e-12):
    """Whether two trees of numbers agree."""
    return all(float(off.abs().max()) <= tolerance for off in leaves(sub(tree, expected)))


class Script:
    """Says what it is told at the start and after each event, and remembers what it heard."""

    def __init__(self, *commands, then=None):
        self.commands, self.then = list(commands), then or (lambda e, ctx: [])
        self.heard = []

    def init(self, ctx):
        return None, [c(ctx) if callable(c) else c for c in self.commands]

    def receive(self, s, e, ctx):
        self.heard.append((ctx.now, e))
        return s, self.then(e, ctx)

    def serve(self, s, node, ctx):
        return {}

    def round(self, s):
        return 0

    def waiting(self, s, ctx):
        return []

    def of(self, kind):
        return [(now, e) for now, e in self.heard if isinstance(e, kind)]

    def times(self, kind=Reply):
        return [now for now, _ in self.of(kind)]
