"""Whether a run went wrong, and by what: words at its end, made of its records and of what it is judged by.

A false alarm is as bad as silence, so every bound below is one that a run which learns stays clear of. At
most one thing is said of the whole run: that it diverged, else that it is at chance, else that it fell. Where
none of these is so, each group of devices whose own model collapsed is told.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TypedDict

from potluck.core.records import Record
from potluck.core.units import percent
from potluck.experiment import causes
from potluck.experiment.judged import Judged
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.story import Story

EARLY = 0.1  # of a run's virtual time, in which nothing is expected of it
ERRORS = 2.0  # standard errors above chance at which test rows could still put a model that knows nothing
FALL = 0.1  # from the best mean accuracy to the last: what users lose by the end
EXPLODED = 10.0  # times its start, or the loss of guessing: a confident model that errs stays far below
LEARNED = 0.5  # of the way from chance to 1: whoever has come so far isn't called diverged, whatever the loss
LAGGED = 1 / 3  # of what other groups learned above chance: small models learn less, but not so little
APART = 3.0  # standard errors of a group's mean, by how much other devices differ, that it must lie below


class Remark(TypedDict):
    """One thing that went wrong."""

    kind: str  # diverged, chance, fell, collapsed or undone
    text: str
    cause: str  # the likeliest one


def find_remarks(records: Sequence[Record], experiment: Experiment, judged: Judged) -> list[Remark]:
    """What is to be said of a run; nothing, where it did what it should."""
    story = Story(records, experiment, judged)
    if len(story.accuracy) < 2 or not judged.devices:
        return []
    remark = _find_divergence(story) or _find_chance(story) or _find_fall(story)
    whole = list(_find_collapses(story)) if remark is None else [remark]
    return [*whole, *_find_undone(story)]


def _find_divergence(story: Story) -> Remark | None:
    """The loss is beyond all measure, and what was learned is lost or never came."""
    if not story.loss:
        return None
    first, last = story.loss[0].value, story.loss[-1].value
    start = max(first, math.log(story.judged.count_classes()[1]))
    far = story.chance + LEARNED * (1 - story.chance)
    if last <= EXPLODED * start or story.accuracy[-1].value >= far:  # NaN became infinite
        return None
    became = f"rose from {first:.2f} to {last:.3g}" if math.isfinite(last) else "is no finite number"
    told = f"diverged: the loss of the middle device {became}, accuracy ends at {_tell_last(story)}"
    return {"kind": "diverged", "text": told, "cause": causes.explain_divergence(story)}


def _find_chance(story: Story) -> Remark | None:
    """At chance at the end, and at half or more of all evaluations after the first tenth of the run."""
    begin = EARLY * story.accuracy[-1].time
    later = [p.value for p in story.accuracy[1:] if p.time >= begin]
    most = story.chance + ERRORS * story.judged.find_error(story.chance)
    if later[-1] > most or statistics.median(later) > most:
        return None
    own = any(device.model is None for device in story.judged.devices.values())
    which = "the class that a device has most of" if own else "the same class"
    same = f"{percent(story.chance)} for always answering {which}"
    if most >= 1:
        ends = f"it ends at {_tell_last(story)}, and none is clearly above chance ({same})"
        told = f"accuracy tells nothing: {ends}"
        return {"kind": "chance", "text": told, "cause": causes.explain_no_room(story)}
    cause = causes.explain_chance(story)
    told = f"learns nothing: accuracy ends at {_tell_last(story)}, which is chance ({same})"
    if cause == causes.explain_shift(story):  # it may have learned what it isn't tested on
        told = f"is no better than chance: accuracy ends at {_tell_last(story)} ({same})"
    return {"kind": "chance", "text": told, "cause": cause}


def _find_fall(story: Story) -> Remark | None:
    """Ten points below the best, and by more than two such measurements differ by chance."""
    best, last = max(story.accuracy, key=lambda p: p.value), story.accuracy[-1]
    noise = 2**0.5 * ERRORS * story.judged.find_error(best.value)
    if best.value - last.value < max(FALL, noise):
        return None
    told = f"fell: accuracy had {percent(best.value)} in round {best.round} and ends at {_tell_last(story)}"
    return {"kind": "fell", "text": told, "cause": causes.explain_fall(story)}


def _find_collapses(story: Story) -> Iterable[Remark]:
    """Groups whose model learned next to nothing, while those of others did."""
    judged, end = story.judged, story.accuracy[-1].time
    scores = {
        r["node"]: float(r["value"])
        for r in story.records
        if r["metric"] == "accuracy" and r["time"] == end and r.get("view") == story.view and "node" in r
    }
    groups = judged.groups
    for name, nodes in groups.items():
        others = [n for other in groups if other != name for n in groups[other]]
        if len(others) < 2:
            continue
        mine, theirs = (statistics.fmean(scores[n] for n in which) for which in (nodes, others))
        learned = theirs - judged.find_chance(others)
        apart = APART * statistics.stdev(scores[n] for n in others) / len(nodes) ** 0.5
        if learned <= 0 or mine - judged.find_chance(nodes) >= LAGGED * learned or theirs - mine < apart:
            continue
        its = "device" if len(nodes) == 1 else f"{len(nodes)} devices"
        told = f"{name} collapsed: {percent(mine)} with its {its}, {percent(theirs)} with others"
        yield {"kind": "collapsed", "text": told, "cause": causes.explain_collapse(story, nodes, others)}


def _find_undone(story: Story) -> Iterable[Remark]:
    """Merges that the loop took back: the run went on, without those answers."""
    count = sum(r["metric"] == "undone" for r in story.records)
    if count:
        merges = "a merge" if count == 1 else f"{count} merges"
        told = f"{merges} made numbers NaN or infinite and had to be undone"
        yield {"kind": "undone", "text": told, "cause": causes.explain_divergence(story)}


def _tell_last(story: Story) -> str:
    return percent(story.accuracy[-1].value)
