"""Fed-RAC's notes: the names under which it records what happens, and how they read in a report."""

from collections.abc import Sequence
from typing import Final

from potluck.core.notes import Crowd, Notes
from potluck.core.records import Record
from potluck.core.units import plural
from potluck.metrics import noted

TIERS: Final = "tiers"  # as they were formed: devices, sizes of models, seconds and rounds of each
TIER: Final = "tier"  # a device's, how much work it has there, and why
TIER_ROUND: Final = "tier_round"  # who answered, who was late, and the loss in training
SHARED: Final = "shared"  # how many richer devices train each tier's model, too
FALSE_REPORT: Final = "false_report"  # what a device claimed, and what was measured instead
LEFT_OUT: Final = "left_out"  # a device that can't hold any model
LATE_AT_BEST: Final = "late_at_best"  # devices too slow for the last tier, even with the least work
CONSTANT_RESOURCES: Final = "constant_resources"  # in which all are alike, so that they tell nobody apart


def tell_tiers(records: Sequence[Record]) -> str:
    """Which tiers had how many members in the end, who helped them, and how often each trained."""
    made = noted(records, TIERS, dict)
    if not made:
        return ""
    where = {r["group"]: r["value"]["tier"] for r in records if r["metric"] == TIER and "group" in r}
    tiers = range(len(made[-1]["scales"]))
    rounds = {r["group"]: r["value"]["round"] for r in records if r["metric"] == TIER_ROUND and "group" in r}
    members = [sum(tier == f for tier in where.values()) for f in tiers]
    told = f"Its {len(tiers)} tiers, the richest first, had {_list(members)} members in the end"
    if shared := noted(records, SHARED, dict):
        told += f", and {_list(shared[-1]['helpers'])} helpers of richer tiers"
    told += f"; they trained {_list([rounds.get(f, 0) for f in tiers])} rounds."
    out = len({r.get("group") for r in records if r["metric"] == LEFT_OUT})
    return f"{told} {plural(out, 'device')} too small for any model." if out else told


def _list(numbers: Sequence[int]) -> str:
    *most, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(most)} and {last}" if most else last


NOTES = Notes({
    f"{TIER_ROUND} round": "rounds done",
    f"{TIER_ROUND} answered": "devices that answered in a round",
    f"{TIER_ROUND} helpers": "richer devices among them",
    f"{TIER_ROUND} lost": "devices whose answers were lost",
    f"{TIER_ROUND} late": "devices that were late",
    f"{TIER_ROUND} loss": "loss in training",
}, tell=tell_tiers, crowd=Crowd(
    "sizes", "For devices so unequal that one size of model doesn't fit them all."
), group="tier", views={
    "tier": "the model of the device's tier",
    "known": "the answer of its tier's and all poorer models, each heeded for classes it learnt",
})  # fmt: skip
