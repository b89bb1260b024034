"""Names of a user's own: taken ones are refused, and what is registered is used by name."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from potluck import data
from potluck.core import entry_points
from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.core.registry import Registry
from potluck.data import PARTITIONS, SOURCES
from potluck.models.registry import MODELS, register


@pytest.fixture(autouse=True)
def restore(monkeypatch):
    for registry in (MODELS, PARTITIONS, SOURCES):
        monkeypatch.setattr(registry, "_values", dict(registry._values))
        monkeypatch.setattr(registry, "_modules", dict(registry._modules))


def rows(root, count: int = 40):
    return data.assemble("rows", np.arange(2.0 * count).reshape(count, 2), np.arange(count) % 2)


def stripes(pool, clients, key, cut):
    return data.from_rows([pool.free[c::clients] for c in range(clients)], pool, key, cut)


def test_one_module_may_replace_its_own_and_no_other():
    known = Registry("thing")
    known.add("a", 1, rows)
    known.add("a", 2, stripes)
    assert dict(known) == {"a": 2}
    with pytest.raises(ConfigError, match=r"thing 'a': the name is taken by .*registry; .* such as 'my-a'"):
        known.add("a", 3, torch.tensor)
    with pytest.raises(ConfigError, match=r"thing 'a b': a name is made of"):
        known.add("a b", 1, rows)
    with pytest.raises(ConfigError, match=r"key = 'aa': no such thing; did you mean 'a'\?"):
        known.find("aa", "key")


def test_what_could_not_be_loaded_is_tried_again():
    def load():
        if wrong:
            raise wrong.pop()
        known.add("a", 1, rows)

    known, wrong = Registry("thing", load), [ConfigError("mend it")]
    with pytest.raises(ConfigError, match="mend it"):
        known.find("a", "key")
    assert known.find("a", "key") == 1


def test_entry_points_are_called_once_unless_they_fail(monkeypatch):
    def register():
        called.append(1)
        if len(called) == 1:
            raise ValueError("mend it")

    called = []
    entry = SimpleNamespace(name="x", value="mine:register", group="things", dist=None, load=lambda: register)
    monkeypatch.setattr(entry_points, "list_entries", lambda group: {"x": [entry]})
    monkeypatch.setattr(entry_points, "_CALLED", set())
    with pytest.raises(PotluckError, match=r"x = 'mine:register' .*can't be loaded \(ValueError: mend it"):
        entry_points.call_all("things")
    entry_points.call_all("things")
    entry_points.call_all("things")
    assert len(called) == 2


@pytest.mark.parametrize(
    "registers, name",
    [(data.register_source, "digits"), (data.register_partition, "iid"), (register, "mlp")],
)
def test_names_of_the_package_are_taken(registers, name):
    with pytest.raises(ConfigError, match=rf"'{name}': the name is taken by potluck\."):
        registers(name, lambda root=None, shape=None: None)


def test_a_source_of_ones_own_is_loaded_with_its_options():
    data.register_source("rows", rows)
    assert len(data.load("rows", count=30)) == 30
    assert data.list_options("rows") == ["count"]
    assert data.list_options("digits") == []
    assert "rows" in data.list_stocks()
    with pytest.raises(ConfigError, match=r"data\.size: rows has no such option"):
        data.load("rows", size=3)


def test_sources_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="register a function that makes a pool"):
        data.register_source("bad", 3)
    with pytest.raises(ConfigError, match="needs `root` as its first parameter"):
        data.register_source("bad", lambda: None)
    with pytest.raises(ConfigError, match="give its option 'count' a name and a default"):
        data.register_source("bad", lambda root, count: None)
    data.register_source("bad", lambda root: [1, 2])
    with pytest.raises(DataError, match=r"data\.source = 'bad': its function gave a list, not a Pool"):
        data.load("bad")


def test_a_partition_of_ones_own_divides():
    data.register_partition("stripes", stripes)
    pool = rows(None)
    held = data.divide(pool, "stripes", 4, 1)
    assert held.clients == 4
    mine = np.concatenate([held.rows(1, split) for split in ("train", "validation", "test")])
    assert sorted(mine) == pool.free[1::4].tolist()
    with pytest.raises(ConfigError, match="clients is missing: stripes needs a number"):
        data.divide(pool, "stripes", None, 1)


def test_settings_that_are_not_told_stay_a_partitions_own():
    told = {}

    def remember(pool, clients, key, classes_per_client=7, alpha=0.0):
        told.update(classes=classes_per_client, alpha=alpha, clients=clients)
        return stripes(pool, 4, key, data.Cut())

    data.register_partition("remember", remember, counts_clients=True)
    data.divide(rows(None), "remember", None, 1, alpha=0.25)
    assert told == {"classes": 7, "alpha": 0.25, "clients": None}


def test_partitions_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="'bad': its function needs 'speed', but is offered only pool"):
        data.register_partition("bad", lambda pool, speed: None)
    with pytest.raises(ConfigError, match="register a function that divides a pool"):
        data.register_partition("bad", None)
    data.register_partition("bad", lambda pool: [])
    with pytest.raises(ConfigError, match="leave it out"):
        data.divide(rows(None), "bad", 3, 1)
    data.register_partition("bad", lambda pool, clients: [])
    with pytest.raises(DataError, match="partition = 'bad': its function gave a list, not a Partition"):
        data.divide(rows(None), "bad", 3, 1)


def test_a_partition_has_options_of_its_own():
    def offset(pool, clients, key, cut, first=0):
        return stripes(pool, clients + first, key, cut)

    data.register_partition("offset", offset)
    assert PARTITIONS["offset"].own == ("first",)
    assert data.divide(rows(None), "offset", 4, 1, own={"first": 2}).clients == 6
    with pytest.raises(ConfigError, match=r"frist = 2: offset has no such option; did you mean 'first'\?"):
        data.divide(rows(None), "offset", 4, 1, own={"frist": 2})
    with pytest.raises(ConfigError, match=r"first = 2: iid has no such option; it has none of its own"):
        data.divide(rows(None), "iid", 4, 1, own={"first": 2})
