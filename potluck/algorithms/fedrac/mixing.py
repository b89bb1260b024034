"""Fed-RAC's layers across tiers: one model of all, and tiers' models that go on from it."""

from collections.abc import Iterable
from dataclasses import replace

from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import Context, Params
from potluck.rules.nested import Part, average_owners, cut_model


def mix_tiers(s: FedRACSettings, m: Tiers, ctx: Context) -> Params:
    """One model of all tiers' layers: every number is the mean over the tiers that have it, by rows."""
    nets = [ctx.models[spec] for spec in m.specs]
    each = zip(nets, m.params, m.count_rows(s.mixing.leader_weight), strict=True)
    parts = [Part(net, params, weight) for net, params, weight in each if weight > 0]
    return average_owners(m.params[0], nets[0], parts)


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
