"""The likeliest cause of what went wrong in a run: the first of these whose facts are there, surest first.

A cause is told with the numbers that it follows from and the setting that would change it. Where none of
the facts is there, that is said: a guess would send people astray.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from potluck.core.units import duration, percent, size
from potluck.experiment.story import Story

WASTED = 0.9  # of all tasks lost: the rest can't carry a run
ROSE = 1.1  # times the loss at the start: more than a model that stands still differs between evaluations
FELL = 0.99  # times the loss at the start: less is learning, however slow
STRONG = 1.0  # weight of a term beside the labels' loss, which counts once
ONE_SIDED = 1.5  # classes that a device knows, on average
STOPPED = 0.95  # of attackers' updates refused: what is left is not what spoils a model
SWINGS = 0.05  # of accuracy between two evaluations, on average: a model that settles has less
FEW = 3  # devices
ONE_CLASS = 0.9  # of a device's test rows, on average
SMALL = 0.1  # of the largest model
MOSTLY = 0.5  # of test rows

NOBODY_KNOWS = "no setting stands out; try other learning rates (`potluck tune`)"


def explain_divergence(story: Story) -> str:
    """Of a loss beyond all measure."""
    return _find_first(story, _attacked, _private, _outweighed) or (
        f"train.lr = {story.training.lr:g} is too high for this model and these data; lower it"
    )


def explain_chance(story: Story) -> str:
    """Of a run that learns nothing."""
    first = (_wasted, _unchanged, _few, _attacked, _private, _outweighed, explain_shift)
    return _find_first(story, *first, _rose, _slow, _one_sided, _still) or NOBODY_KNOWS


def explain_shift(story: Story) -> str:
    """Of models of devices' own that are tested mostly on classes which these never trained on."""
    shift = story.experiment.data.shift
    share, kind = (shift, "unseen") if isinstance(shift, int | float) else (shift.share, shift.kind)
    unseen = kind in ("unseen", "onset", "gradual") and share >= MOSTLY
    if not unseen or all(device.model is not None for device in story.judged.devices.values()):
        return ""
    return (
        f"data.shift = {share:g}: test rows are of classes that the device doesn't train on, and its "
        "own model leans on those that it does; choose settings that suit this, by [tune] shifts = true"
    )


def explain_no_room(story: Story) -> str:
    """Of test rows on which no accuracy would be above chance."""
    if story.chance >= ONE_CLASS:
        return "nearly all that a device is tested on is of one class; test it on others, too, by data.shift"
    rows = sum(int(device.labels.sum()) for device in story.judged.devices.values())
    return f"{rows} test rows are too few to tell; let devices hold more rows, or raise data.test"


def explain_fall(story: Story) -> str:
    """Of a model that was better before."""
    return _find_first(story, _changed, _attacked, _private, _outweighed, _swings, _rose) or NOBODY_KNOWS


def explain_collapse(story: Story, nodes: Sequence[int], others: Sequence[int]) -> str:
    """Of a group's model that learned next to nothing."""
    own, most = (max(story.judged.devices[n].nbytes for n in each) for each in (nodes, others))
    total = len(nodes) + len(others)
    if len(nodes) <= FEW:
        return f"only {len(nodes)} of {total} devices use it"
    if own < SMALL * most:
        return (
            f"its model is small: {size(own)} of parameters, where others have up to {size(most)}; widen it"
        )
    return _find_first(story, _attacked, _private) or (
        f"{len(nodes)} of {total} devices use it, and its model isn't small: it was trained for too "
        f"few rounds, or at a rate that doesn't suit it (train.lr = {story.training.lr:g})"
    )


def _find_first(story: Story, *causes: Callable[[Story], str]) -> str:
    return next((told for cause in causes if (told := cause(story))), "")


def _wasted(story: Story) -> str:
    """Next to nothing was trained."""
    lost, done = story.outcome["lost"], story.outcome["tasks"]
    asked = sum(lost.values()) + done
    if not asked:
        return "nobody was asked to train"
    if done > (1 - WASTED) * asked:
        return ""
    why = max(lost, key=lambda reason: lost[reason])
    fixes = {
        "late": "raise the deadline, or let devices train less",
        "gone": "devices leave before they are done: let them train less",
        "bad": "lower train.lr, if updates aren't finite; `bad_update` in the records says what they are",
    }
    fix = fixes.get(why, "the records say when")
    return f"{asked - done:.0f} of {asked:.0f} tasks were lost, most of them {why}; {fix}"


def _unchanged(story: Story) -> str:
    """Nothing that was trained ever reached the model that is served."""
    length, tasks = duration(story.outcome["virtual_seconds"]), story.outcome["tasks"]
    if not story.outcome["rounds"]:
        return f"no round was over within {length}, so the model is as at the start; let the run be longer"
    if not story.loss or len({p.value for p in story.loss}) > 1:
        return ""
    return (
        f"nothing of the {tasks:.0f} tasks that were done within {length} changed the model that is served: "
        "let the run be longer, or see whom it waits for"
    )


def _few(story: Story) -> str:
    count = story.outcome["participants"]
    return f"only {count:.0f} devices ever took part" if count <= FEW < len(story.judged.devices) else ""


def _attacked(story: Story) -> str:
    attack, name = story.experiment.fleet.attack, story.experiment.algorithm
    who = next((len(r["value"]) for r in story.records if r["metric"] == "attackers"), 0)
    if attack is None or not who or _stopped(story):
        return ""
    then = "nobody judges updates; set [robust]"
    if story.experiment.robust is not None:
        then = "the judge of [robust] doesn't stop them"
    elif story.experiment.algorithms.get(name, {}).get("robust") is not None:
        then = f"the judge of algorithms.{name}.robust doesn't stop them; try another, such as by [robust]"
    return f"{who} devices attack (fleet.attack.kind = {attack.kind!r}), and {then}"


def _stopped(story: Story) -> bool:
    """Whether a judge refused nearly all that attackers sent."""
    attackers = {node for r in story.records if r["metric"] == "attackers" for node in r["value"]}
    judged = [n for r in story.records if r["metric"] == "guarded" for n in r["value"].get("judged", ())]
    refused = [n for r in story.records if r["metric"] == "anomalous" for n in r["value"]]
    sent, caught = (sum(node in attackers for node in nodes) for nodes in (judged, refused))
    return bool(sent) and caught >= STOPPED * sent


def _private(story: Story) -> str:
    noise = story.training.privacy
    if noise is None:
        return ""
    much = f"sigma = {noise.sigma:g}, clip = {noise.clip:g}"
    return (
        f"the noise of train.privacy ({much}) outweighs updates; lower sigma, or merge more devices a round"
    )


def _outweighed(story: Story) -> str:
    """A term beside the labels' loss that counts for more than that."""
    name = story.experiment.algorithm
    own = story.experiment.algorithms.get(name, {})
    terms = {key: v for key, v in own.items() if key.partition("_")[0] == "mu" and isinstance(v, int | float)}
    key = max(terms, key=lambda term: terms[term], default=None)
    if key is None or terms[key] <= STRONG:
        return ""
    return f"algorithms.{name}.{key} = {terms[key]:g} outweighs the labels, whose loss counts once; lower it"


def _rose(story: Story) -> str:
    if not story.loss:
        return ""
    first, most = story.loss[0].value, max(p.value for p in story.loss)
    if most <= ROSE * first:
        return ""
    to = f"{most:.3g}" if math.isfinite(most) else "infinity"
    return f"the loss rose from {first:.2f} to {to}: train.lr = {story.training.lr:g} is too high; lower it"


def _slow(story: Story) -> str:
    if not story.loss or story.loss[-1].value >= FELL * story.loss[0].value:
        return ""
    first, last = story.loss[0].value, story.loss[-1].value
    return (
        f"it is slow: the loss fell from {first:.2f} to {last:.2f}, and accuracy comes later; train longer, "
        f"or at a rate above train.lr = {story.training.lr:g}"
    )


def _still(story: Story) -> str:
    """Training changes next to nothing."""
    losses = [p.value for p in story.loss]
    if not losses or max(losses) - min(losses) > (1 - FELL) * losses[0]:
        return ""
    return (
        f"the loss stays at {losses[-1]:.2f}: train.lr = {story.training.lr:g} is too low to tell; raise it"
    )


def _one_sided(story: Story) -> str:
    mine, classes = story.judged.count_classes()
    if mine > ONE_SIDED or classes <= 2:
        return ""
    return (
        f"a device knows {mine:.1f} of {classes} classes, so updates undo each other; merge more devices a "
        "round, or train less in between"
    )


def _swings(story: Story) -> str:
    later = story.accuracy[len(story.accuracy) // 2 :]
    steps = [abs(b.value - a.value) for a, b in pairwise(later)]
    if not steps or statistics.fmean(steps) < SWINGS:
        return ""
    swing = percent(statistics.fmean(steps)).removesuffix(" %")
    return (
        f"accuracy swings, by {swing} points from one evaluation to the next: merge more devices a round, or "
        f"lower train.lr = {story.training.lr:g}"
    )


def _changed(story: Story) -> str:
    end = story.accuracy[-1].time
    times = [change.at for change in story.experiment.data.changes if change.at <= end]
    return f"the data changed at {times[-1]:g} s (data.changes)" if times else ""
