"""How Fed-RAC's notes read in a report."""

from potluck.core.notes import Notes

NOTES = Notes({
    "tier_round round": "rounds done",
    "tier_round answered": "devices that answered in a round",
    "tier_round lost": "devices whose answers were lost",
    "tier_round late": "devices that were late",
    "tier_round loss": "loss in training",
})  # fmt: skip
