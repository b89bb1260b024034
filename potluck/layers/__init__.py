"""Layers: several systems on one fleet, each for one inequality, around a base rule.

The order is fixed, whatever order they are named in. From devices upward: users, edges, then at the cloud
cohorts around sizes around the base rule; above all, what is served (tuned or switch, and prior). `matrix`
says which of them go together.
"""

from potluck.layers.described import CLOUD, Level, describe_stack
from potluck.layers.matrix import (
    FITTED,
    LAYERS,
    SERVES,
    Row,
    check_layer,
    drop_fitted,
    find_refusal,
    list_apart,
    list_matrix,
    require_offered,
    sort_layers,
)
from potluck.layers.stacking import complete_base, complete_layers, find_source, find_weighed, stacked

__all__ = [
    "CLOUD",
    "FITTED",
    "LAYERS",
    "SERVES",
    "Level",
    "Row",
    "check_layer",
    "complete_base",
    "complete_layers",
    "describe_stack",
    "drop_fitted",
    "find_refusal",
    "find_source",
    "find_weighed",
    "list_apart",
    "list_matrix",
    "require_offered",
    "sort_layers",
    "stacked",
]
