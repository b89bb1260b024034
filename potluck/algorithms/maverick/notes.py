"""How Maverick's notes read in a report; what edges of all kinds note is known there."""

from potluck.algorithms.fededge.notes import tell_edges
from potluck.core.notes import Notes

NOTES = Notes({
    "train_loss_personal": "contrast with the cloud's model in training",
    "train_loss_anomalous": "contrast with anomalous models in training",
    "train_contrast": "contrast in training",
}, tell=tell_edges)  # fmt: skip
