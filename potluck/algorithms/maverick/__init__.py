"""Maverick (anonymous 2025, Personalized Edge-Assisted Federated Learning with Contrastive Training).

Edges go on training while the cloud is silent, as in FedEdge; those with fast devices hold more rounds, and
drag the global model to them. So every device learns a model of its own: while it trains, contrastive terms
pull what it sees in each row towards what its edge's model sees there, away from what the global model sees
(`mu_p`), and away from what those models see that the edge judged anomalous (`mu_a`), the farther ones the
more. Of these an edge sends the `top` farthest.

All that concerns rounds, mixing and the cloud is said at fededge. Readings where the paper leaves it open:
tau is MOON's 0.5; representations are the inputs of the model's last layer, without a projection head; how
far an anomalous model is off is its mean L2 distance to the genuine ones, and weights are shares of those
that are sent; models and weights of a round go out together. Deviations: the frozen models look at every row
once a local round (the paper: the global one once a global round); devices are sent the global model with
every local round, not only when it is new. Means of the three terms over an edge's devices are noted after
every local round, as `train_loss`, `train_loss_personal` and `train_loss_anomalous`. Views: as in hierfl; the
paper's own is `personal`.
"""
