"""Kinds of test-time shift, and the order in which a device meets its test rows."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from federations import pool as synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from test_drift import parted, pictures
from test_partition import keys, pool_of

import potluck
from potluck.core.errors import ConfigError, DataError
from potluck.data import SHIFT_KINDS, Change, Groups, Shift, StoredPartition, arrange, divide, order_of_stream
from potluck.data.shift import count_replaced, place_gradually, place_onset, shift_tests
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment
from potluck.report.per_device import read_at_shift

quick = settings(max_examples=25, deadline=None)

# A client trains on three rows of class 0 and two of class 1, and is tested on eight of them; of each of four
# classes there are ten rows in the global test set.
OWN = [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]
POOL = pool_of(OWN + [0, 1, 2, 3] * 10, test=[False] * 14 + [True] * 40)
HELD = StoredPartition(np.arange(14), np.array([0, 5, 6, 14]))


def cut(shift, key):
    """The client's test rows, as the partition has them, and of each whether it is its own."""
    rows = shift_tests(POOL, HELD, shift, key).rows(0, "test")
    return rows, rows < 14


def classes(rows):
    return Counter(POOL.y.numpy()[rows].tolist())


# -------------------------------------------------------------------------------------------------- kinds


def test_unseen_is_of_classes_without_train_rows():
    rows, own = cut(Shift(0.5), 1)
    assert own.sum() == 4
    assert set(classes(rows[~own])) <= {2, 3}


def test_least_is_of_the_class_with_the_fewest_train_rows_that_is_held():
    rows, own = cut(Shift(0.5, "least"), 1)
    assert own.sum() == 4
    assert classes(rows[~own]) == {1: 4}
    tie = pool_of([0, 0, 1, 1] + OWN[4:] + [0, 1, 2, 3] * 10, test=[False] * 14 + [True] * 40)
    partition = StoredPartition(np.arange(14), np.array([0, 4, 6, 14]))
    found = [shift_tests(tie, partition, Shift(1.0, "least"), key).rows(0, "test") for key in range(20)]
    assert {tuple(np.unique(tie.y.numpy()[rows])) for rows in found} == {(0,), (1,)}


def test_one_is_of_any_class_that_the_global_test_set_has():
    found = set()
    for key in range(40):
        rows, own = cut(Shift(0.5, "one"), key)
        assert own.sum() == 4
        assert len(classes(rows[~own])) == 1
        found |= set(classes(rows[~own]))
    assert found == {0, 1, 2, 3}
    pool = replace(POOL, test=POOL.test & (POOL.y.numpy() == 3))
    rows = shift_tests(pool, HELD, Shift(1.0, "one"), 5).rows(0, "test")
    assert set(POOL.y.numpy()[rows]) == {3}


def test_one_class_is_drawn_for_each_client():
    partition, _ = parted(pictures(600), "shards")
    now = shift_tests(pictures(600), partition, Shift(1.0, "one"), 1)
    found = [np.unique(pictures(600).y.numpy()[now.rows(node, "test")]) for node in range(8)]
    assert {len(each) for each in found} == {1}
    assert len({int(each[0]) for each in found}) > 1


def test_global_has_everybodys_mix():
    pool = pool_of([0] * 14 + [0, 0, 0, 1] * 200, test=[False] * 14 + [True] * 800)
    found = [shift_tests(pool, HELD, Shift(1.0, "global"), key).rows(0, "test") for key in range(100)]
    share = (pool.y.numpy()[np.concatenate(found)] == 1).mean()
    assert share == pytest.approx(0.25, abs=0.05)  # three deviations of 800 draws
    assert min(rows.min() for rows in found) >= 14


def test_onset_comes_all_at_once():
    rows, own = cut(Shift(0.375, "onset"), 1)
    assert own.tolist() == [True] * 5 + [False] * 3
    assert set(classes(rows[~own])) <= {2, 3}


def test_places_of_onset_by_hand():
    assert place_onset(5, 2, 9).tolist() == [False, False, False, True, True]
    assert place_onset(3, 0, 9).tolist() == [False] * 3
    assert place_onset(2, 2, 9).tolist() == [True] * 2


def chances(rows, count):
    """Of every place, in how many cases of the offset it is marked."""
    whole = rows**2 if 2 * count <= rows else max(1, 4 * (rows - count))
    return np.mean([place_gradually(rows, count, offset) for offset in range(whole)], axis=0)


def test_the_chance_rises_linearly():
    # 4 rows, 2 of them: at u the chance is u; on average over each quarter 1/8, 3/8, 5/8, 7/8.
    assert chances(4, 2).tolist() == [0.125, 0.375, 0.625, 0.875]
    # 4 rows, 1 of them: half of that.
    assert chances(4, 1).tolist() == [0.0625, 0.1875, 0.3125, 0.4375]
    # 4 rows, 3 of them: u / (1/2) up to the middle, then 1.
    assert chances(4, 3).tolist() == [0.25, 0.75, 1.0, 1.0]
    assert chances(4, 4).tolist() == [1.0] * 4
    assert chances(4, 0).tolist() == [0.0] * 4


@quick
@given(st.integers(1, 60), st.floats(0, 1), keys)
def test_gradual_marks_exactly_so_many_places(rows, share, key):
    count = count_replaced(share, rows)
    assert place_gradually(rows, count, key).sum() == count


def test_unseen_onset_and_gradual_are_the_same_rows_in_another_order():
    found = [cut(Shift(0.5, kind), 1)[0] for kind in ("unseen", "onset", "gradual")]
    assert np.array_equal(found[0], np.sort(found[1]))
    assert np.array_equal(found[0], np.sort(found[2]))
    assert not np.array_equal(found[1], found[2])


@quick
@given(
    st.sampled_from(["dirichlet", "shards", "by_user", "procedural"]),
    st.sampled_from(SHIFT_KINDS),
    keys,
    st.floats(0.01, 1),
    st.booleans(),
)
def test_every_kind_is_exact_and_of_the_global_test_set(kind, shift, key, share, grouped):
    pool = pictures(500)
    partition, how = (
        parted(pool, kind, key, largest=20) if kind == "procedural" else parted(pool, kind, key % 97)
    )
    level = Shift(share, shift)
    groups = Groups("rotation", 2) if grouped else None
    try:
        made, again = (arrange(pool, partition, key, groups=groups, levels=[level], **how) for _ in range(2))
    except DataError as error:
        assert "the global test set has" in str(error)  # noqa: PT017
        return
    labels, now = made.pool.y.numpy(), made.phases[0].shifts[level]
    for client in range(now.clients):
        old, new = partition.rows(client, "test"), made.origin[now.rows(client, "test")]
        assert len(np.unique(new)) == len(new) == len(old)
        assert np.isin(new, old).sum() == len(old) - count_replaced(share, len(old))
        assert pool.test[new[~np.isin(new, old)]].all()
        assert np.array_equal(now.rows(client, "test"), again.phases[0].shifts[level].rows(client, "test"))
        met = order_of_stream(now, client)
        assert sorted(met) == sorted(now.rows(client, "test"))
        assert not met.flags.writeable
        if shift == "onset":
            own = np.arange(len(old)) < len(old) - count_replaced(share, len(old))
            assert np.array_equal(np.isin(made.origin[met], old), own)
        if shift in ("unseen", "onset", "gradual"):
            train = np.bincount(labels[now.rows(client, "train")], minlength=pool.classes)
            strange = labels[now.rows(client, "test")][~np.isin(new, old)]
            assert set(strange) <= set(np.flatnonzero(train == train.min()))


def test_rows_in_order_are_seen_as_the_client_sees():
    pool, level = pictures(600), Shift(0.5, "gradual")
    partition, how = parted(pool, "shards")
    turned = arrange(pool, partition, 3, groups=Groups("rotation", 4), levels=[level], **how)
    plain = arrange(pool, partition, 3, levels=[level], **how).phases[0].shifts[level]
    for client in range(8):
        met = order_of_stream(turned.phases[0].shifts[level], client)
        assert np.array_equal(turned.origin[met], order_of_stream(plain, client))


def test_kinds_go_with_changes():
    pool, level = pictures(600), Shift(0.5, "onset")
    partition, how = parted(pool, "dirichlet")
    phases = arrange(pool, partition, 3, levels=[level], changes=[Change(2.0, "labels")], **how).phases
    for phase in phases:
        later = phase.shifts[level]
        assert later.in_order
        for node in range(8):
            assert np.array_equal(later.rows(node, "train"), phase.partition.rows(node, "train"))
            assert np.array_equal(order_of_stream(later, node), later.rows(node, "test"))
    first, second = (phase.shifts[level] for phase in phases)
    assert not np.array_equal(first.rows(0, "test"), second.rows(0, "test"))


# ----------------------------------------------------------------------------------------------- rehearsal


@quick
@given(st.sampled_from(["dirichlet", "shards", "procedural"]), st.sampled_from(SHIFT_KINDS), keys)
def test_levels_are_rehearsed_with_validation_rows_of_others(kind, shift, key):
    pool = pictures(500)
    partition, how = (
        parted(pool, kind, key, largest=20) if kind == "procedural" else parted(pool, kind, key % 97)
    )
    try:
        phase = arrange(pool, partition, key, shift=0.5, levels=[0.0, Shift(0.5, shift)], **how).phases[0]
    except DataError:
        return
    everybody = {int(row) for c in range(8) for row in partition.rows(c, "validation")}
    if kind == "procedural":  # any client may have these
        everybody = set(partition.by_class.order[partition.by_class.cells % 3 == 1].tolist())
    for client in range(8):
        own = partition.rows(client, "validation")
        assert np.array_equal(phase.partition.rows(client, "validation"), own)  # only levels are rehearsed
        assert np.array_equal(phase.shifts[Shift(0.0)].rows(client, "validation"), own)
        rows = phase.shifts[Shift(0.5, shift)].rows(client, "validation")
        assert len(np.unique(rows)) == len(rows) == len(own)
        assert set(rows.tolist()) <= everybody
        assert (~np.isin(rows, own)).sum() <= count_replaced(0.5, len(own))
        labels, train = pool.y.numpy(), pool.y.numpy()[partition.rows(client, "train")]
        counts = np.bincount(train, minlength=pool.classes)
        if shift == "unseen":
            strange = labels[rows[~np.isin(rows, own)]]
            assert set(strange) <= set(np.flatnonzero(counts == counts.min()))


def test_levels_are_rehearsed_below_changes_and_groups_of_clients_that_are_not_stored():
    pool = pictures(2000)
    partition, how = parted(pool, "procedural", 3, largest=20)
    changes = [Change(at, "labels") for at in (1.0, 2.0)]
    groups = Groups("labels", 2, share=0.6)
    twice = arrange(pool, partition, 3, levels=[0.5], changes=changes, **how).phases[2]
    leaning = arrange(pool, partition, 3, levels=[0.5], groups=groups, **how).phases[0]
    for phase in (twice, leaning):
        before, now = (
            np.concatenate([made.rows(c, "validation") for c in range(8)])
            for made in (phase.partition, phase.shifts[Shift(0.5)])
        )
        assert len(before) == len(now)
        assert not np.array_equal(before, now)


def test_clients_that_are_not_stored_are_refused_before_a_run_if_rows_may_lack():
    pool = pictures(500)
    partition, how = parted(pool, "procedural", 3, largest=300)
    groups = Groups("labels", 2, share=0.2)
    with pytest.raises(DataError, match="a client may need"):
        arrange(pool, partition, 3, shift=1.0, groups=groups, **how)


def test_rehearsed_by_hand():
    # Two clients, each of one class; 4 validation rows each, half of which are exchanged.
    pool = pool_of([0] * 10 + [1] * 10 + [0, 1] * 5, test=[False] * 20 + [True] * 10)
    partition = StoredPartition(np.arange(20), np.array([0, 5, 9, 10, 15, 19, 20]))
    for kind in ("unseen", "onset", "gradual"):
        now = shift_tests(pool, partition, Shift(0.5, kind), 1, rehearse=True)
        assert pool.y.numpy()[now.rows(0, "validation")].tolist() == [0, 0, 1, 1]
        assert pool.y.numpy()[now.rows(1, "validation")].tolist() == [0, 0, 1, 1]
    now = shift_tests(pool, partition, Shift(1.0, "least"), 1, rehearse=True)
    assert now.rows(0, "validation").tolist() == [5, 6, 7, 8]  # nobody else has rows of its class


# ------------------------------------------------------------------------------------------------- streams


def test_sorted_rows_are_met_in_an_order_that_tells_nothing():
    partition = divide(synthetic(4000), "iid", 2, 0)
    for split in ("validation", "test"):
        rows, met = partition.rows(1, split), order_of_stream(partition, 1, split)
        assert sorted(met) == list(rows)
        assert abs(np.corrcoef(np.arange(len(met)), met)[0, 1]) < 0.2
        assert np.array_equal(met, order_of_stream(partition, 1, split))
    # Clients who hold the same row needn't meet it at the same place.
    first = StoredPartition(np.arange(28), np.array([0, 5, 6, 14, 19, 20, 28]))
    assert not np.array_equal(order_of_stream(first, 0), order_of_stream(first, 1) - 14)


# --------------------------------------------------------------------------------------------------- files


def test_a_file_may_mix_shares_and_kinds(tmp_path):
    mixed = [0.5, {"kind": "least", "share": 0.5}, {"kind": "unseen", "share": 1.0}]
    told = Experiment(
        data={"clients": 6, "limit": 300, "alpha": 0.2, "shift": {"kind": "global", "share": 0.5}},
        model={"name": "linear"},
        stop={"rounds": 1},
        evaluate={"shifts": mixed},
        run={"executor": "loop"},
    )
    assert told.evaluate.shifts[2] == 1.0  # one spelling of what has two
    run = potluck.run(told, tmp_path / "run")
    stored = Experiment.from_file(tmp_path / "run" / "experiment.toml")
    assert (stored.data, stored.evaluate) == (told.resolve().data, told.resolve().evaluate)
    assert read_at_shift(run, 0.5) is not None
    assert read_at_shift(run, 1.0) is not None
    assert read_at_shift(run, 1.0, kind="least") is None
    assert read_at_shift(run, 0.5, kind="least") is not None
    stored = potluck.load(tmp_path / "run")
    assert read_at_shift(stored, 0.5, kind="least") == read_at_shift(run, 0.5, kind="least")


# -------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"data": {"shift": {"kind": "oen", "share": 1}}}, r"data.shift.kind = 'oen': .*did you mean 'one'"),
        (
            {"data": {"shift": {"kind": "one"}}},
            r"data.shift.share: must be given: share of the test rows",
        ),
        ({"data": {"shift": {"share": 0.5}}}, r"data.shift.kind: must be given"),
        ({"data": {"shift": {"kind": "one", "share": 2}}}, r"data.shift.share = 2: should be less"),
        ({"data": {"shift": {"kind": "one", "shar": 1}}}, r"data.shift.shar = 1: .*did you mean 'share'"),
        ({"data": {"shift": "one"}}, r"data.shift = 'one': should be a valid number"),
        ({"evaluate": {"shifts": [0, {"kind": "x", "share": 1}]}}, r"shifts.1.kind = 'x': should be one of"),
        ({"evaluate": {"shifts": [{"kind": "one", "share": 0.5}] * 2}}, r"shifts = .*each shift once"),
        ({"evaluate": {"shifts": [0.5, {"kind": "unseen", "share": 0.5}]}}, r"name each shift once"),
    ],
)
def test_wrong_tables(table, message):
    with pytest.raises(ConfigError, match=message):
        Experiment(**table)


def test_wrong_shifts_in_python():
    with pytest.raises(ConfigError, match=r"shift.kind = 'onest'.*did you mean 'onset'"):
        Shift(0.5, "onest")
    with pytest.raises(ConfigError, match=r"evaluate.shifts = .*name each shift once"):
        EvaluateAt(shifts=(0.5, Shift(0.5)))


@pytest.mark.parametrize("kind", ["one", "least"])
def test_too_few_rows_name_the_kind(kind):
    pool = pool_of(OWN + [0, 1, 2, 3] * 2, test=[False] * 14 + [True] * 8)
    told = rf'shift = {{ kind = "{kind}", share = 1.0 }}: client 0 needs 8 test rows of classes'
    with pytest.raises(DataError, match=told):
        shift_tests(pool, HELD, Shift(1.0, kind), 1)
