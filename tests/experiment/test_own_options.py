"""Options of registered sources and partitions: keys of [data], recorded, and the same in every command."""

import numpy as np
import pytest
from support import try_rates

from potluck import data, experiment
from potluck.core.errors import ConfigError
from potluck.data import PARTITIONS, SOURCES
from potluck.experiment import Experiment, toml

TOLD: list[dict[str, object]] = []


def blobs(root, rows=60, noise: float = 1.0, sides: tuple[int, ...] = (1, 2), tag: str | None = None):
    TOLD.append({"rows": rows, "noise": noise, "sides": sides, "tag": tag})
    x = noise * np.random.default_rng(1).normal(size=(rows, 2)) + (np.arange(rows) % 2)[:, None]
    return data.assemble("blobs", x, np.arange(rows) % 2)


def in_turn(pool, clients, key, cut, first=0, copy=2):
    TOLD.append({"first": first, "copy": copy})
    return data.from_rows([np.roll(pool.free, first)[i::clients] for i in range(clients)], pool, key, cut)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for registry in (SOURCES, PARTITIONS):
        monkeypatch.setattr(registry, "_values", dict(registry._values))
        monkeypatch.setattr(registry, "_modules", dict(registry._modules))
    TOLD.clear()
    data.register_source("blobs", blobs)
    data.register_partition("in-turn", in_turn)


def made(**options):
    settings = {"source": "blobs", "partition": "in-turn", "clients": 4, **options}
    return Experiment(
        data=settings,
        stop={"rounds": 2},
        run={"executor": "loop"},
        tune=try_rates(0.1),
        evaluate={"rounds": 1},
    )


def test_options_are_told_recorded_and_read_again(tmp_path):
    run = experiment.run(made(noise=2, first=3), tmp_path / "a")
    assert TOLD == [
        {"rows": 60, "noise": 2.0, "sides": (1, 2), "tag": None},
        {"first": 3, "copy": 2},
    ]
    written = toml.read(tmp_path / "a" / "experiment.toml")["data"]
    own = {"rows": 60, "noise": 2.0, "sides": [1, 2], "first": 3, "copy": 2}  # defaults too
    assert {key: written.get(key) for key in (*own, "tag")} == own | {"tag": None}
    again = experiment.run(Experiment.from_file(tmp_path / "a" / "experiment.toml"), tmp_path / "b")
    assert again.lines == run.lines
    assert (tmp_path / "b" / "experiment.toml").read_text() == (
        tmp_path / "a" / "experiment.toml"
    ).read_text()


def test_a_run_goes_on_with_its_options(tmp_path):
    whole = experiment.run(made(noise=2, first=3, sides=[4]), tmp_path / "a")
    (tmp_path / "a" / "summary.json").unlink()
    TOLD.clear()
    assert experiment.resume(tmp_path / "a").lines == whole.lines
    assert TOLD[0] == {"rows": 60, "noise": 2.0, "sides": (4,), "tag": None}
    assert TOLD[1]["first"] == 3


def test_comparisons_and_trials_know_them(tmp_path):
    compared = experiment.compare(made(noise=0.5), ["fedavg", "fedprox"], [1], tmp_path / "c", tuned=True)
    assert {told["noise"] for told in TOLD if "noise" in told} == {0.5}
    assert [run.experiment.data.read("noise") for run in compared.runs] == [0.5, 0.5]
    trial = toml.read(tmp_path / "c" / "tune" / "fedavg-lr0.1-1" / "experiment.toml")["data"]
    assert trial["noise"] == 0.5


def test_changes_deal_by_them_too():
    changes = [{"at": 0.001, "kind": "labels"}]
    experiment.run(made(first=5, changes=changes))
    assert [told["first"] for told in TOLD if "first" in told] == [5, 5]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"nois": 2}, r"data\.nois = 2: no such key; did you mean 'noise'\?"),
        ({"noise": "loud"}, r"data\.noise = 'loud': should be a valid number"),
        ({"sides": ["a"]}, r"data\.sides = \['a'\]: should be a valid integer"),
        ({"first": "x"}, r"data\.first = 'x': should be a valid integer"),
        ({"source": "digits", "tag": "x"}, r"data\.tag = 'x': no such key; known: alpha, .*, first, "),
        (
            {"source": "blobbs", "noise": 1.0},
            r"data\.source = 'blobbs': no such source; did you mean 'blobs'",
        ),
        ({"source": ["blobs"], "noise": 1.0}, r"data\.source = \['blobs'\]: should be a valid string"),
        ({"source": "synthetic", "partition": "iid", "first": 1}, r"data\.first = 1: no such key"),
    ],
)
def test_what_is_no_option_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        made(**options)


def test_a_key_that_another_source_has_is_the_partitions(monkeypatch):
    data.register_partition(
        "strided", lambda pool, clients, key, cut, stride=1: in_turn(pool, clients, key, cut)
    )
    experiment.run(made(partition="strided", stride=3))
    with pytest.raises(ConfigError, match=r"data\.stride: blobs has no such option"):
        experiment.run(made(stride=3))


def test_options_of_other_sources_do_not_concern_a_run():
    data.register_source("shared", lambda root, test=0.5, users=3: blobs(root))
    experiment.run(Experiment(data={"source": "synthetic", "rows": 200, "clients": 4}, stop={"rounds": 1}))
