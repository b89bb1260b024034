"""What algorithms note of groups, in plain words; a note that isn't known here is told by its own name."""

WORDS = {
    # cohorts (Auxo, IFCA) and groups of devices
    "cohort participants": "devices that took part in its round",
    "cohort newcomers": "devices that took part for the first time",
    "cohort members": "participants that belong to it",
    "cohort reward": "how well participants fit it, on average",
    "cohort heterogeneity": "spread of participants' updates",
    "cohort heterogeneity_after": "spread of participants' updates, were it split",
    "cohort ratio": "spread within its parts, over that of the whole",
    "cohort wild": "updates too long to learn from",
    "blacklisted": "number of a device that was shut out",
    "chose": "devices that chose its model",
    # classes (ClassTer)
    "converged": "updates after which its detector had converged",
    "calibration mean": "mean of its detector's outputs",
    "calibration deviation": "deviation of its detector's outputs",
    "staleness": "updates by others while a device trained",
    "share": "weight of an update",
    "critical": "whether progress still speeds up (1) or not (0)",
    # users (ShuffleFL)
    "rows_moved": "rows that moved between its devices in a round",
    "planning_seconds": "seconds that planning took",
    "objective_before": "cost of a round before rows move",
    "objective_after": "cost of a round after rows have moved",
    "alpha": "seconds that balance of labels is worth",
    "beta": "time expected, over that of its last round",
    # edges (FedEdge, Maverick)
    "mixed": "distance of the edge's model from the cloud's when they were mixed",
    "train_loss": "loss in training",
    "train_loss_personal": "contrast with the cloud's model in training",
    "train_loss_anomalous": "contrast with anomalous models in training",
    "train_contrast": "contrast in training",
    # tiers (Fed-RAC)
    "tier_round round": "rounds done",
    "tier_round answered": "devices that answered in a round",
    "tier_round lost": "devices whose answers were lost",
    "tier_round late": "devices that were late",
    "tier_round loss": "loss in training",
}


def in_words(thing: str) -> str:
    """A title for what was noted: its name, and the key of a number if it has several."""
    return WORDS.get(thing, thing.replace("_", " "))
