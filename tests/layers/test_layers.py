"""What layers refuse and where judges stand, and experiments that name them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from federations import SIZES, small
from stacks import COHORTS, PLAIN, PLAIN_EDGES, crowd

from potluck import algorithms
from potluck.core.errors import ConfigError
from potluck.engine.acceptance import check, find_doubt
from potluck.engine.judges import place_judge
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment, compare, run
from potluck.experiment.methods import list_methods
from potluck.experiment.prepare import make_rule, prepare, resolve_run
from potluck.experiment.study import Arm
from potluck.jobs import Private
from potluck.layers import stacked
from potluck.report.reproduction import _tell_fidelity
from potluck.rules.guard import guard
from potluck.rules.robust import Median
from potluck.rules.serving import Weighed

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
        {"layers": ["switch", "cohorts"], "layer": {"switch": {"switch": {"kind": "threshold"}}}},
        {"layers": ["tuned", "prior"], "algorithm": "shufflefl"},
        {"layers": ["cohorts"], "algorithm": "maverick", "algorithms": {"maverick": {"mode": "published"}}},
        {"layers": ["cohorts"], "algorithm": "hierfl", "algorithms": {"hierfl": {"edge_rounds": 2}}},
        {"layers": ["edges"], "layer": {"edges": {"contrast": {"top": 1}, "robust": "MultiKrum"}}},
        {"layers": ["edges"], "layer": {"edges": {"inner": {"kind": "fedprox", "mu": 0.5}}}},
    ],
)
def test_what_a_run_writes_down_makes_the_same_rule(said):
    full = resolve_run(Experiment(**FILE | said))
    assert make_rule(full) == make_rule(Experiment(**FILE | said))
    assert resolve_run(full) == full


def test_a_rule_made_in_python_may_have_priors_and_nothing_else():
    rule = algorithms.make("fedavg", PLAIN, clients=3)
    primed = prepare(Experiment(**FILE, layers=["prior"]), rule)
    assert (primed.experiment.layers, primed.experiment.layer) == (["prior"], {"prior": {"form": "causal"}})
    assert primed.evaluate.weighed == Weighed("causal")
    with pytest.raises(ConfigError, match=r"layers = \['users'\]: stand around an algorithm that is named"):
        prepare(Experiment(**FILE, layers=["users"]), rule)
    with pytest.raises(
        ConfigError, match=r"layers = \['prior', 'users'\]: prior is of whatever a run serves"
    ):
        stacked("fedavg", PLAIN, prior={}, users={})


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
        ({"layers": ["edges"], "layer": {"edges": {"go_on": False, "mix": "half"}}}, r"mix = 'half'.*true"),
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
        ({"layers": ["tuned"], "layer": {"tuned": {"epochs": -1}}}, r"layer\.tuned\.epochs = -1"),
        ({"layers": ["tuned"], "layer": {"tuned": {"lr": 0.0}}}, r"layer\.tuned\.lr = 0\.0"),
        ({"layers": ["tuned"], "layer": {"tuned": {"part": "tail"}}}, r"layer\.tuned\.part = 'tail'"),
        ({"layers": ["switch"], "layer": {"switch": {"switch": "luck"}}}, r"switch\.kind = 'luck'.*Entropy"),
        ({"layers": ["switch", "tuned"]}, r"tuned and switch don't go together"),
        (
            {"layers": ["tuned", "edges"]},
            r"layer\.edges\.go_on = True: .*set go_on = false, or leave out tuned",
        ),
        ({"algorithm": "auxo", "layers": ["tuned"], "algorithms": {"auxo": {"inner": "ftfa"}}}, r"by itself"),
        (
            {"layers": ["sizes", "tuned"], "layer": {"sizes": {"kind": "fedrac"}}},
            r"layers = \['tuned'\]: fedrac takes no tuned: its devices use several models",
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
    ("more", "edges", "told"),
    [
        ({}, 3, None),
        ({}, 2, "cfl: no group is cut: 2 members a round, and min_members = 3; lower it"),
        ({"clients": 2}, 5, "2 members a round, and min_members = 3; raise clients"),
        ({"min_members": 2}, 2, None),
    ],
)
def test_cuts_say_if_they_can_never_come(more, edges, told):
    made = stacked("fedavg", PLAIN, cohorts={"kind": "cfl", **more}, edges=PLAIN_EDGES)
    said = find_doubt(small([*SIZES, *SIZES], edges=edges), made)
    assert said is None if told is None else told in said


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
