"""What a device does: jobs, what they see and what comes of them, and the models that they train.

None of this does input or output, looks at a clock or keeps hidden state, so a job can be tested by hand and
computed by any runtime, whenever it likes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from typing import Literal, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core.codec import value
from potluck.core.messages import Node
from potluck.core.trees import Params, Tree

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

    @property
    def ops(self) -> int: ...  # multiply-accumulates of one forward pass of one sample
    @property
    def nbytes(self) -> int: ...
    @property
    def classes(self) -> int: ...  # outputs
    @property
    def head_names(self) -> tuple[str, ...]: ...  # parameters of the last layer

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
    """What a job sees on its device: its rows, what was sent, what it kept, its seed.

    Rows, memory and seed are properties, so that a runtime may look them up when they are read.
    """

    __slots__ = ("_keep", "_rows", "_seed", "inbox", "models", "node", "pool", "test")

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
        self.node, self.inbox, self.models, self.pool = node, inbox, models, pool
        self._rows, self._keep, self._seed = rows, keep, seed
        self.test = test  # rows to be scored on; None unless the model is being served

    @property
    def rows(self) -> NDArray[np.int64]:
        return self._rows

    @property
    def keep(self) -> Tree:
        return self._keep

    @property
    def seed(self) -> int:
        return self._seed

    @property
    def x(self) -> Tensor:
        return self.pool.x[torch.tensor(self.rows)]

    @property
    def y(self) -> Tensor:
        return self.pool.y[torch.tensor(self.rows)]


@value(eq=False)
class Cost:
    """What a job takes, known before it runs, and what may come of it: whatever goes beyond it is refused.

    The form of `sends` and the names of `metrics` follow from the job and from what is sent to it, never from
    the device's rows or memory: a server that has seen neither asks for them too, to check what comes back.
    """

    ops: float = 0.0  # multiply-accumulates; training a sample takes three forward passes
    # Of the form of the reply's body. Its whole numbers are the largest that may come back; 0 is the least.
    sends: Tree = None
    seconds: float = 0.0  # time that doesn't depend on the device (a table of planning times)
    memory: float = 0.0  # bytes while it runs: a device that has less computes longer; 0: isn't looked at
    weight: float = 1.0  # the largest that the reply may have: its rows, or 1 where nothing is counted
    metrics: tuple[str, ...] = ()  # that the reply tells; one without weight may leave some out


@value(eq=False)
class Result:
    """What a job made: the reply's body and weight, what the device keeps (None: as before), metrics."""

    body: Tree
    weight: float = 1.0
    keep: Tree = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    finite: bool = False  # our own executors have looked at the body's numbers; believed of nobody else


@runtime_checkable
class Job(Protocol):
    """Device-side work: a frozen `@value`, so that it crosses a wire by name and fields."""

    def cost(self, at: Local) -> Cost: ...


@runtime_checkable
class Opaque(Job, Protocol):
    """A job that runs as it likes: a probe, a check-in, a planner, distillation."""

    def run(self, at: Local) -> Result: ...


@runtime_checkable
class Forgeable(Protocol):
    """A job whose answer says where a device belongs, on its word alone; so it can be a lie."""

    def forge(self, body: Tree, sent: Tree, gather: bool, claim: float, key: int) -> Tree: ...


@runtime_checkable
class Unpacks(Protocol):
    """A job that may send less than rules read."""

    def unpack(self, body: Tree, sent: Tree, models: Nets) -> Tree: ...  # a reply's body as rules read it


@runtime_checkable
class Folds(Protocol):
    """A job with a way of its own of making one answer of several devices', by their weights."""

    def fold(self, bodies: Sequence[Tree], weights: Sequence[float]) -> Tree: ...


@runtime_checkable
class Placed(Protocol):
    """A job that says where it is done if an aggregator is asked for it.

    "memory": on the aggregator's machine, with its memory. "rows", as jobs that don't say: by all below it.
    """

    @property
    def at(self) -> Literal["memory", "rows"]: ...


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
    held beside it; loss, once a step; review, per own row, if it looks; finish. score is for test rows: means
    over them are told, and what is more than a number a row comes back row by row in place of the body.
    """

    @property
    def model(self) -> ModelSpec: ...
    @property
    def optim(self) -> Optim: ...
    @property
    def clip(self) -> float | None: ...  # the longest that a step's gradient may be; None: any length

    @property
    def looks(self) -> bool: ...  # whether own rows are looked at as a whole: `look` before, `review` after
    @property
    def whole(self) -> bool: ...  # whether `score` must see all of a device's test rows at once, in order

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


class Noise(Protocol):
    """What local differential privacy is accounted by."""

    @property
    def sigma(self) -> float: ...  # deviation of the noise, in lengths of the longest update
    @property
    def delta(self) -> float: ...


@runtime_checkable
class Noisy(Job, Protocol):
    """A job that may add noise to what leaves the device."""

    @property
    def privacy(self) -> Noise | None: ...


# Asking a protocol takes as long as a whole task does, so the answer is remembered by class.
_Known = dict[type, bool]
_TRAINING: _Known = {}
_OPAQUE: _Known = {}
_FORGEABLE: _Known = {}
_UNPACKS: _Known = {}
_NOISY: _Known = {}
_FOLDS: _Known = {}


def trains(job: Job) -> TypeGuard[Training]:
    """Whether a job is training, which executors may batch."""
    known = _TRAINING.get(type(job))
    return _ask(job, Training, _TRAINING) if known is None else known


def runs(job: Job) -> TypeGuard[Opaque]:
    """Whether a job runs as it likes."""
    known = _OPAQUE.get(type(job))
    return _ask(job, Opaque, _OPAQUE) if known is None else known


def forgeable(job: Job) -> TypeGuard[Forgeable]:
    """Whether a job's answer says where a device belongs."""
    known = _FORGEABLE.get(type(job))
    return _ask(job, Forgeable, _FORGEABLE) if known is None else known


def unpacks(job: Job) -> TypeGuard[Unpacks]:
    """Whether a job may send less than rules read."""
    known = _UNPACKS.get(type(job))
    return _ask(job, Unpacks, _UNPACKS) if known is None else known


def folds(job: Job) -> TypeGuard[Folds]:
    """Whether a job has a way of its own of making one answer of several."""
    known = _FOLDS.get(type(job))
    return _ask(job, Folds, _FOLDS) if known is None else known


def in_memory(job: Job) -> bool:
    """Whether an aggregator does a job itself, with its own memory."""
    return isinstance(job, Placed) and job.at == "memory"


def find_noise(job: Job) -> Noise | None:
    """The noise that a job adds to what leaves the device, if any."""
    return job.privacy if _adds_noise(job) else None


def _adds_noise(job: Job) -> TypeGuard[Noisy]:
    known = _NOISY.get(type(job))
    return _ask(job, Noisy, _NOISY) if known is None else known


def _ask(job: Job, protocol: type, known: _Known) -> bool:
    known[type(job)] = isinstance(job, protocol)
    return known[type(job)]
