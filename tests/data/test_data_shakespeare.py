import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from potluck.core.errors import ConfigError, DataError
from potluck.data import choose_tests, divide, load

TEXT = "the quick brown fox jumps over the lazy dog, and then "
ROLES = {f"PLAY__ROLE{i}": [TEXT[i:], TEXT[: i + 3]] for i in range(10)}


def write(root, roles=ROLES):
    (root / "shakespeare").mkdir(parents=True, exist_ok=True)
    path = root / "shakespeare" / "roles.json.gz"
    path.write_bytes(gzip.compress(json.dumps(roles).encode()))
    return path


def test_rows_are_windows_of_a_role(tmp_path):
    write(tmp_path, {**ROLES, "PLAY__MUTE": ["ah"]})
    pool = load("shakespeare", root=tmp_path, length=8, stride=3)
    letters = sorted({letter for speeches in ROLES.values() for letter in " ".join(speeches)})
    assert (pool.shape, pool.classes, pool.x.dtype) == ((8,), len(letters), torch.int64)
    roles = sorted([*ROLES, "PLAY__MUTE"])
    assert set(pool.user) == set(range(1, 11))  # who is mute has a number, but no rows
    for row in range(len(pool)):
        role = int(pool.user[row])
        text = " ".join(ROLES[roles[role]])
        place = int(np.flatnonzero(pool.user == role)[0])
        start = (15 if pool.test[row] else 3) * (row - place)
        seen = "".join(letters[token] for token in pool.x[row])
        assert seen == text[start : start + 8]
        assert letters[pool.y[row]] == text[start + 8]


def test_a_fifth_of_the_roles_is_the_test_set(tmp_path):
    write(tmp_path)
    pool = load("shakespeare", root=tmp_path, length=8, stride=3)
    tested, others = set(pool.user[pool.test]), set(pool.user[~pool.test])
    assert len(tested) == 2
    assert not tested & others
    assert divide(pool, "by_user", None, 1).clients == 8
    shuffled = dict(sorted(ROLES.items(), key=lambda item: item[0], reverse=True))
    write(tmp_path, shuffled)
    again = load("shakespeare", root=tmp_path, length=8, stride=3)
    assert torch.equal(pool.x, again.x)
    assert np.array_equal(pool.test, again.test)


def test_limit_and_defaults(tmp_path):
    write(tmp_path, {name: speeches * 5 for name, speeches in ROLES.items()})
    pool = load("shakespeare", root=tmp_path)
    assert pool.shape == (80,)
    small = load("shakespeare", root=tmp_path, limit=7)
    assert (~small.test).sum() == 7
    assert small.x.dtype == torch.int64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a JSON file"),
        (b"\xff\xfe", "not a JSON file"),
        (b"[1]", "found a list"),
        (b'{"A": "speech"}', "list of speeches for 'A'"),
        (b'{"A": [1]}', "list of speeches for 'A'"),
        (b"{}", "has 0 roles of more than 80 characters"),
        (json.dumps({"A": ["a" * 90], "B": ["b"]}).encode(), "has 1 roles"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    path = write(tmp_path)
    path.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=message) as error:
        load("shakespeare", root=tmp_path)
    assert str(path) in str(error.value)


def test_options_are_checked(tmp_path):
    write(tmp_path)
    for option in ("length", "stride"):
        with pytest.raises(ConfigError, match=rf"data\.{option} = 0"):
            load("shakespeare", root=tmp_path, **{option: 0})
    with pytest.raises(DataError, match=r"no roles\.json\.gz, roles\.json in .*shakespeare"):
        load("shakespeare", root=tmp_path / "elsewhere")


REAL = os.environ.get("POTLUCK_DATA")


@pytest.mark.skipif(not REAL or not Path(REAL, "shakespeare").is_dir(), reason="$POTLUCK_DATA has none")
def test_real_shakespeare():
    pool = load("shakespeare", root=Path(str(REAL)))
    assert (pool.shape, pool.classes) == ((80,), 81)
    assert len(np.unique(pool.user)) == 971
    assert 150_000 < (~pool.test).sum() < 300_000
    assert 5_000 < pool.test.sum() < 10_000
    partition = divide(pool, "by_user", None, 1)
    assert partition.clients + partition.left_out == 777


def test_what_a_role_says_last_can_be_tested_on(tmp_path):
    write(tmp_path)
    pool = load("shakespeare", root=tmp_path, length=8, stride=3)
    assert choose_tests(pool, "users") is pool  # its test set is other roles
    partition = divide(choose_tests(pool, "time"), "by_user", None, 1)
    for client in range(8):
        assert partition.rows(client, "train").max() < partition.rows(client, "test").min()
