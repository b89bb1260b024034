"""Groups, test-time shift, changes, wrong labels, triggers: one pool, and who holds what of it when.

Everything is laid out before a run, since executors share one pool that doesn't change; a phase is only
another way to point into it. The order: rows are divided, dealt anew by changes, a share of the test rows is
replaced, and then each client sees its rows as its group and the changes that it went through make them look.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, PotluckError
from potluck.core.keys import derive
from potluck.data.changes import Change, draw_clients, redeal
from potluck.data.flip import Flip
from potluck.data.groups import Groups, deal_groups, read_groups
from potluck.data.holding import Partition, StoredPartition, store, stream
from potluck.data.own_classes import deal_classes, give_own_classes
from potluck.data.partition.registry import PARTITIONS, Settings
from potluck.data.pool import Pool
from potluck.data.shift import Shift, read_shift, shift_tests
from potluck.data.trigger import Trigger
from potluck.data.views import Album, View, Viewed, check_turn, develop


@dataclass(frozen=True, eq=False)
class Phase:
    """Who holds what from a time on, until the next phase starts."""

    start: float  # virtual seconds
    partition: Partition
    test: NDArray[np.int64]  # the global test set
    changed: NDArray[np.bool_]  # [clients] whose rows differ from the phase before
    shifts: Mapping[Shift, Partition] = field(default_factory=dict)  # the same, at other shifts
    triggered: NDArray[np.int64] | None = None  # the test set of a backdoor, if there is one


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A pool with all rows as they are ever seen, and its phases, the first of which starts at 0."""

    pool: Pool
    phases: tuple[Phase, ...]
    group: NDArray[np.int32] | None  # the truth, of every client
    test_group: NDArray[np.int32] | None  # of every row of the global test set, ascending
    origin: NDArray[np.int64]  # of every row of the pool: the row that it was before
    flips: NDArray[np.bool_] | None = None  # the truth: whose train labels are wrong


class _Step(NamedTuple):
    """A phase before rows are laid out: who holds which row of the old pool, and in which view."""

    start: float
    partition: Partition
    view: NDArray[np.int32]  # [clients]
    trained: NDArray[np.int32]  # [clients] of train rows: the same, but for wrong labels
    tested: NDArray[np.int32]  # [global test rows]
    changed: NDArray[np.bool_]
    levels: tuple[Partition, ...] = ()  # as `partition`, at other shifts
    marked: NDArray[np.int32] | None = None  # [global test rows] with a backdoor's trigger


def arrange(
    pool: Pool,
    partition: Partition,
    key: int,
    *,
    groups: Groups | None = None,
    shift: Shift | float = 0.0,
    levels: Sequence[Shift | float] = (),
    changes: Sequence[Change] = (),
    flip: Flip | None = None,
    trigger: Trigger | None = None,
    poisoned: NDArray[np.bool_] | None = None,
    user: NDArray[np.int32] | None = None,
    edge: NDArray[np.int32] | None = None,
    kind: str | None = None,
    **options: Unpack[Settings],
) -> Arrangement:
    """Hidden groups, a shift of test rows, changes in mid-run and wrong labels, on top of a partition.

    `pool`, `partition`: the rows, and who holds which. `key`: the source of all that is drawn. `groups`,
    `shift`, `changes` and `flip` (wrong labels): each as its class says; None, or empty, for none.
    `user` says whose device a client is (the partition, unless told): a user's devices change together.
    Groups may be dealt to users, or to edges (`edge`: of each client).
    `kind` and `options` are what the partition was divided by, for changes that deal anew. `levels` are
    further shifts at which phases can be tested; nothing else depends on them. Clients that are `poisoned`
    train on rows of which a share bears the `trigger`.

    The global test set is what a model for everybody should be judged on: a mixture of all groups. Each of
    its rows is seen as one group sees it, dealt by hash in equal shares (`test_group`), and a change that
    turns a share of the clients' images turns that share of its rows. Server rows are mixed alike, but stay
    as they are at the start.
    """
    clients, test = partition.clients, np.flatnonzero(pool.test)
    views, group = [View()], None
    user = partition.user if user is None else user
    owners = {tier: who for tier, who in (("user", user), ("edge", edge)) if who is not None}
    view = np.zeros(clients, np.int32)
    apart = np.zeros(len(pool), np.int32)  # the view of each test and server row
    seeing = groups is not None and all(level.kind not in ("labels", "source") for level in groups.levels)
    if groups is not None:
        if groups.kind == "source":
            group = read_groups(pool, partition, groups.count)
        else:
            group = groups.deal(owners, clients, stream(key, b"groups"))
        weights = [1.0]  # of views
        for level, part in groups.part(group):
            if level.share is not None:
                _check_exchange(pool, partition, kind, changes)
                owner = deal_classes(pool, level.weights, key)
                partition = give_own_classes(pool, partition, part, owner, level.share, key)
            elif level.kind != "source":
                more = level.views(pool, key)
                views = [one.beside(other) for one in views for other in more]
                view = (len(more) * view + part).astype(np.int32)
                weights = [one * other for one in weights for other in level.weights]
        for name, mask in ((b"test", pool.test), (b"server", pool.server)):
            if mask is not None and len(views) > 1:
                apart[mask] = deal_groups(int(mask.sum()), weights, stream(key, name))
    first = _Step(0.0, partition, view, view, apart[test], np.zeros(clients, np.bool_))
    steps = [first, *_apply_changes(pool, views, first, changes, user, stream(key, b"change"), kind, options)]
    asked = [read_shift(level) for level in levels]
    steps = _shift_tests(pool, steps, read_shift(shift), asked, key)
    flips = None
    if flip is not None:
        flip.check(pool)
        flips = draw_clients(flip.share, clients, None, stream(key, b"flips"))
        wrong = stream(key, b"wrong")
        steps = _spoil_views(views, steps, flips, lambda view: replace(view, flip=flip.kind, key=wrong))
    if trigger is not None and poisoned is not None:
        some, sure = replace(trigger, key=stream(key, b"trigger")), replace(trigger, share=1.0)
        steps = _spoil_views(views, steps, poisoned, lambda view: replace(view, trigger=some))
        steps = [_mark_tests(views, step, sure) for step in steps]
    if len(views) == 1:
        phases = tuple(
            Phase(step.start, step.partition, test, step.changed, dict(zip(asked, step.levels, strict=True)))
            for step in steps
        )
        return Arrangement(pool, phases, group, None, np.arange(len(pool)))
    shifted = any(each.share for each in (read_shift(shift), *asked))
    album = develop(pool, views, _find_seen(pool, len(views), steps, apart, shifted), apart)
    phases = tuple(
        Phase(
            step.start,
            _view_through(step.partition, step.view, album.place, step.trained),
            np.sort(album.place[step.tested, test]),
            step.changed,
            {
                each: _view_through(level, step.view, album.place, step.trained)
                for each, level in zip(asked, step.levels, strict=True)
            },
            _find_triggered(album, step, test, trigger),
        )
        for step in steps
    )
    order = np.argsort(album.place[apart[test], test], kind="stable")
    test_group = apart[test][order] if seeing else None
    return Arrangement(album.pool, phases, group, test_group, album.origin, flips)


def _check_exchange(pool: Pool, partition: Partition, kind: str | None, changes: Sequence[Change]) -> None:
    """Refuse groups by labels where rows can't be exchanged."""
    said = kind is None or PARTITIONS[kind].counts_clients
    if said and isinstance(partition, StoredPartition):
        who = "somebody" if kind is None else repr(kind)
        raise ConfigError(
            f"groups.kind = 'labels': {who} says whose each row is, so that none can be exchanged; "
            "use partition 'iid', 'dirichlet', 'quantity' or 'procedural'"
        )
    for key, there in (("validation_from = 'users'", pool.validators), ("test_from = 'time'", pool.order)):
        if there is not None:
            raise ConfigError(f"{key}: rows are exchanged by groups.kind = 'labels'; use 'rows'")
    if any(change.kind == "labels" for change in changes):
        raise ConfigError(
            "changes.kind = 'labels': would deal rows whatever the groups; use another kind of either"
        )


def _shift_tests(
    pool: Pool, steps: Sequence[_Step], shift: Shift, levels: Sequence[Shift], key: int
) -> list[_Step]:
    """Steps with a share of the test rows replaced, and with every other shift: all by one key."""
    partitions = {id(step.partition): step.partition for step in steps}
    shown = {name: shift_tests(pool, mine, shift, key) for name, mine in partitions.items()}
    try:
        others = {
            name: tuple(shift_tests(pool, mine, level, key, rehearse=True) for level in levels)
            for name, mine in partitions.items()
        }
    except PotluckError as error:
        raise error.retell(f"evaluate.shifts: {error}") from error.__cause__
    return [
        step._replace(partition=shown[id(step.partition)], levels=others[id(step.partition)])
        for step in steps
    ]


def _apply_changes(
    pool: Pool,
    views: list[View],
    step: _Step,
    changes: Sequence[Change],
    user: NDArray[np.int32] | None,
    key: int,
    kind: str | None,
    options: Settings,
) -> Iterator[_Step]:
    """What follows a step, change by change; views that are new are put on the list."""
    for number, change in enumerate(changes):
        if change.at < step.start:
            raise ConfigError(
                f"changes.at = {change.at:g}: stands after {step.start:g}; sort changes by time"
            )
        new = derive(key, number)
        who = draw_clients(change.share, step.partition.clients, user, new)
        step = step._replace(start=change.at, changed=who)
        if change.kind == "labels":
            try:
                partition = redeal(pool, step.partition, who, derive(new, 1), kind, **options)
            except PotluckError as error:
                text = f"changes.kind = 'labels' at {change.at:g} s: {error}"
                raise error.retell(text) from error.__cause__
            step = step._replace(partition=partition)
        else:
            assert change.degrees is not None
            check_turn("changes.kind", pool, change.degrees)
            some = draw_clients(change.share, len(step.tested), None, derive(new, 2))
            view = _turn_views(views, step.view, who, change.degrees)
            step = step._replace(
                view=view,
                trained=view,
                tested=_turn_views(views, step.tested, some, change.degrees),
            )
        yield step


def _turn_views(
    views: list[View], view: NDArray[np.int32], changed: NDArray[np.bool_], degrees: float
) -> NDArray[np.int32]:
    """Which view each has after some were turned further."""
    now = view.copy()
    for old in np.unique(view[changed]).tolist():
        now[changed & (view == old)] = _find_place(views, views[old].turn(degrees))
    return now


def _spoil_views(
    views: list[View], steps: Sequence[_Step], who: NDArray[np.bool_], spoil: Callable[[View], View]
) -> list[_Step]:
    """Steps in which some train on spoilt rows; views that are new are put on the list."""
    out = []
    for step in steps:
        trained = step.trained.copy()
        for old in np.unique(trained[who]).tolist():
            trained[who & (step.trained == old)] = _find_place(views, spoil(views[old]))
        out.append(step._replace(trained=trained))
    return out


def _mark_tests(views: list[View], step: _Step, trigger: Trigger) -> _Step:
    """The step with the view of every global test row that bears the trigger."""
    marked = step.tested.copy()
    for old in np.unique(step.tested).tolist():
        marked[step.tested == old] = _find_place(views, replace(views[old], trigger=trigger))
    return step._replace(marked=marked)


def _find_triggered(
    album: Album, step: _Step, test: NDArray[np.int64], trigger: Trigger | None
) -> NDArray[np.int64] | None:
    """The global test rows with the trigger, but for those that are of its class anyway."""
    if step.marked is None or trigger is None:
        return None
    true = album.pool.y[torch.from_numpy(album.place[step.tested, test])].numpy()
    return np.sort(album.place[step.marked, test][true != trigger.target])


def _find_place(views: list[View], view: View) -> int:
    """Of a view on the list, where it is put if it is new."""
    if view not in views:
        views.append(view)
    return views.index(view)


def _find_seen(
    pool: Pool, views: int, steps: Sequence[_Step], apart: NDArray[np.int32], shift: bool
) -> NDArray[np.bool_]:
    """[views, rows] which rows anybody ever sees in which view."""
    seen = np.zeros((views, len(pool)), np.bool_)
    test = np.flatnonzero(pool.test)
    rows = np.flatnonzero(pool.test if pool.server is None else pool.test | pool.server)
    seen[apart[rows], rows] = True
    for step in steps:
        seen[step.tested, test] = True
        if step.marked is not None:
            seen[step.marked, test] = True
        for partition in (step.partition, *step.levels):
            if isinstance(partition, StoredPartition):
                owner, split = partition.cells // 3, partition.cells % 3
                seen[np.where(split == 0, step.trained[owner], step.view[owner]), partition.order] = True
            else:  # too many clients to look at each: anybody may hold any row
                anything = np.concatenate([pool.free, test]) if shift else pool.free
                seen[np.ix_(np.union1d(step.view, step.trained), anything)] = True
    return seen


def _view_through(
    partition: Partition, view: NDArray[np.int32], place: NDArray[np.int64], trained: NDArray[np.int32]
) -> Partition:
    viewed = Viewed(partition, view, place, trained)
    return store(viewed) if isinstance(partition, StoredPartition) else viewed
