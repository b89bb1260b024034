"""How Maverick's notes read in a report; what edges of all kinds note is known there."""

from potluck.algorithms.fededge.notes import VIEWS, tell_edges
from potluck.core.notes import Crowd, Notes

NOTES = Notes({
    "train_loss_personal": "contrast with the cloud's model in training",
    "train_loss_anomalous": "contrast with anomalous models in training",
    "train_contrast": "contrast in training",
}, tell=tell_edges, crowd=Crowd(
    "edges", "For edges that are near while the cloud is far, regions that differ, and devices that lie."
), views=VIEWS)  # fmt: skip
