"""Modes: the paper's defaults under the same name, with what a user writes above them."""

import runpy
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field
from rich.table import Table

from potluck import algorithms
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Train, value
from potluck.cli import tables
from potluck.core.errors import ConfigError
from potluck.core.rule import Rule
from potluck.experiment import Experiment, toml
from potluck.experiment.prepare import make_rule, resolve_run
from potluck.rules.select import Select, Uniform
from potluck.rules.server_optim import Adaptive, Average, ServerOptim


@value
class Distance:
    """A table of settings."""

    margin: float = 0.5
    power: int = 1


@value
class Nearest:
    inner: Rule[Any]
    clients: int
    near: Distance
    server: ServerOptim
    select: Select
    share: float
    deadline: float | None

    start = lanes = plan = merge = serve = FedAvg.start


def nearest(
    local: Train = Train(),
    inner: Annotated[Rule[Any], "what trains"] = FedAvg(),
    clients: int = 10,
    near: Annotated[Distance, "how far is near"] = Distance(margin=2.0, power=4),
    server: ServerOptim = Adaptive(lr=0.5),
    select: Select = Uniform(),
    share: Annotated[float, Field(gt=0, le=1), "a share"] = 0.25,
    deadline: float | None = None,
) -> Nearest:
    """Nearest (nobody 2026)."""
    return Nearest(inner, clients, near, server, select, share, deadline)


PAPER = {
    "inner": {"kind": "fedavg", "clients": 7, "server": {"lr": 3.0}},
    "near": {"margin": 0.1},
    "server": "average",
    "share": 1,
    "deadline": 60.0,
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    registry = algorithms._REGISTERED
    monkeypatch.setattr(registry, "_values", dict(registry._values))
    monkeypatch.setattr(registry, "_modules", dict(registry._modules))
    algorithms.register("nearest", nearest)
    publish(monkeypatch, PAPER)


def publish(monkeypatch, values):
    monkeypatch.setattr(sys.modules[__name__], "PUBLISHED", values, raising=False)


def make(**params):
    return algorithms.make("nearest", Train(batch=7), **params)


def ran(**tables):
    return Experiment(algorithm="nearest", stop={"rounds": 1}, **tables)


# ------------------------------------------------------------------------------------------ what they are


def test_potluck_is_the_default_mode_and_has_the_defaults_of_the_signature():
    assert make() == make(mode="potluck") == nearest(inner=FedAvg(local=Train(batch=7)))
    assert algorithms.list_modes("nearest") == ("potluck", "published")


def test_published_has_the_values_of_the_paper_where_they_differ():
    made = make(mode="published")
    assert (made.share, made.deadline, made.clients, made.select) == (1.0, 60.0, 10, Uniform())
    assert made.server == Average()
    assert made.near == Distance(margin=0.1, power=4)  # what it leaves out is as in mode potluck
    assert made.inner == FedAvg(clients=7, local=Train(batch=7), server=Average(3.0))


def test_what_a_user_writes_wins():
    assert make(mode="published", share=0.5, deadline=None).share == 0.5
    assert make(mode="published", deadline=None).deadline is None
    assert make(mode="published", server="adaptive").server == Adaptive()  # of another kind than the paper's


def test_a_partly_written_table_fills_up_from_the_mode():
    assert make(near={"power": 2}).near == Distance(margin=2.0, power=2)
    assert make(mode="published", near={"power": 2}).near == Distance(margin=0.1, power=2)
    assert make(server={"beta1": 0.5}).server == Adaptive(lr=0.5, beta1=0.5)
    assert make(server={"kind": "adaptive", "beta1": 0.5}).server == Adaptive(lr=0.5, beta1=0.5)
    assert make(server={"kind": "average"}).server == Average()
    inner = make(mode="published", inner={"server": {"kind": "average"}, "deadline": 2.0}).inner
    assert inner == FedAvg(clients=7, local=Train(batch=7), server=Average(3.0), deadline=2.0)
    assert make(mode="published", inner={"kind": "fedprox"}).inner.clients == 10  # none of the paper's


def test_parts_made_in_python_may_be_published(monkeypatch):
    publish(monkeypatch, {"near": Distance(0.3), "server": Average(0.7)})
    assert make(mode="published", near={"power": 5}).near == Distance(0.3, 5)
    assert make(mode="published").server == Average(0.7)


def test_an_empty_table_gives_two_modes_alike(monkeypatch):
    publish(monkeypatch, {})
    assert make(mode="published") == make()


def test_an_algorithm_within_another_has_its_modes():
    within = {"kind": "nearest", "mode": "published", "near": {"power": 3}}
    inner = make(inner=within).inner
    assert (inner.share, inner.near, inner.clients) == (1.0, Distance(0.1, 3), 10)
    assert inner.inner == make(mode="published").inner
    table = algorithms.complete("nearest", inner=within)
    assert (table["mode"], table["inner"]["mode"], table["inner"]["share"]) == ("potluck", "published", 1.0)
    assert make(**tomllib.loads(toml.write(table))) == make(inner=within)
    with pytest.raises(ConfigError, match=r"algorithms.nearest.inner.mode = 'x': no such mode; known:"):
        make(inner={"kind": "nearest", "mode": "x"})


# ----------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "params, said",
    [
        ({"mode": "publishd"}, r"algorithms.nearest.mode = 'publishd': no such mode; did you mean 'p"),
        ({"mode": "faithful"}, r"algorithms.nearest.mode = 'faithful': no such mode; known: potluck, publ"),
        ({"mode": 3}, r"algorithms.nearest.mode = 3: no such mode; known: potluck, published"),
        ({"mode": None}, r"algorithms.nearest.mode = None: no such mode; known: potluck, published"),
        ({"moed": "published"}, r"algorithms.nearest.moed = 'published': no such parameter; did you mean"),
        ({"mode": "published", "near": {"powr": 1}}, r"nearest.near.powr = 1: no such parameter; did you"),
    ],
)  # fmt: skip
def test_wrong_modes_are_named_with_their_fix(params, said):
    for refuse in (make, lambda **given: algorithms.check("nearest", **given)):
        with pytest.raises(ConfigError, match=said):
            refuse(**params)


def test_an_algorithm_without_modes_knows_no_mode():
    assert algorithms.list_modes("fedavg") == ()
    with pytest.raises(ConfigError, match=r"algorithms.fedavg.mode = 'published': no such parameter; known:"):
        algorithms.make("fedavg", Train(), mode="published")


@pytest.mark.parametrize(
    "values, said",
    [
        ({"shaer": 1.0}, r"nearest: PUBLISHED.shaer = 1.0: no such parameter; did you mean 'share'\?"),
        ({"share": 2.0}, r"nearest: PUBLISHED.share = 2.0: must be at most 1"),
        ({"near": {"powr": 2}}, r"nearest: PUBLISHED.near.powr = 2: no such parameter"),
        ({"inner": FedAvg()}, r"nearest: PUBLISHED.inner = .*: write it as a file would, by its name or as"),
        ([1], r"nearest: PUBLISHED = \[1\]: make it a table of parameters and values"),
    ],
)
def test_what_is_published_wrongly_is_refused(values, said, monkeypatch):
    publish(monkeypatch, values)
    with pytest.raises(ConfigError, match=said):
        make(mode="published")
    with pytest.raises(ConfigError, match=said):
        algorithms.describe("nearest")


def test_a_parameter_called_mode_and_modes_are_refused(monkeypatch):
    def moody(local: Train = Train(), mode: str = "a") -> FedAvg:
        return FedAvg(local=local)

    algorithms.register("moody", moody)
    with pytest.raises(ConfigError, match="moody: has PUBLISHED, and so modes, and a parameter mode; rename"):
        algorithms.make("moody", Train())
    monkeypatch.delattr(sys.modules[__name__], "PUBLISHED")
    assert algorithms.make("moody", Train(), mode="b") == FedAvg(local=Train())


@pytest.mark.parametrize("name", [n for n in algorithms.names() if algorithms.list_modes(n)])
def test_what_algorithms_publish_are_values_of_their_parameters(name):
    assert algorithms.make(name, Train(), mode="potluck") == algorithms.make(name, Train())
    assert algorithms.make(name, Train(), mode="published") is not None
    for mode in algorithms.list_modes(name):
        table = tomllib.loads(toml.write(algorithms.complete(name, mode=mode)))
        assert table["mode"] == mode
        assert algorithms.make(name, Train(), **table) == algorithms.make(name, Train(), mode=mode)
        assert toml.write(algorithms.complete(name, **table)) == toml.write(
            algorithms.complete(name, mode=mode)
        )


# --------------------------------------------------------------------------------------------- in a file


@pytest.mark.parametrize("mode", ["potluck", "published"])
def test_a_run_has_its_mode_and_all_values_written_out(mode):
    wanted = ran(algorithms={"nearest": {"mode": mode, "near": {"power": 3}, "inner": {"clients": 4}}})
    full = resolve_run(wanted)
    own, paper = full.algorithms["nearest"], mode == "published"
    assert own["mode"] == mode
    assert own["share"] == (1.0 if paper else 0.25)
    assert own["near"] == {"margin": 0.1 if paper else 2.0, "power": 3}
    assert own["server"] == ({"kind": "Average", "lr": 1.0} if paper else own["server"])
    assert own["server"]["kind"] == ("Average" if paper else "Adaptive")
    assert (own["inner"]["kind"], own["inner"]["clients"]) == ("fedavg", 4)
    again = Experiment(**tomllib.loads(full.to_toml()))
    assert resolve_run(again).to_toml() == full.to_toml()
    assert make_rule(again) == make_rule(wanted)


def test_a_mode_is_a_setting_like_others():
    changed = ran().with_overrides(["algorithms.nearest.mode=published", "algorithms.nearest.near.power=2"])
    assert changed.algorithms == {"nearest": {"mode": "published", "near": {"power": 2}}}
    assert make_rule(changed).near == Distance(0.1, 2)
    with pytest.raises(ConfigError, match=r"experiment: algorithms.nearest.mode = 'x': no such mode; known:"):
        resolve_run(ran(algorithms={"nearest": {"mode": "x"}}))


def test_both_defaults_are_described():
    described = {p.name: p for p in algorithms.describe("nearest").parameters}
    assert algorithms.describe("nearest").modes == ("potluck", "published")
    assert next(iter(described)) == "mode"
    columns = {name: (p.default, p.published) for name, p in described.items()}
    assert columns["mode"] == ("potluck", "published")
    assert columns["share"] == ("0.25", "1.0")
    assert columns["near.margin"] == ("2.0", "0.1")
    assert columns["near.power"] == ("4", "4")
    assert columns["server"][1] == "Average(lr=1.0)"
    assert columns["deadline"] == ("None", "60.0")
    assert columns["inner"][1] == "fedavg(clients=7, server={'lr': 3.0})"
    assert all(p.published is None for p in algorithms.describe("fedavg").parameters)


def test_both_columns_are_printed_where_they_differ():
    rows = {cells[0]: cells for cells in show(tables.show_algorithm(algorithms.describe("nearest")))}
    assert rows["parameter"][2:4] == ["potluck", "published, if it differs"]
    assert rows["share"][2:4] == ["0.25", "1.0"]
    assert rows["near.power"][2] == "4"
    assert rows["near.power"][3] == ""
    assert rows["mode"][2:4] == ["potluck", "published"]
    plain = show(tables.show_algorithm(algorithms.describe("fedavg")))
    assert ["parameter", "type", "default", "meaning"] in plain
    helper = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "_algorithms.py"))
    page = helper["parameters"]("nearest")
    assert "| key | type | `potluck` | `published`, if it differs | meaning |" in page
    assert "| `share` | `float` | `0.25` | `1.0` | a share |" in page
    assert "| `train` | `table` |  |  | what this algorithm should have" in page
    assert "| key | type | default | meaning |" in helper["parameters"]("fedavg")


def show(group):
    """The rows of what a command prints, each as its cells."""
    (table,) = (part for part in group.renderables if isinstance(part, Table))
    cells = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    return [list(row) for row in zip(*cells, strict=True)]
