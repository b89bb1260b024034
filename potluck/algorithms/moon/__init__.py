"""MOON (Li, He, Song 2021, Model-Contrastive Federated Learning).

A device's data are one-sided, and so become the representations that it learns. The global model's are
better: while a device trains, a contrastive term pulls what it sees in each row towards what the global model
sees there, and away from what its own last model saw. The server averages as in FedAvg.

Deviations: no projection head; representations are the inputs of the model's last layer (the authors' code
can be told so too), and dropout inside of that layer, where a model has any, is off in training. The frozen
models look at every row once (the code: at every batch, augmented anew). One previous model is kept, the
default of the code, and a device that never trained takes the model that it is sent for it, so that the term
has no gradient; the code leaves the term out of its first round and later takes weights of chance. A training
that is lost or late leaves the previous model as it was. Momentum and weight decay are those of the
experiment (the code: 0.9 and 1e-5). Any server optimiser, deadlines and over-commitment can be had. What
devices last trained is scored beside the global model, as the view `personal`; at an aggregator, which trains
none of its own, there is only `global`.
"""

from typing import Final

FIDELITY: Final = "authors' code"
