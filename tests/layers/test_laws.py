"""Laws of layers: what a stack must be equal to, and that breaking a contract breaks them."""

from dataclasses import replace

import pytest
import torch
from federations import SIZES, finished, lines, small, values, weights
from stacks import COHORTS, PLAIN, PLAIN_EDGES, WHOLE, build, crowd

from potluck import algorithms
from potluck.algorithms.auxo.algorithm import Auxo
from potluck.core.errors import ConfigError
from potluck.core.messages import Task
from potluck.engine.acceptance import check
from potluck.engine.schedule import EvaluateAt
from potluck.layers import complete_base, complete_layers, stacked
from potluck.rules.edges import EVERYBODY
from potluck.rules.layered import Layered
from potluck.rules.relay import Relay
from potluck.rules.wrap import unwrap

pytestmark = pytest.mark.slow


def test_any_order_is_the_same_stack():
    one = stacked("fedyogi", PLAIN, users={}, edges={}, cohorts=COHORTS)
    assert one == stacked("fedyogi", PLAIN, cohorts=COHORTS, edges={}, users={})
    assert isinstance(one, Layered)
    assert one.tiers == ("edge", "user")
    assert isinstance(unwrap(one.cloud), Auxo)


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


OF_EDGES = {
    "fededge": {"anchor": "global"},
    "hierfl": {"go_on": False, "own": True},
    "maverick": {"contrast": {}},
}


@pytest.mark.parametrize("name", OF_EDGES)
def test_old_names_of_edges_are_fedavg_above_edges(name):
    stack = stacked("fedavg", PLAIN, {"clients": EVERYBODY}, edges=OF_EDGES[name])
    assert stack == algorithms.make(name, PLAIN)
    sims = [finished(crowd(), rule, rounds=4) for rule in (stack, algorithms.make(name, PLAIN))]
    assert lines(sims[0]) == lines(sims[1])


@pytest.mark.parametrize(
    ("name", "own", "table"),
    [
        ("fededge", {"mode": "published", "local_rounds": (2, 1, 3), "inner": "fedprox"}, None),
        ("hierfl", {"edge_rounds": 3, "clients": 2, "deadline": 9.0}, {"clients": 2, "local_rounds": 3}),
        ("maverick", {"mode": "published", "mu_p": 2.0, "top": 1}, None),
    ],
)
def test_they_have_the_same_edges_below_cohorts(name, own, table):
    """All that can be set of them, in both modes."""
    alone, grouped = algorithms.make(name, PLAIN, **own), stacked(name, PLAIN, own, cohorts=COHORTS)
    assert grouped.at("edge") == alone.at("edge")
    assert isinstance(unwrap(grouped.cloud), Auxo)
    if table is not None:
        plain = {"go_on": False, "own": True, "deadline": 9.0, **table}
        assert stacked("fedavg", PLAIN, edges=plain).at("edge") == alone.at("edge")


def test_a_rule_that_edges_pass_on_is_the_rule_inside_them():
    """FedProx at the cloud, above edges; the cloud's FedAvg above edges that train by FedProx."""
    above = stacked("fedprox", PLAIN, {"mu": 0.5}, edges={"anchor": "global"})
    inside = algorithms.make("fededge", PLAIN, inner={"kind": "fedprox", "mu": 0.5})
    sims = [finished(crowd(), rule, rounds=4) for rule in (above, inside)]
    assert lines(sims[0]) == lines(sims[1])


def test_plain_edges_of_several_rounds_tell_where_these_have_led():
    """One edge of all devices that holds three is FedAvg after nine."""
    where = small(edges=1, compute=4e5)
    edges = {"go_on": False, "local_rounds": 3}
    edged = finished(where, stacked("fedavg", WHOLE, {"clients": 1}, edges=edges), rounds=3)
    plain = finished(where, algorithms.make("fedavg", WHOLE, clients=where.devices), rounds=9)
    torch.testing.assert_close(weights(edged), weights(plain), rtol=0, atol=1e-12)
    with pytest.raises(ConfigError, match=r"\(Correct\), and edges .* or edges with local_rounds = 1"):
        check(where, stacked("scaffold", WHOLE, edges=edges), EvaluateAt())


@pytest.mark.parametrize(
    ("base", "edges", "told"),
    [
        ("fedavg", {"own": False}, r"layer\.edges\.own = False: devices of edges that go on"),
        ("fedavg", {"go_on": False, "contrast": {}}, r"layer\.edges\.contrast = .*set go_on = true"),
        ("fedavg", {"go_on": False, "local_rounds": [1, 2]}, r"layer\.edges\.local_rounds = .*go_on = true"),
        (
            "fedavg",
            {"inner": "fedprox", "deadline": 3.0},
            r"layer\.edges\.deadline = 3\.0: .*inner\.deadline",
        ),
        ("fedprox", {"contrast": {}}, r"objective = 'Prox': devices learn by contrast"),
        ("fedprox", {"inner": "fedavg"}, r"objective = 'Prox': edges train by a rule of their own"),
    ],
)
def test_edges_say_what_does_not_go_together(base, edges, told):
    with pytest.raises(ConfigError, match=told):
        check(crowd(), stacked(base, PLAIN, edges=edges), EvaluateAt())


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
    assert complete_layers(layers, {}, base)["users"]["cap"] is capped
    assert build(base, layers).at("user").cap is capped
    given = {"users": {"cap": not capped}}
    assert complete_layers(layers, given, base)["users"]["cap"] is not capped
    assert build(base, layers, **given).at("user").cap is not capped


@pytest.mark.parametrize("inner", ["fedpvr", {"kind": "scaffold"}, "pyramidfl"])
def test_what_the_rule_inside_groups_needs_is_a_layer_s_default_too(inner):
    own = {"inner": inner}
    assert complete_layers(["edges"], {}, "auxo", own)["edges"]["go_on"] is False
    assert stacked("auxo", PLAIN, own, edges={}).at("edge") == Relay()
    with pytest.raises(
        ConfigError, match=r"layer\.edges\.go_on = True: auxo and \w+ take edges with go_on = false"
    ):
        stacked("auxo", PLAIN, own, edges={"go_on": True})
    with pytest.raises(ConfigError, match=r"layers = \['users'\]: heterofl takes no users"):
        stacked("auxo", PLAIN, {"inner": "heterofl"}, users={})


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
        ("fedavg", ["edges", "cohorts"], {"cohorts": {"criterion": {"epsilon": 0.01}}}, 10.0),
        ("fedavg", ["users", "cohorts"], {}, 1.5),
    ],
)
def test_edges_that_hold_many_rounds_are_listened_to(base, layers, tables, longest):
    """Few edges would be fewer than a split needs, were those that held most rounds thrown out as wild."""
    tables = {name: tables.get(name, {}) for name in layers}
    cloud = stacked(base, PLAIN, **tables).at("cloud")
    assert unwrap(cloud).criterion.longest == longest
    written = complete_layers(layers, tables, base)
    written = written["cohorts"] if "cohorts" in layers else complete_base(base, tables, None, {})
    assert written["criterion"]["longest"] == longest


def test_other_criteria_are_left_alone():
    made = stacked("fedavg", PLAIN, edges={}, cohorts={"mode": "published"})
    assert type(unwrap(made.at("cloud")).criterion).__name__ == "Faithful"
    made = stacked("fedavg", PLAIN, edges={}, cohorts={"criterion": "authors"})
    assert type(unwrap(made.at("cloud")).criterion).__name__ == "Authors"


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


@pytest.mark.parametrize(("epochs", "same"), [(0, True), (1, False)])
@pytest.mark.parametrize("layer", ["tuned", "switch"])
@pytest.mark.parametrize(("base", "view"), [("fedavg", "global"), ("auxo", "cohort"), ("heterofl", "level")])
def test_serving_without_effort_is_the_view_itself(base, view, layer, epochs, same):
    """Of tuning and switches; of priors see tests/simulate/test_prior_views.py."""
    sim = finished(crowd(), build(base, (layer,), **{layer: {"epochs": epochs, "lr": 0.5}}), rounds=3)
    served, plain = (
        torch.tensor([values(sim, "loss", node=node, view=each) for node in range(len(SIZES))])
        for each in (layer, view)
    )
    assert plain.numel()
    assert torch.allclose(served, plain, rtol=0, atol=1e-12) is same


def test_ftfa_is_fedavg_that_is_tuned():
    own = {"tune_epochs": 2, "tune_lr": 0.3, "part": "head"}
    preset = algorithms.make("ftfa", PLAIN, clients=4, **own)
    stack = stacked("fedavg", PLAIN, {"clients": 4}, tuned={"epochs": 2, "lr": 0.3, "part": "head"})
    assert stack == preset
    assert stacked("fedavg", PLAIN, tuned={}) == algorithms.make("ftfa", PLAIN)
    sims = [finished(crowd(), rule, rounds=3) for rule in (preset, stack)]
    assert lines(sims[0]) == lines(sims[1])


@pytest.mark.parametrize("layers", [("tuned",), ("switch",), ("users", "cohorts", "tuned")])
def test_what_is_served_changes_nothing_of_training(layers):
    sims = [finished(crowd(), build("fedavg", each), rounds=3) for each in (layers, layers[:-1])]
    above, plain = (sim.find_models() for sim in sims)
    for view, (spec, params) in plain.items():
        assert above[view][0] == spec
        assert all(torch.equal(above[view][1][name], p) for name, p in params.items())
    views = {r["view"] for r in sims[1].records if r["metric"] == "accuracy_mean"}
    assert views
    for view in views:
        assert values(sims[0], "accuracy_mean", view=view) == values(sims[1], "accuracy_mean", view=view)


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
