"""Which models are tested on the rows that no device holds, and how much each counts.

They are those of the view that a run is judged by: every device counts once, so a model counts as often as
it is used. What a device has made its own, by training or out of its memory, is left alone: it isn't meant
for everybody's rows. Where there are such models, the last view without any is tested instead (the cloud's
word comes last), or what the cloud serves itself; and it is said that devices use others.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core.job import Local
from potluck.core.trees import form, leaves
from potluck.execute.reference import Item, recall


class GlobalTest(NamedTuple):
    """The models of a view, each where it was first found, and which of them each device has."""

    view: str
    models: dict[Hashable, Item]
    uses: list[Hashable]
    used: bool  # False: devices use models of their own


def choose_models(devices: Mapping[str, Sequence[Item]], cloud: Mapping[str, Item]) -> GlobalTest | None:
    """What is tested, given what devices and the cloud are served by view, the headline first."""
    headline, *others = devices
    for view in (headline, *reversed(others)):
        if (found := _find_shared(devices[view])) is not None:
            return GlobalTest(view, *found, used=view == headline)
    found = _find_shared(list(cloud.values()))
    if found is None or len(found[0]) != 1:
        return None
    return GlobalTest(next(iter(cloud)), *found, used=False)


def identify_shared(item: Item) -> Hashable | None:
    """Equal for all who use the very model that was sent; None for one that is a device's own."""
    job, at = item
    if job.looks or len(job.draw(at).index) > 0:
        return None
    begun = job.begin(at.models[job.model], at.inbox, recall(item), None)
    used, sent = [id(t) for t in leaves(begun)], {id(t) for t in leaves(at.inbox)}
    return (job.shape(), form(begun), *used) if sent.issuperset(used) else None


def set_test(item: Item, rows: NDArray[np.int64]) -> Item:
    """The same where it is, but for the rows that it is tested on."""
    at = item.at
    return Item(item.job, Local(at.node, at.rows, at.inbox, at.keep, at.seed, at.models, at.pool, rows))


def _find_shared(items: Sequence[Item]) -> tuple[dict[Hashable, Item], list[Hashable]] | None:
    """The different models and who has which; None if one isn't shared, or nobody has any."""
    models, uses = dict[Hashable, Item](), list[Hashable]()
    for item in items:
        name = identify_shared(item)
        if name is None:
            return None
        models.setdefault(name, item)
        uses.append(name)
    return (models, uses) if uses else None
