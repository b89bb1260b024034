"""Laws of layers, what they refuse, and experiments that name them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from federations import SIZES, finished, small, weights
from stacks import COHORTS, PLAIN, PLAIN_EDGES, WHOLE, build, crowd

from potluck import algorithms
from potluck.algorithms.auxo.algorithm import Auxo
from potluck.core.errors import ConfigError
from potluck.core.messages import Task
from potluck.engine.acceptance import check, find_doubt
from potluck.engine.judges import place_judge
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment, compare, run
from potluck.experiment.methods import list_methods
from potluck.experiment.prepare import make_rule, prepare, resolve_run
from potluck.experiment.study import Arm
from potluck.jobs import Private
from potluck.layers import complete_base, complete_layers, stacked
from potluck.report.reproduction import _tell_fidelity
from potluck.rules.guard import guard
from potluck.rules.layered import Layered
from potluck.rules.robust import Median
from potluck.rules.wrap import unwrap

# ------------------------------------------------------------------------------------------------------ laws


def test_any_order_is_the_same_stack():
    one = stacked("fedyogi", PLAIN, users={}, edges={}, cohorts=COHORTS)
    assert one == stacked("fedyogi", PLAIN, cohorts=COHORTS, edges={}, users={})
    assert isinstance(one, Layered)
    assert one.tiers == ("edge", "user")
    assert isinstance(one.cloud, Auxo)


def test_old_names_are_stacks():
    assert stacked("fedyogi", PLAIN, cohorts=COHORTS) == algorithms.make(
        "auxo", PLAIN, inner="fedyogi", **COHORTS
    )
    assert stacked("fedavg", PLAIN, sizes={}) == algorithms.make("heterofl", PLAIN)
    few = {"users": 4, "mode": "published"}
    below = {"cap": False, "transfer": False}
    assert stacked("shufflefl", PLAIN, few, cohorts=COHORTS) == stacked(
        "fedavg", PLAIN, {"clients": 4}, users=below, cohorts=COHORTS
    )
    assert stacked("fedavg", PLAIN, sizes={"kind": "fedrac"}, rounds=7) == algorithms.make("fedrac", PLAIN, 7)
    grouped = stacked("fedprox", PLAIN, {"mu": 0.3}, cohorts={"kind": "cfl"})
    assert grouped == algorithms.make("cfl", PLAIN, inner={"kind": "fedprox", "mu": 0.3})
    assert stacked("fedavg", PLAIN) == algorithms.make("fedavg", PLAIN)
    assert stacked("fedavg", PLAIN, {"clients": 3}, users={}) == algorithms.make("shufflefl", PLAIN, users=3)


@pytest.mark.parametrize(
    ("base", "layers", "capped"),
    [
        ("fedavg", ["users"], True),
        ("fedavg", ["users", "edges"], True),
        ("fedavg", ["users", "cohorts"], False),
        ("auxo", ["users"], False),
        ("cfl", ["users"], False),
    ],
)
def test_users_below_groups_are_not_capped(base, layers, capped):
    """The change of a few batches tells little, and by changes groups are told apart."""
    assert complete_layers(base, layers, {})["users"]["cap"] is capped
    assert build(base, layers).at("user").cap is capped
    given = {"users": {"cap": not capped}}
    assert complete_layers(base, layers, given)["users"]["cap"] is not capped
    assert build(base, layers, **given).at("user").cap is not capped


@pytest.mark.parametrize(
    ("base", "layers", "tables", "longest"),
    [
        ("fedavg", ["edges", "cohorts"], {}, 10.0),
        ("auxo", ["edges"], {}, 10.0),
        ("auxo", ["edges", "users"], {}, 10.0),
        ("fedavg", ["edges", "cohorts"], {"edges": {"local_rounds": 1}}, 1.5),
        ("fedavg", ["edges", "cohorts"], {"edges": {"local_rounds": [1, 2]}}, 10.0),
        ("auxo", ["edges"], {"edges": {"go_on": False}}, 1.5),
        ("scaffold", ["edges", "cohorts"], {}, 1.5),  # whose edges are plain
        (
            "fedavg",
            ["edges", "cohorts"],
            {"cohorts": {"criterion": {"kind": "calibrated", "longest": 3.0}}},
            3.0,
        ),
        ("fedavg", ["users", "cohorts"], {}, 1.5),
    ],
)
def test_edges_that_hold_many_rounds_are_listened_to(base, layers, tables, longest):
    """Few edges would be fewer than a split needs, were those that held most rounds thrown out as wild."""
    tables = {name: tables.get(name, {}) for name in layers}
    cloud = stacked(base, PLAIN, **tables).at("cloud")
    assert unwrap(cloud).criterion.longest == longest
    written = complete_layers(base, layers, tables)
    written = written["cohorts"] if "cohorts" in layers else complete_base(base, tables, None, {})
    assert written["criterion"]["longest"] == longest


def test_other_criteria_are_left_alone():
    made = stacked("fedavg", PLAIN, edges={}, cohorts={"mode": "published"})
    assert type(made.at("cloud").criterion).__name__ == "Faithful"
    made = stacked("fedavg", PLAIN, edges={}, cohorts={"criterion": "authors"})
    assert type(made.at("cloud").criterion).__name__ == "Authors"


def test_one_size_is_fedavg():
    one = {"rates": (1.0,), "weigh": "samples", "masked": False, "clip": False}
    sized = finished(crowd(), stacked("fedavg", PLAIN, {"clients": 4}, sizes=one), rounds=4)
    plain = finished(crowd(), algorithms.make("fedavg", PLAIN, clients=4), rounds=4)
    torch.testing.assert_close(weights(sized), weights(plain), rtol=0, atol=1e-12)


@pytest.mark.parametrize("base", ["fedavg", "fedyogi", "scaffold"])
def test_one_cohort_is_the_base_rule(base):
    """Who takes part, and which rows make a batch, is drawn otherwise; so it is everybody, and all rows."""
    where = crowd()
    grouped = finished(
        where, stacked(base, WHOLE, cohorts={"clients": where.devices, "cohorts": 1}), rounds=4
    )
    plain = finished(where, algorithms.make(base, WHOLE, clients=where.devices), rounds=4)
    assert plain.round == grouped.round == 4
    torch.testing.assert_close(weights(grouped), weights(plain), rtol=0, atol=1e-12)


@pytest.mark.parametrize("base", ["fedavg", "fedyogi"])
def test_one_edge_is_the_base_rule(base):
    """A plain edge of all devices answers with their mean; FedAvg's is HierFL's of one edge, too."""
    where = small(edges=1, compute=4e5)
    edged = finished(where, stacked(base, WHOLE, {"clients": 1}, edges=PLAIN_EDGES), rounds=4)
    plain = finished(where, algorithms.make(base, WHOLE, clients=where.devices), rounds=4)
    torch.testing.assert_close(weights(edged), weights(plain), rtol=0, atol=1e-12)
    if base == "fedavg":
        hier = finished(where, algorithms.make("hierfl", WHOLE), rounds=4)
        assert torch.equal(weights(edged), weights(hier))


def test_cohorts_of_sizes_compare_what_all_have(monkeypatch):
    """Were they compared by all that each has, changes of unequal forms would meet."""
    made = build("fedavg", ("cohorts", "sizes"))
    sim = finished(crowd(), made, rounds=5)
    assert len(sim.cloud.own.state.model.cohorts) == 2
    assert {name for name in sim.find_models() if name.startswith("cohort")} == {"cohort 0", "cohort 1"}
    whole = sim.models[PLAIN.model].nbytes
    assert {sum(t.nbytes for t in p.values()) for _, p in sim.find_models().values()} == {whole}
    monkeypatch.setattr(type(made.inner), "comparable", lambda self, reply, ctx: reply.body["delta"])
    with pytest.raises((RuntimeError, ValueError)):
        finished(crowd(), made, rounds=5)


# ---------------------------------------------------------------------------------------------------- checks

PRIVATE = replace(PLAIN, privacy=Private(clip=0.5, sigma=0.1))


@pytest.mark.parametrize(
    ("base", "layers"),
    [
        ("fedavg", ["users"]),
        ("fedavg", ["users", "edges"]),
        ("fedyogi", ["users", "cohorts"]),
        ("scaffold", ["users", "edges", "cohorts"]),
        ("auxo", ["users"]),
        ("shufflefl", ["cohorts"]),
        ("shufflefl", ["edges"]),
        ("fededge", ["users"]),
        ("hierfl", ["users"]),
    ],
)
def test_privacy_is_refused_wherever_rows_move(base, layers):
    tables = {name: {} for name in layers}
    with pytest.raises(ConfigError, match=r"privacy = .*rows leave devices as they are"):
        stacked(base, PRIVATE, **tables)


def test_a_hub_made_for_other_training_is_asked_too():
    still = stacked("fedavg", PRIVATE, users={"shuffle": False})
    moving = replace(still, below=stacked("fedavg", PLAIN, users={}).below)
    with pytest.raises(ConfigError, match=r"privacy = .*rows leave devices as they are"):
        check(crowd(), moving, EvaluateAt())


def test_privacy_stands_where_no_rows_move():
    for tables in ({"users": {"shuffle": False}}, {"edges": PLAIN_EDGES}, {"cohorts": COHORTS}):
        check(crowd(), stacked("fedavg", PRIVATE, **tables), EvaluateAt())


@pytest.mark.parametrize(
    ("base", "layers", "people", "regions", "where"),
    [
        ("fedavg", ["users"], 5, None, "cloud"),
        ("fedavg", ["users", "edges"], 12, 5, "cloud"),  # two or three people an edge, and five edges
        ("fedavg", ["users", "edges"], 12, 2, "edge"),  # six
        ("fedavg", ["edges", "cohorts"], None, 2, "edge"),  # ten devices of as many people
        ("fedavg", ["edges", "cohorts"], None, 8, "cloud"),
        ("auxo", ["users"], 5, None, "cloud"),
        ("fededge", ["users"], 12, 2, "edge"),
        ("shufflefl", ["edges"], 12, 2, "edge"),
    ],
)
def test_judges_stand_where_enough_people_are_heard(base, layers, people, regions, where):
    crew = small([*SIZES, *SIZES], users=people, edges=regions)
    made = guard(stacked(base, PLAIN, **{name: {} for name in layers}), Median())
    placed = place_judge(made, crew.fleet)
    assert placed.tier == where
    found = {tier: _list_parts(placed.at(tier)) for tier in ("cloud", *placed.tiers)}
    assert {tier for tier, parts in found.items() if "RobustRule" in parts} == {where}
    for (
        parts
    ) in found.values():  # who groups is judged inside its groups: else a minority would be thrown out
        assert "Auxo" not in parts[parts.index("RobustRule") :] if "RobustRule" in parts else True


def _list_parts(rule):
    """Names of a rule and of those inside, outermost first."""
    inner = getattr(rule, "inner", None)
    return [type(rule).__name__, *([] if inner is None else _list_parts(inner))]


def test_a_stack_is_not_its_papers_sum():
    arms = [Arm("one", "fedavg"), Arm("both", "fedavg", changes={"layers": ["users"]})]
    arms += [Arm("primed", "fedavg", changes={"layers": ["prior"]})]
    told = _tell_fidelity(SimpleNamespace(plan=SimpleNamespace(arms=arms)))
    assert told == "Rules: one, primed by the paper; both stacked by Potluck."


def check_memories(made):
    """Law: what a device remembers of one cohort's training, another's doesn't see, whoever is between."""
    sim = finished(crowd(), made, rounds=6)
    kept = {slot for node in range(len(SIZES)) for slot in sim.memories.slots.get(node, {})}
    assert {cohort for cohort, _ in kept} == {"", "0", "1"}


@pytest.mark.parametrize("between", ["edges", "users"])
def test_a_lost_slot_breaks_a_law(monkeypatch, between):
    """Control variates are of a cohort; whoever stands between names the cloud's slot to devices."""
    tables = {"edges": PLAIN_EDGES, "users": {"planner": "fill", "shuffle": False}}
    made = stacked("scaffold", PLAIN, **{between: tables[between]}, cohorts=COHORTS)
    check_memories(made)
    plan = type(made.at(between[:-1])).plan

    def forget(self, m, lane, ctx):
        m, commands = plan(self, m, lane, ctx)
        return m, [replace(c, slot=None) if isinstance(c, Task) else c for c in commands]

    monkeypatch.setattr(type(made.at(between[:-1])), "plan", forget)
    with pytest.raises((AssertionError, TypeError)):
        check_memories(made)


# ----------------------------------------------------------------------------------------------- experiments

FILE = {
    "data": {"source": "synthetic", "rows": 400, "dimension": 5, "classes": 4, "partition": "user_devices"}
    | {"users": 5, "devices_per_user": [2, 3]},
    "model": {"width": 0.03},
    "fleet": {"edges": 3},
    "stop": {"rounds": 3},
}


def test_an_experiment_names_its_layers(tmp_path):
    wanted = Experiment(
        **FILE,
        algorithm="fedyogi",
        layers=["cohorts", "users"],
        layer={"cohorts": {"clients": 4, "cohorts": 2}, "users": {"gateway": "nano-1"}},
    )
    assert wanted.layers == ["users", "cohorts"]
    full = resolve_run(wanted)
    assert full.layer["users"]["gateway"] == "nano-1"
    assert full.layer["users"]["shuffle"] is True
    assert full.layer["cohorts"]["kind"] == "auxo"
    assert "inner" not in full.layer["cohorts"]
    done = run(wanted, tmp_path / "run")
    assert done.summary["rounds"] == 3
    written = Experiment.from_file(tmp_path / "run" / "experiment.toml")
    assert make_rule(written) == make_rule(wanted)
    assert prepare(written).identity == prepare(wanted).identity


@pytest.mark.parametrize(
    "said",
    [
        {"layers": ["cohorts", "edges"], "algorithm": "shufflefl"},
        {"layers": ["cohorts"], "algorithm": "shufflefl", "algorithms": {"shufflefl": {"mode": "published"}}},
        {"layers": ["users"], "algorithm": "fededge"},
        {"layers": ["sizes"], "layer": {"sizes": {"kind": "fedrac", "time": {"kappa": 0.4}}}},
        {"layers": ["edges", "users"], "algorithm": "scaffold"},
        {"layers": ["users", "cohorts"], "layer": {"cohorts": {"kind": "flexcfl"}}},
    ],
)
def test_what_a_run_writes_down_makes_the_same_rule(said):
    full = resolve_run(Experiment(**FILE | said))
    assert make_rule(full) == make_rule(Experiment(**FILE | said))
    assert resolve_run(full) == full


def test_sizes_can_be_read_again():
    wanted = Experiment(**FILE, layers=["sizes"], algorithms={"fedavg": {"clients": 3}})
    full = resolve_run(wanted)
    assert make_rule(full) == make_rule(wanted)
    assert make_rule(full).clients == 3


def test_without_layers_nothing_is_written():
    assert "layer" not in resolve_run(Experiment(**FILE)).to_toml()


def test_a_layer_s_table_is_never_dropped():
    unasked = Experiment(**FILE, algorithm="scaffold", layers=["users"], layer={"cohorts": {}})
    for ask in (prepare, resolve_run, list_methods):
        with pytest.raises(
            ConfigError, match=r"layer\.cohorts = {}: layers doesn't name it; write layers = "
        ):
            ask(unasked)
    entry = {"algorithm": "fedavg", "layers": ["cohorts"]}
    asked = Experiment(**FILE, layer={"cohorts": {"clients": 4}}, compare=["fedavg", entry])
    plain, stack = (each.lay_over(asked, compare=[]) for each in list_methods(asked))
    assert (plain.layer, stack.layer) == ({}, {"cohorts": {"clients": 4}})
    for each in (plain, stack):
        prepare(each)
    done = compare(asked, ["fedavg"], seeds=[1])  # a part of them
    assert done.experiment.layer == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"layers": ["user"]}, r"layers = 'user': no such layer; .*'users'"),
        ({"layers": ["users", "users"]}, r"'users' twice; name each once"),
        ({"layers": {"users": {}}}, r"layers.*a list of names.*\[layer\.NAME\]"),
        ({"layer": {"usres": {}}}, r"no such layer"),
        (
            {"layers": ["users"], "layer": {"users": {"gate": 1}}},
            r"layer\.users\.gate = 1: no such parameter",
        ),
        ({"layers": ["users"], "layer": {"users": {"gateway": "pi5"}}}, r"gateway = 'pi5'.*pi4"),
        ({"layers": ["users"], "layer": {"users": {"alpha": -1.0}}}, r"layer\.users\.alpha = -1\.0"),
        ({"layers": ["cohorts"], "layer": {"cohorts": {"kind": "oxo"}}}, r"layer\.cohorts\.kind = 'oxo'"),
        (
            {"layers": ["cohorts"], "layer": {"cohorts": {"inner": "fedavg"}}},
            r"layer\.cohorts\.inner = 'fedavg'",
        ),
        ({"layers": ["edges"], "layer": {"edges": {"go_on": False, "local_rounds": 2}}}, r"local_rounds = 2"),
        (
            {"layers": ["sizes"], "algorithms": {"fedavg": {"select": "uniform"}}},
            r"fedavg\.select = 'uniform'",
        ),
        ({"layers": ["cohorts", "sizes"], "layer": {"cohorts": {"kind": "cfl"}}}, r"kind = 'cfl'.*'auxo'"),
        (
            {"layers": ["cohorts", "sizes"], "layer": {"sizes": {"kind": "fedrac"}}},
            r"layer\.sizes\.kind = 'fedrac': .*no one model",
        ),
        (
            {"layers": ["sizes"], "layer": {"sizes": {"kind": "hetero"}}},
            r"kind = 'hetero': .*heterofl, fedrac",
        ),
        ({"algorithm": "auxo", "layers": ["cohorts"]}, r"auxo takes no cohorts: it groups devices by itself"),
        ({"algorithm": "shufflefl", "layers": ["users"]}, r"shufflefl takes no users: it has users already"),
        ({"algorithm": "fededge", "layers": ["edges"]}, r"fededge takes no edges: it has edges already"),
        (
            {"algorithm": "shufflefl", "layers": ["cohorts"], "algorithms": {"shufflefl": {"gamma": 0.5}}},
            r"algorithms\.shufflefl\.gamma = 0\.5",
        ),
        (
            {"algorithm": "ifca", "layers": ["users"]},
            r"layers = \['users'\]: ifca takes no users: it has several",
        ),
    ],
)
def test_wrong_layers_are_named(said, told):
    with pytest.raises(ConfigError, match=told):
        prepare(Experiment(**FILE | said))


@pytest.mark.parametrize(
    ("clients", "more", "users", "told"),
    [
        (20, {}, None, None),
        (9, {}, None, "9 members a round, and sides are sought among 10; raise clients"),
        (20, {}, 5, "5 members a round, and sides are sought among 10; take another criterion"),
        (20, {"force": (2,)}, 5, None),
        (20, {"criterion": "faithful"}, 5, None),
        (20, {"cohorts": 1}, 5, None),
    ],
)
def test_cohorts_say_if_they_can_never_split(clients, more, users, told):
    table = {"clients": clients, "cohorts": 2} | more
    people = {} if users is None else {"users": {}}
    where = small([*SIZES, *SIZES], users=users)
    said = find_doubt(where, stacked("fedavg", PLAIN, cohorts=table, **people))
    assert said is None if told is None else told in said
