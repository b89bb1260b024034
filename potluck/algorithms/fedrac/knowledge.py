"""What each of Fed-RAC's models has learnt from, class by class: where devices are to heed which."""

from dataclasses import replace

import torch

from potluck.algorithms.fedrac.device.known import Known
from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import Context, Node, Task, use_model


def count_knowledge(s: FedRACSettings, m: Tiers, ctx: Context) -> Tiers:
    """The rows of each class in each tier's training, those of helpers included; as many of all if untold."""
    if s.use == "tier":
        return m
    classes = ctx.models[m.specs[0]].classes
    knows = torch.zeros(len(m.specs), classes, dtype=torch.float64)
    for node, place in m.places.items():
        device = m.known[node]
        told = device.labels or (device.rows / classes,) * classes
        for work in (place, *m.helps.get(node, ())):
            knows[work.tier] += torch.tensor(told, dtype=torch.float64) * min(1.0, work.rows / device.rows)
    return replace(m, knows=knows)


def serve_known(m: Tiers, tier: int, node: Node) -> Task:
    """A tier's model beside all poorer ones that were trained, which whoever can train it can hold."""
    poorer = [f for f in range(tier + 1, len(m.specs)) if m.done[f]]
    like = next(iter(m.params[tier].values()))
    if m.knows is None:
        poorer = []
    knows = like.new_ones(1, 1) if m.knows is None else m.knows[[tier, *poorer]].to(like)
    others = {str(f): m.params[f] for f in poorer}
    job = use_model(m.specs[tier], Known(tuple(m.specs[f] for f in poorer)))
    return Task(node, job, {"params": m.params[tier], "others": others, "knows": knows})
