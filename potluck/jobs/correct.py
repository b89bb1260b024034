"""SCAFFOLD's device side: gradients corrected by control variates."""

import torch
from torch import Tensor

from potluck.core.codec import value
from potluck.core.job import Batch, Net, Trace
from potluck.core.trees import Params, Tree, add, sub, tmap, zeros
from potluck.jobs.objective import Objective


@value
class Correct(Objective):
    """Steps along g - c_i + c; the device keeps c_i, and the server sends c as `control`.

    The correction is constant over a task, so it is the gradient of a linear term of the loss. Afterwards c_i
    is set by option II: the mean gradient along the way that was just gone. If `names` are given, it is these
    parameters that have a c and are corrected; others take the steps of plain training.
    """

    names: tuple[str, ...] | None = None  # None: all

    def blank(self, sent: Tree) -> Tree:
        return zeros(sent["control"])  # c_i of a device that never took part

    def hold(self, sent: Tree, keep: Tree, own: Batch | None) -> Tree:
        return sub(sent["control"], keep)

    def penalty(self, net: Net, params: Params, batch: Batch, held: Tree) -> Tensor | float:
        terms: list[Tensor] = [(held[name] * p).sum() for name, p in self._select(params).items()]
        return sum(terms[1:], terms[0]) if terms else 0.0

    def sends(self, params: Params) -> dict[str, Tree]:
        return {"control": self._select(params)}

    def tells_change_only(self) -> bool:
        return True  # the change of c_i follows from the delta, steps and rate

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        far = trace.steps.clamp_min(1) * trace.lr  # K eta

        def change(d: Tensor, c: Tensor) -> Tensor:  # c_i+ - c_i = (x - y) / (K eta) - c, and 0 without steps
            return torch.where(trace.steps > 0, -d / far - c, torch.zeros_like(c))

        changed = tmap(change, self._select(delta), sent["control"])
        return {"control": changed}, add(keep, changed)

    def _select(self, params: Params) -> Params:
        return params if self.names is None else {name: params[name] for name in self.names}
