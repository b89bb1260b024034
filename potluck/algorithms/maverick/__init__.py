"""Maverick (anonymous 2025, Personalized Edge-Assisted Federated Learning with Contrastive Training).

Edges go on training while the cloud is silent, as in FedEdge, and devices learn models of their own. While
they train, contrastive terms pull what they see in each row towards what their edge's model sees there, away
from what the global model sees (`mu_p`), and away from what those models see that the edge judged anomalous
(`mu_a`), the farther ones the more. Of these an edge sends the `top` farthest.

Deviations of the defaults; `mode = "published"` has the paper's. Edges carry over what they learnt, and
nobody is judged unless `robust`, or the experiment's [robust], says by whom: as in fededge. The contrast is a
hinge: it pushes only where a row isn't nearest to the edge's model already (`contrast = "log"`, the paper's,
always does, and at its weights drowns the labels). Without the term of the global model: as a hinge it
changes nothing that was seen on validation rows, and it takes two passes over all rows and a model sent with
every task. So where nobody is judged odd, devices train as in FedEdge.

All that concerns rounds, mixing and the cloud is said at fededge. Readings where the paper leaves it open:
tau is MOON's 0.5; representations are the inputs of the model's last layer, without a projection head; how
far an anomalous model is off is its mean L2 distance to the genuine ones, and weights are shares of those
that are sent; models and weights of a round go out together. Deviations of both modes: the frozen models look
at every row once a local round (the paper: the global one once a global round); devices are sent the global
model with every local round, not only when it is new. Means of the three terms over an edge's devices are
noted after every local round, as `train_loss`, `train_loss_personal` and `train_loss_anomalous`. Views: as in
hierfl; the paper's own is `personal`.
"""

from collections.abc import Mapping
from typing import Final

PUBLISHED: Final[Mapping[str, object]] = {
    "mu_p": 10.0,
    "mu_a": 1.0,
    "contrast": "log",
    "robust": "AdaptiveKrum",
    "mix": "half",
    "edge_view": "mixed",
}
