"""SHARE (Deng, Lyu, Ren et al. 2021, SHARE: Shaping Data Distribution at Edge for Hierarchical FL).

A hierarchy saves traffic with the cloud, but edges whose devices hold few classes drift apart between two of
the cloud's rounds. So who aggregates, and for whom, is chosen such that traffic is small and the labels below
every edge are nearly those of all devices; then edges and cloud average as in HierFAVG.

From what is known of the paper and of a public implementation of its journal version (ShapeFL): a greedy
association of devices by traffic plus gamma times the rise of the edges' mean Kullback-Leibler divergence,
a local search over sets of edges, one local epoch ([train]) and ten edge rounds for one of the cloud. Our
own: four edges of equal capacity; traffic is seconds by claimed rates, in units of the mean, and gamma 100 by
that measure; those with most rows choose first; a device that is an edge belongs to itself. The labels are
asked for before the first round and again, of devices that come new, between two of the cloud's; then the
shape is made anew. Edges are a plan, not machines: their devices' messages go the usual way to the server,
and neither planning nor the hop from an edge to the cloud takes time. The edges that a fleet has play no
part. Who refuses the model takes no part; where many can't hold it, choose a smaller one by `[model] width`.

Devices are served their edge's model (`edge`) and the cloud's (`global`).
"""

from typing import Final

FIDELITY: Final = "paper and code of others (ShapeFL), in part Potluck's own"
