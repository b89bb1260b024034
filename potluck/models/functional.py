"""A model: an ordinary `nn.Module`, used as a pure function of its parameters.

Parameters are a flat dict under the module's own names. The engine stacks, sends and trains these dicts; the
module only says how to compute. Everything here works under `torch.func.vmap` and `grad`.
"""

import copy
import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from potluck.core.errors import ModelError, PotluckError
from potluck.core.job import ModelSpec
from potluck.core.room import require_room
from potluck.core.trees import Params, copy_tree, nbytes
from potluck.models.frozen import describe_frozen, fix_frozen
from potluck.models.program import build_program
from potluck.models.registry import find_builder
from potluck.models.vetting import DRAWING, SHAPES, count_ops, refuse, run, tell_line, try_out
from potluck.models.zoo.blocks import PlainLSTM

LARGE = 10**7  # numbers of a layer from rows to classes
COPIES = 4  # of a model, at least, when it is trained: as sent, as it becomes, gradients, the sum


class Model:
    """One architecture for rows of one shape. It holds no weights: `init` gives them, calls take them."""

    ops: int  # multiply-accumulates of one forward pass of one row
    size: int  # number of parameters, of those that are trained
    nbytes: int
    shapes: dict[str, tuple[int, ...]]  # of the parameters
    gates: dict[str, int]  # of those whose first dimension stacks several layers' units (an LSTM's four)
    constants: tuple[Tensor, ...]  # buffers and frozen parameters, which are neither trained nor sent
    remark: str  # what users should know of it; "" if nothing

    def __init__(
        self,
        spec: ModelSpec,
        shape: tuple[int, ...],
        classes: int,
        dtype: torch.dtype = torch.float32,
        inputs: torch.dtype | None = None,
        device: str = "cpu",
    ) -> None:
        self.vocabulary, self.device = classes, device  # classes of the data; a detector has fewer outputs
        classes = spec.outputs or classes
        self.spec, self.shape, self.classes, self.dtype = spec, tuple(shape), classes, dtype
        self.inputs = inputs or dtype
        self._builder = find_builder(spec, self.shape, classes, self.vocabulary)
        self._check_room()
        self._template = module = self._build(0)
        frozen = fix_frozen(module)
        self.remark = describe_frozen(module, frozen, spec.name)
        refuse(module, spec.name, bool(frozen))
        try_out(module, self._rows(), classes, spec.name)
        params = _params(module)
        self.shapes = {name: tuple(p.shape) for name, p in params.items()}
        self.gates = _count_gates(module)
        self.size = sum(p.numel() for p in params.values())
        self.nbytes = nbytes(params)
        there = {id(buffer): buffer.to(device) for buffer in module.buffers()}
        self.constants = tuple(there.values())
        self._train, self._eval = (build_program(module, training, there) for training in (True, False))
        self.ops = count_ops(module, self._eval.layers, self._rows())
        self._unsplit = self._find_split_fault(params)

    def init(self, key: int) -> Params:
        """Fresh weights by the module's own rules, a function of the key alone."""
        return {name: p.to(self.device) for name, p in _params(self._build(key)).items()}

    def __call__(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Logits [rows, classes]; without a key the model is evaluated (no dropout)."""
        return (self._eval if key is None else self._train).call(params, x, key)

    def features(self, params: Params, x: Tensor, key: Tensor | None = None) -> Tensor:
        """What the head sees, [rows, features]."""
        step = (self._eval if key is None else self._train).features
        if self._unsplit or step is None:
            raise ModelError(self._unsplit)
        return step(params, x, key)

    def head(self, params: Params, z: Tensor, key: Tensor | None = None) -> Tensor:
        """Logits from features: `head(features(x))` is `self(x)`."""
        step = (self._eval if key is None else self._train).head
        if self._unsplit or step is None:
            raise ModelError(self._unsplit)
        return step(params, z, key)

    def _name_head(self) -> tuple[str, ...]:
        if self._unsplit:
            raise ModelError(self._unsplit)
        return self._eval.head_names

    # The parameters of the head. A plain attribute to the contract; asking raises where `features` does.
    head_names: tuple[str, ...] = cached_property(_name_head)  # type: ignore[assignment]

    def module(self, params: Params) -> nn.Module:
        """A module of its own with these weights, as its builder made it, in evaluation mode."""
        made = {
            id(p): nn.Parameter(copy_tree(params[name])) for name, p in self._template.named_parameters()
        }  # by id: tied weights stay tied
        device = next(iter(params.values())).device
        return copy.deepcopy(self._template, made).to(device).eval()

    def __reduce__(self) -> "tuple[type[Model], tuple[object, ...]]":
        # Calls can't be pickled; what they are made from can.
        return Model, (self.spec, self.shape, self.vocabulary, self.dtype, self.inputs, self.device)

    def __repr__(self) -> str:
        return f"Model({self.spec}, shape={self.shape}, classes={self.classes}, size={self.size:,})"

    def _build(self, key: int) -> nn.Module:
        # Always on the CPU and in float32 first, so that device and precision don't change what is drawn.
        # Only the CPU's generator is seeded: torch.manual_seed would reseed a GPU's too.
        with DRAWING, torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(key)
            try:
                module = copy.deepcopy(self._builder())  # a builder may give one module again and again
            except PotluckError:
                raise
            except Exception as error:  # told in a line; a mistake in its code with its traceback
                raise ModelError(
                    f"model {self.spec.name!r} can't be built for rows of shape {self.shape} and "
                    f"{self.classes} classes: {type(error).__name__}: {error}{tell_line(error)}"
                ).blame(error, SHAPES) from error
            if not isinstance(module, nn.Module):
                raise ModelError(
                    f"model {self.spec.name!r}: its builder gave {type(module).__name__}, not an nn.Module"
                )
            if any(nn.parameter.is_lazy(p) for p in module.parameters()):
                run(module, self._rows(torch.float32), self.spec.name)
        return module.to(self.dtype)

    def _check_room(self) -> None:
        """Refuse what memory can't hold, where settings or rows make a model large; only shapes are built."""
        spec = self.spec
        if max(spec.width, spec.depth) <= 1 and math.prod(self.shape) * self.classes < LARGE:
            return
        with DRAWING, torch.random.fork_rng(devices=[]), torch.device("meta"):
            try:
                module = self._builder()
            except Exception:  # what can't be built so is built as it is: there it is told what is wrong
                return
        if not isinstance(module, nn.Module) or any(nn.parameter.is_lazy(p) for p in module.parameters()):
            return
        taken = COPIES * sum(p.numel() for p in module.parameters()) * self.dtype.itemsize
        key = "width" if spec.width > 1 else "depth" if spec.depth > 1 else "name"
        require_room(taken, f"model.{key}", getattr(spec, key), "lower it, or take a smaller model")

    def _rows(self, dtype: torch.dtype | None = None) -> Tensor:
        """Two rows to try the model on; numbers that differ, or token 0."""
        rows = torch.zeros(2, *self.shape, dtype=self.inputs)
        if not rows.is_floating_point():
            return rows
        return torch.linspace(-1, 2, rows.numel()).reshape(rows.shape).to(dtype or self.inputs)

    def _find_split_fault(self, params: Params) -> str:
        name, split = f"model {self.spec.name!r}", self._eval
        fix = (
            "end a Sequential in its last nn.Linear, or give the module a `features` method and a `head` "
            "submodule whose composition is its forward"
        )
        if split.features is None or split.head is None:
            return f"{name}: it isn't known where its head begins; {fix}"
        x = self._rows()
        with torch.no_grad():
            try:
                z = split.features(params, x, None)
                close = torch.allclose(split.head(params, z, None), split.call(params, x, None))
            except SHAPES as error:
                return f"{name}: its head can't be run on its features ({error}); {fix}"
        if not close or z.ndim != 2:
            return f"{name}: its features {list(z.shape)} don't lead to its output through its head; {fix}"
        return ""


class Models:
    """The models of a federation: `models[spec]`, built when first asked for, then kept."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        dtype: torch.dtype = torch.float32,
        inputs: torch.dtype | None = None,  # of the data's rows, where that is another one: int64 for tokens
        device: str = "cpu",  # where weights are put
    ) -> None:
        self.shape, self.classes, self.dtype, self.inputs = tuple(shape), classes, dtype, inputs
        self.device = device
        self._built: dict[ModelSpec, Model] = {}

    def __getitem__(self, spec: ModelSpec) -> Model:
        model = self._built.get(spec)
        if model is None:
            with temporarily_clear_interpreter_stack():  # it may be asked for first inside a vmap
                model = Model(spec, self.shape, self.classes, self.dtype, self.inputs, self.device)
            self._built[spec] = model
        return model

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)

    def __reduce__(self) -> "tuple[type[Models], tuple[object, ...]]":
        return Models, (self.shape, self.classes, self.dtype, self.inputs, self.device)

    def on(self, device: str) -> "Models":
        """The same models with their weights elsewhere."""
        return Models(self.shape, self.classes, self.dtype, self.inputs, device)


def _params(module: nn.Module) -> Params:
    return {name: copy_tree(p) for name, p in module.named_parameters() if p.requires_grad}


def _count_gates(module: nn.Module) -> dict[str, int]:
    return {
        name: 3 if isinstance(part, nn.GRU | nn.GRUCell) else 4
        for path, part in module.named_modules()
        if isinstance(part, PlainLSTM | nn.LSTM | nn.LSTMCell | nn.GRU | nn.GRUCell)
        for name, _ in part.named_parameters(path)
        if "weight_hr" not in name  # a projection
    }
