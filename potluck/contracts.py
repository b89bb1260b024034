"""The contracts between algorithms, jobs and runtimes.

An *algorithm* is one aggregation point: it takes a state and an event and gives a state and commands. A
*rule* is an algorithm without its loop; `aggregate.Rounds` lends it one. A *job* is what a device does. None
of them does input or output, looks at a clock or keeps hidden state, so each can be tested by hand, stored
between any two events and run by any runtime.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.codec import value
from potluck.messages import Choice, Command, Event, Lane, Lost, Node, Reply, Task, Why
from potluck.trees import Params, Tree

S = TypeVar("S")
M = TypeVar("M")


# ---------------------------------------------------------------------------------- what both sides know


@value
class ModelSpec:
    """A model by name; width and depth make the smaller variants for smaller devices."""

    name: str = "mlp"
    width: float = 1.0
    depth: float = 1.0
    outputs: int | None = None  # as many as there are classes, unless said


class Net(Protocol):
    """A model as a pure function of its parameters."""

    ops: int  # multiply-accumulates of one forward pass of one sample
    nbytes: int
    classes: int  # outputs
    head_names: tuple[str, ...]  # parameters of the last layer

    def init(self, key: int) -> Params: ...
    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor: ...
    def features(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor: ...
    def head(self, params: Params, z: Tensor) -> Tensor: ...


class Nets(Protocol):
    """The models of a federation, built when first asked for."""

    def __getitem__(self, spec: ModelSpec) -> Net: ...
    def on(self, device: str) -> "Nets": ...  # with weights elsewhere


class Samples(Protocol):
    """All rows of a federation, whoever holds them."""

    @property
    def x(self) -> Tensor: ...
    @property
    def y(self) -> Tensor: ...


# ------------------------------------------------------------------------------------------- device side


class Local:
    """What a job sees on its device: its rows, what was sent, what it kept, its seed."""

    __slots__ = ("inbox", "keep", "models", "node", "pool", "rows", "seed", "test")

    def __init__(
        self,
        node: Node,
        rows: NDArray[np.int64],
        inbox: dict[str, Tree],
        keep: Tree,
        seed: int,
        models: Nets,
        pool: Samples,
        test: NDArray[np.int64] | None = None,
    ) -> None:
        self.node, self.rows, self.inbox, self.keep = node, rows, inbox, keep
        self.seed, self.models, self.pool = seed, models, pool
        self.test = test  # rows to be scored on; None unless the model is being served

    @property
    def x(self) -> Tensor:
        return self.pool.x[torch.tensor(self.rows)]

    @property
    def y(self) -> Tensor:
        return self.pool.y[torch.tensor(self.rows)]


@value(eq=False)
class Cost:
    """What a job takes, known before it runs."""

    ops: float = 0.0  # multiply-accumulates; training a sample takes three forward passes
    sends: Tree = None  # a tree of the form of the reply's body; what comes back must match it
    seconds: float = 0.0  # time that doesn't depend on the device (a table of planning times)
    memory: float = 0.0  # bytes while it runs: a device that has less computes longer; 0: isn't looked at


@value(eq=False)
class Result:
    """What a job made: the reply's body and weight, what the device keeps (None: as before), metrics."""

    body: Tree
    weight: float = 1.0
    keep: Tree = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    finite: bool = False  # the body's numbers are known to be; otherwise they are looked at


@runtime_checkable
class Job(Protocol):
    """Device-side work: a frozen `@value`, so that it crosses a wire by name and fields."""

    def cost(self, at: Local) -> Cost: ...


@runtime_checkable
class Opaque(Job, Protocol):
    """A job that runs as it likes: a probe, a check-in, a planner, distillation."""

    def run(self, at: Local) -> Result: ...


@value(eq=False)
class Rows:
    """Which of its rows a job trains on, batch by batch, padded to one shape."""

    index: NDArray[np.int64]  # [steps, batch] positions in Local.rows
    weight: NDArray[np.float32]  # [steps, batch]; 0 for padding
    count: float  # the reply's weight


class Batch(NamedTuple):
    """One step's samples. `key` is the only source of randomness; rows of weight 0 must count nothing."""

    x: Tensor
    y: Tensor
    weight: Tensor
    key: Tensor
    seen: Tree  # what `look` saw of these rows


class Trace(NamedTuple):
    """What training leaves behind: means over its steps, their number, the learning rate, and a key."""

    means: dict[str, Tensor]
    steps: Tensor
    lr: Tensor
    key: Tensor | None = None  # of the task: for noise on what it sends; None in tests that need none


class Optim(Protocol):
    """A local optimiser: changes the executor's own tensors in place, one client's or a stack of them."""

    lr: float

    def start(self, params: Sequence[Tensor]) -> list[list[Tensor]]: ...
    def step(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        state: Sequence[Sequence[Tensor]],
        lr: "float | Sequence[Tensor]",
        count: "int | Tensor",
    ) -> None: ...


@runtime_checkable
class Training(Job, Protocol):
    """A job that executors may batch. All but `draw` are pure tensor functions: vmappable, no `.item()`.

    Order of calls: draw; look, once per own row, if it looks; begin, which gives what is trained and what is
    held beside it; loss, once a step; review, per own row, if it looks; finish. score is for test rows.
    """

    @property
    def model(self) -> ModelSpec: ...
    @property
    def optim(self) -> Optim: ...

    @property
    def looks(self) -> bool: ...  # whether own rows are looked at as a whole: `look` before, `review` after

    def shape(self) -> Hashable: ...  # jobs of equal shape may train in one batch; lr and steps may differ
    def draw(self, at: Local) -> Rows: ...
    def blank(self, sent: Tree) -> Tree: ...  # what a device that kept nothing starts from
    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree: ...  # frozen models
    def begin(self, net: Net, sent: Tree, keep: Tree, own: Batch | None) -> tuple[Params, Tree]: ...
    def loss(
        self, net: Net, params: Params, batch: Batch, held: Tree
    ) -> tuple[Tensor, dict[str, Tensor]]: ...
    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]: ...  # per row
    def finish(
        self, params: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[Tree, Tree, dict[str, Tensor]]: ...  # body, keep (None: as before), metrics
    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]: ...  # per row


# -------------------------------------------------------------------------------------- aggregator's side


class Claims(Protocol):
    """What devices say of themselves, one entry a node asked for."""

    @property
    def compute(self) -> NDArray[np.float64]: ...  # ms per sample of the reference model
    @property
    def up(self) -> NDArray[np.float64]: ...  # bits per second
    @property
    def down(self) -> NDArray[np.float64]: ...
    @property
    def latency(self) -> NDArray[np.float64]: ...
    @property
    def memory(self) -> NDArray[np.float64]: ...  # bytes


class Context(Protocol):
    """What an algorithm may know and use while it handles one event."""

    @property
    def me(self) -> Node: ...
    @property
    def here(self) -> Node: ...  # the aggregator's own machine: a Task to it is work, charged on the clock
    @property
    def parent(self) -> Node | None: ...
    @property
    def now(self) -> float: ...
    @property
    def owed(self) -> Task | None: ...  # the parent's task that waits for an answer
    @property
    def stop(self) -> bool: ...
    @property
    def children(self) -> "range | NDArray[np.int64] | Sequence[Node]": ...
    @property
    def key(self) -> int: ...  # fresh for every event
    @property
    def rng(self) -> np.random.Generator: ...
    @property
    def models(self) -> Nets: ...
    @property
    def working(self) -> bool: ...  # not stopped, and at the top or owing an answer

    def profiles(self, nodes: Sequence[Node]) -> Claims: ...
    def sample(self, count: int, but: Collection[Node] = ()) -> list[Node]: ...  # online, idle, no repeats
    def ready(self, nodes: Sequence[Node]) -> list[Node]: ...  # those online and idle; takes nobody
    def siblings(self, node: Node) -> list[Node]: ...  # children of the device's own user, itself included
    def only(self, nodes: Iterable[Node]) -> "Context": ...  # the same, among these children
    def holding(self, owed: Task | None, stop: bool) -> "Context": ...  # the same, with what the loop knows
    def release(
        self, nodes: Iterable[Node]
    ) -> None: ...  # their tasks are called off: they count as idle now


class Algorithm(Protocol[S]):
    """One aggregation point: cloud, edge or user hub. `receive` consumes the state; tensors never change."""

    def init(self, ctx: Context) -> tuple[S, list[Command]]: ...
    def receive(self, s: S, e: Event, ctx: Context) -> tuple[S, list[Command]]: ...
    def serve(self, s: S, node: Node, ctx: Context) -> Mapping[str, Task | Choice]: ...
    def round(self, s: S) -> int: ...  # how often the served model changed
    def waiting(self, s: S, ctx: Context) -> list[Lane]: ...  # lanes that would go on but can't


class Got(NamedTuple):
    """What a closed barrier brought: replies in task order, and what was lost."""

    replies: list[Reply]
    lost: list[Lost]

    def failed(self, why: Why) -> list[Task]:
        """The tasks that were lost for this reason."""
        return [lost.what for lost in self.lost if lost.why == why and isinstance(lost.what, Task)]


class Federation(Protocol):
    """What a rule may ask of a federation before it runs there, to refuse one that can't carry it."""

    @property
    def devices(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...  # of a row
    @property
    def tokens(self) -> bool: ...  # whether rows are tokens instead of values
    @property
    def classes(self) -> int: ...
    @property
    def server(self) -> int: ...  # the server's own rows

    def held(self) -> NDArray[np.int64]:
        """Train rows of each class at the start, counted when asked for.

        Of all clients together; where nothing is stored of each (procedural), of the first 10,000.
        """
        ...


class Rule(Protocol[M]):
    """An algorithm without its loop.

    A rule that not every federation can carry may have `fits(self, federation: Federation) -> None`, which
    raises ConfigError then. The run's rule is asked before anything is run or written.
    """

    def start(self, ctx: Context) -> M: ...  # M.round counts how often the served model changed
    def lanes(self, m: M, ctx: Context) -> Iterable[Lane]: ...  # the barriers that should be open
    # A rule knows the type of its own lanes, so they aren't `Lane` here.
    def plan(self, m: M, lane: Any, ctx: Context) -> tuple[M, list[Command]]: ...  # no Task: parked
    def merge(self, m: M, lane: Any, got: Got, ctx: Context) -> tuple[M, list[Command]]: ...
    def serve(
        self, m: M, node: Node, ctx: Context
    ) -> Mapping[str, Task | Choice]: ...  # view -> what this node uses


class Inner(Rule[M], Protocol[M]):
    """A rule that may sit below a parent; it is asked at a boundary only, never in mid-round."""

    def adopt(self, m: M, task: Task, ctx: Context) -> M: ...
    def report(self, m: M, task: Task, ctx: Context) -> tuple[Tree, float] | None: ...  # None: not yet


class Cohort(Rule[M], Protocol[M]):
    """A rule that can run inside another that shares out clients and learning rates."""

    def resized(self, clients: int, rate: float) -> Self: ...  # rate: a factor on its learning rate


class Tiered(Protocol):
    """An algorithm of several tiers: names them from the cloud downward and gives each its rule."""

    tiers: ClassVar[tuple[str, ...]]  # attributes of devices, e.g. ("edge",)

    def at(self, tier: str) -> "Rule[Any] | Algorithm[Any]": ...  # "cloud" or one of tiers
