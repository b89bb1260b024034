"""Fed-RAC (Mishra, Gupta, Banga, Das 2024, Fed-RAC: Resource-Aware Clustering for Tackling Heterogeneity of
Participants in Federated Learning).

One model for all is either too big for slow phones or too small for fast ones. So participants are clustered
by speed, rate and memory; there are tiers with a model of their size each; and everyone trains in the richest
tier whose model it can hold and train in time. All tiers train in the same rounds, and richer devices train
poorer tiers' models, too, in the time that they have left. At use, a device heeds its tier's model and all
poorer ones, of each class by the rows of it that each has learnt from. As published, a tier is for those near
its cluster; the richest, the leader, trains first, and the others follow with federated averaging of their
own and learn from labels and from what the leader says of their rows.

There is authors' code (a notebook). Where it and the paper differ, or the paper is in error, the files here
say what was settled: distances, the number of clusters, alpha's direction, the bounds, Procedure 2.

Deviations by default, in mode `potluck`; PUBLISHED undoes each. Time and memory alone decide who trains where
(`judge = "able"`), with all rows and whole batches but in the last tier. Clusters tell how many tiers there
are (three at least where somebody can't hold the whole model) and how long a round is; models are spread from
the largest that anybody can hold to one that everybody can, so that a small phone among rich ones makes
nobody's smaller. Work is shared (`share = "down"`): the smallest model first, for which whoever is in a
richer tier has time kept, then the next, while the round lasts. Members and helpers count by their rows.
Nobody is taught, unless `distillation.enabled`, with labels at 0.5 and a temperature of 1. Rounds are the
run's; the time of one, if no `mar` is given, is enough for everybody's own model and the smallest. `use =
"known"` asks devices how many rows of each class they have. `mixing.back` feeds layer-wise averages back
every round.

Readings and deviations of both. As published a tier is open to those whose score reaches its cluster's mean,
or is nearer to it than to the next poorer one's (`judge = "surrogate"`): who could hold a richer tier's
model, and train it in time, still stays with its like. The paper's bounds (`judge = "bound"`) open all tiers;
with constants that leave a tier to one device where more could train, they are refused, since one alone is
consistent whatever they are. Small clusters are merged before models are sized, not after the assignment.
`delta` and `theta` are compared with measured losses in units of a guess's (ln classes): the notebook's 0.03,
made for random numbers, would empty all tiers but the last. Before losses are known, resources decide. The
time that all have (`mar`), left out, is the least in which everybody can train as its own cluster does, and a
fifth more. The teacher isn't free: its download and its pass over a follower's rows are charged, once, since
the device keeps what it said; a round in which it is sent may take that much longer. A phone that can't hold
it streams its weights from flash, layer by layer: the same lesson at a higher cost of time. With a head
start, followers learn from the leader of that moment, and once more from the finished one. Rates and speeds
are measured before anybody is placed (the paper: rates, in the first round; speeds are looked up), again
every `remeasure` rounds of a tier, and rates by every reply. Training that needs more memory than there is
swaps and is slow, which is how a lie about memory shows; who was sent down for it doesn't come up again.
What `mixing` makes is Potluck's own: tiers keep their models. Everybody says how many rows it has. The last
tier's model is small enough for those, too, who aren't there yet when tiers are made. Rounds are the leader's
and those of the follower that had most.
"""

from collections.abc import Mapping
from typing import Final

FIDELITY: Final = "paper and authors' code, both corrected"
PUBLISHED: Final[Mapping[str, object]] = {
    "rounds": 50,
    "admission": {"judge": "surrogate"},
    "share": "own",
    "use": "tier",
    "schedule": {"head_start": "all"},
    "distillation": {"enabled": True, "a": 0.1, "temperature": 3.0},
}
