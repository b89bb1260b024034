"""Parameters that never leave a device."""

from typing import ClassVar

import torch

from potluck.core.codec import value
from potluck.core.job import Batch, Trace
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective


@value
class OwnPart(Objective):
    """Plain training of the model that was sent, but for some parameters: of these the device has its own.

    They are trained with the rest and kept as `personal`; their change isn't sent, and counts as none.
    """

    names: tuple[str, ...]

    packs: ClassVar[bool] = True

    def blank(self, sent: Tree) -> Tree:
        return {"personal": {name: sent["params"][name] for name in self.names}}

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        return {**sent["params"], **keep["personal"]}

    def sends(self, params: Params) -> dict[str, Tree]:
        return {"delta": {name: p for name, p in params.items() if name not in self.names}}

    def finish(
        self, delta: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[dict[str, Tree], Tree]:
        mine = {name: p + delta[name] for name, p in keep["personal"].items()}
        return self.sends(delta), {"personal": mine}

    def tells_change_only(self) -> bool:
        return True  # less of it

    def unpack(self, body: Tree, sent: Tree, params: Params) -> Tree:
        there = body["delta"]
        return {
            **body,
            "delta": {n: there[n] if n in there else torch.zeros_like(p) for n, p in params.items()},
        }
