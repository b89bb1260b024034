"""How Auxo's notes read in a report."""

from collections.abc import Sequence

from potluck.core.notes import Crowd, Notes
from potluck.core.records import Record
from potluck.core.units import plural, times
from potluck.metrics import noted


def tell_cohorts(records: Sequence[Record]) -> str:
    """How often cohorts split, and how many there were in the end."""
    splits, out = noted(records, "split", dict), len(set(noted(records, "blacklisted", int)))
    rounds = len(noted(records, "cohort", dict))
    if not rounds:
        return ""
    shut = f" {plural(out, 'device')} had to stay out." if out else ""
    if not splits:
        return f"Its one cohort trained {times(rounds)} and never split.{shut}"
    cohorts = 1 + sum(len(split["into"]) - 1 for split in splits)
    when = f"{'first ' if len(splits) > 1 else ''}after {plural(splits[0]['round'], 'round')}"
    told = f"Cohorts split {times(len(splits))}, {when}, into {cohorts}, and trained {times(rounds)} in all."
    return told + shut


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
}, tell=tell_cohorts, crowd=Crowd(
    "kinds", "For a few kinds of users who need different models, when nobody says who is who."
), group="cohort")  # fmt: skip
