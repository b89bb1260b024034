"""FedGS (Li, He, Yu et al. 2022, Data Heterogeneity-Robust Federated Learning via Group Client Selection).

Devices stand in groups: the machines of a factory, say. Within a group, each step is taken by a few devices
whose next batches together have nearly the labels of the whole federation, so that their mean gradient is
that of a balanced batch. They take one step each, the group averages, others are chosen; after many such
steps the cloud averages the groups' models.

From the authors' code: who is chosen (selection.py), beside 2 of a step's 10 who are drawn by chance; one
batch a step, averages by rows within a group and by chosen devices above, batches that stay next until they
are trained. Deviations: what is drawn is a share, so that of few devices not all are, and anew every step
(the code seeds its draw by the round). The labels of the federation are asked for once, before the first
round (the code counts them itself). The target is as many rows as the chosen devices have on average, since
small ones don't fill a batch. Only devices that were chosen say again what comes next; if their rows change
meanwhile, what they said is out of date. Planning takes no time on the clock. `epochs` and `steps` of [train]
have no say. Devices without a group don't take part. Everybody is served the cloud's model.
"""

from typing import Final

FIDELITY: Final = "authors' code"
