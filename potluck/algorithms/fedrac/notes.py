"""Fed-RAC's notes: the names under which it records what happens, and how they read in a report."""

from typing import Final

from potluck.core.notes import Notes

TIERS: Final = "tiers"  # as they were formed: devices, sizes of models, seconds and rounds of each
TIER: Final = "tier"  # a device's, how much work it has there, and why
TIER_ROUND: Final = "tier_round"  # who answered, who was late, and the loss in training
SHARED: Final = "shared"  # how many richer devices train each tier's model, too
FALSE_REPORT: Final = "false_report"  # what a device claimed, and what was measured instead
LEFT_OUT: Final = "left_out"  # a device that can't hold any model
LATE_AT_BEST: Final = "late_at_best"  # devices too slow for the last tier, even with the least work
CONSTANT_RESOURCES: Final = "constant_resources"  # in which all are alike, so that they tell nobody apart

NOTES = Notes({
    f"{TIER_ROUND} round": "rounds done",
    f"{TIER_ROUND} answered": "devices that answered in a round",
    f"{TIER_ROUND} helpers": "richer devices among them",
    f"{TIER_ROUND} lost": "devices whose answers were lost",
    f"{TIER_ROUND} late": "devices that were late",
    f"{TIER_ROUND} loss": "loss in training",
})  # fmt: skip
