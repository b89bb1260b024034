"""How Auxo's notes read in a report."""

from potluck.core.notes import Notes

NOTES = Notes({
    "cohort participants": "devices that took part in its round",
    "cohort newcomers": "devices that took part for the first time",
    "cohort members": "participants that belong to it",
    "cohort reward": "how well participants fit it, on average",
    "cohort heterogeneity": "spread of participants' updates",
    "cohort heterogeneity_after": "spread of participants' updates, were it split",
    "cohort ratio": "spread within its parts, over that of the whole",
    "cohort persistence": "agreement of its sides with those that rounds before foretell",
    "cohort gap": "space between its sides",
    "cohort wild": "updates too long to tell sides by",
    "cohort strays": "updates like no cohort's, kept out",
    "blacklisted": "number of a device that was shut out",
})  # fmt: skip
