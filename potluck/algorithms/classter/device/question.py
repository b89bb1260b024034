"""What devices tell of detectors and of the general model: sums to fit both by, and how often each is right.

A fit takes several waves. In the first a device is sent all models and keeps what they say of its rows; from
then on it is sent a temperature and biases, and tells sums at these (`jobs.calibrate`).
"""

import torch
from torch import Tensor

from potluck.algorithms.classter.device.detect import keep_back
from potluck.algorithms.classter.device.distil import SILENT, logits
from potluck.core.codec import value
from potluck.core.job import Cost, Local, ModelSpec, Result
from potluck.core.trees import Tree
from potluck.jobs.calibrate import Scaling, Sums, begin_search, sum_up
from potluck.jobs.prior import weigh_together

DETECTORS, GENERAL = KINDS = ("detectors", "general")


@value
class Question:
    """One wave: sums of all own rows, and of those kept back how many each is right about as it is used."""

    general: ModelSpec
    detector: ModelSpec
    share: float  # of rows that are kept back
    weighs: bool = False  # whether the general model's answers are weighed at use, and so here

    def cost(self, at: Local) -> Cost:
        classes, fresh = at.models[self.general].classes, "models" in at.inbox
        size = 1 + classes
        shapes = (classes,), (), (size,), (size, size)
        sums = Sums(*(torch.zeros(s, dtype=torch.float64) for s in shapes))._asdict()
        right = torch.zeros(2 + 1, dtype=torch.float64)
        ops = classes * at.models[self.detector].ops + at.models[self.general].ops
        sends = {**dict.fromkeys(KINDS, sums), "right": right}
        return Cost(float(len(at.rows) * ops * fresh), sends, weight=float(len(at.rows)))

    def run(self, at: Local) -> Result:
        said: Tree = self._ask(at) if "models" in at.inbox else (at.keep or {}).get("said")
        y, n = at.y, len(at.rows)
        if said is None or said.shape[1] != n or not n:  # other rows by now, or none
            said, y, n = torch.zeros(2, 0, at.models[self.general].classes).double().to(y.device), y[:0], 0
        weight = torch.ones(n, dtype=said.dtype, device=said.device)
        kept = torch.zeros(0, dtype=torch.bool)
        if n:
            kept = torch.from_numpy(keep_back(y.cpu().numpy(), self.share))
        kept = kept.to(said.device)
        body: dict[str, Tree] = {}
        right = [kept.sum()]
        for kind, z in zip(KINDS, said, strict=True):
            place = at.inbox["at"][kind] if "at" in at.inbox else begin_search(z, z.shape[-1]).at
            offset = at.inbox.get("offset", 0.0)
            body[kind] = sum_up(z, y, weight, place, offset)._asdict()
            even = torch.full_like(place[1:], 1 / z.shape[-1])
            logs = Scaling(place[0], place[1:], even).read(z)
            if kind == GENERAL and self.weighs:
                logs = weigh_together(logs, weight, even)
            right.append((logs.argmax(-1) == y)[kept].sum())
        body["right"] = torch.stack(right).double()
        return Result(body, float(n), {"said": said} if n else None)

    def _ask(self, at: Local) -> Tensor:
        """[2, rows, classes] what detectors and the general model say."""
        with torch.no_grad():
            many = logits(at.models[self.detector], at.inbox["models"], at.x)
            many = many.masked_fill(~at.inbox["trained"], SILENT)
            one = at.models[self.general](at.inbox["params"], at.x)
        return torch.stack([many, one]).double()
