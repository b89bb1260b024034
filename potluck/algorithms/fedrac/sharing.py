"""Fed-RAC's shared work: the poorer tiers' models that devices train besides, if they have time left.

A tier's own members have only their own rows, a quarter of all where there are four tiers. Whoever can hold
a tier's model can hold the poorer ones, so richer devices train these, too, the smallest first: it costs
least, and is what everybody can fall back on. Nobody is given what it can't hold, and all of a device's work
ends before the round does, by the slack that rates and speeds need.
"""

from dataclasses import replace

from potluck.algorithms.fedrac.assignment import Place, find_place, measure_work
from potluck.algorithms.fedrac.budgets import SLACK
from potluck.algorithms.fedrac.forming import weigh_work
from potluck.algorithms.fedrac.notes import SHARED
from potluck.algorithms.fedrac.settings import FedRACSettings
from potluck.algorithms.fedrac.state import Tiers
from potluck.authoring import Context, Node, Note


def share_work(s: FedRACSettings, m: Tiers, ctx: Context) -> tuple[Tiers, list[Note]]:
    """Who helps whom with places as they are, and a note of how many help each tier if that is new."""
    if s.share == "own":
        return m, []
    nodes = sorted(m.places)
    costs, terms, need = weigh_work(s, m, nodes, ctx)
    peopled = [tier for tier, size in enumerate(m.sizes) if size]
    helps: dict[Node, tuple[Place, ...]] = {}
    for who, node in enumerate(nodes):
        own, found = replace(m.places[node], who=who), list[Place]()
        used = measure_work(costs, own)
        for tier in (f for f in reversed(peopled) if f > own.tier):
            left = float(terms.seconds[tier]) / SLACK - used
            work = find_place(costs, terms, need, who, tier, seconds=left)
            if work is not None and not work.late:
                found.append(work)
                used += measure_work(costs, work)
        if found:
            helps[node] = tuple(found)
    if helps == m.helps:
        return m, []
    works = [work.tier for each in helps.values() for work in each]
    return replace(m, helps=helps), [Note(SHARED, {"helpers": [works.count(f) for f in range(len(m.specs))]})]
