"""Fed-RAC's layers across tiers: one model of all, and tiers' models that go on from it.

With `mixing.heads`, what is known of a class goes to all tiers from those whose rows taught it: a model that
never saw a class learns only that nothing is of it. A number of a class's head that such models alone have is
0.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import Context, Net, Params
from potluck.rules.nested import Part, average_owners, cut_model


def mix_tiers(s: FedRACSettings, m: Tiers, ctx: Context) -> Params:
    """One model of all tiers' layers: every number is the mean over the tiers that have it, by rows."""
    nets = [ctx.models[spec] for spec in m.specs]
    each = zip(nets, m.params, m.count_rows(s.mixing.leader_weight), strict=True)
    parts = [
        Part(net, params, weight, _count_heads(s, m, tier, net))
        for tier, (net, params, weight) in enumerate(each)
        if weight > 0
    ]
    heads = nets[0].head_names if s.mixing.heads else ()
    whole = {name: torch.zeros_like(p) if name in heads else p for name, p in m.params[0].items()}
    return average_owners(whole, nets[0], parts)


def _count_heads(s: FedRACSettings, m: Tiers, tier: int, net: Net) -> dict[str, Tensor]:
    """Which part of a tier's rows is of each class, as what the rows of its last layer count."""
    if not s.mixing.heads or m.knows is None:
        return {}
    share = m.knows[tier] / m.knows[tier].sum().clamp_min(1e-30)
    return dict.fromkeys(net.head_names, share)


def mix_back(s: FedRACSettings, m: Tiers, tiers: Iterable[int], ctx: Context) -> Tiers:
    """After a round of these tiers: their models, so far on their way to their parts of the one of all."""
    how, params = s.mixing.back, list(m.params)
    if how == 0:
        return m
    whole, big = mix_tiers(s, m, ctx), ctx.models[m.specs[0]]
    for tier in tiers:
        part = cut_model(whole, big, ctx.models[m.specs[tier]])
        params[tier] = {name: p + how * (part[name] - p) for name, p in params[tier].items()}
    return replace(m, params=tuple(params))
