"""The matrix of layers is this test's table: what is offered runs, and what isn't says why."""

import every
import numpy as np
import pytest
from federations import LOOP, STACKED, chained, finished, lines, values
from stacks import CELLS, NAMES, OFFERED, PLAIN, QUICK, TABLES, TERMS, build, crowd, run_every_way

from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.engine.acceptance import check
from potluck.engine.schedule import EvaluateAt
from potluck.fleet import OnOff
from potluck.layers import complete_layers, find_refusal, list_apart, list_matrix, stacked
from potluck.layers.matrix import _REFUSED
from potluck.rules.serving import Weighed

pytestmark = pytest.mark.slow


def test_the_matrix_has_all_that_there_is():
    assert sorted(_REFUSED) == NAMES
    assert {"users", "edges", "cohorts"} <= {layer for _, stack in OFFERED for layer in stack}


@pytest.mark.parametrize(("base", "layers"), [cell for cell in CELLS if cell not in OFFERED])
def test_what_is_not_offered_says_why(base, layers):
    with pytest.raises(ConfigError) as told:
        build(base, layers)
    text = str(told.value)
    assert text.startswith(f"layers = {[*layers]!r}: ")
    assert find_refusal(base, layers) in text
    assert text.endswith("; leave a layer out, or see potluck algorithms --layers")


def test_some_are_offered_on_a_condition():
    said = {(row.algorithm, layer): term for row in list_matrix(NAMES) for layer, term in row.terms.items()}
    assert said == {cell: f"{k} = {str(v).lower()}" for cell, own in TERMS.items() for k, v in own.items()}
    for (base, layer), own in TERMS.items():
        ((key, value),) = own.items()
        assert complete_layers([layer], {}, base)[layer][key] is value
        given = {layer: {key: not value}}
        with pytest.raises(ConfigError, match=rf"layer\.{layer}\.{key} = .*{base} take"):
            stacked(base, PLAIN, **given)
    with pytest.raises(
        ConfigError, match=r"shuffle = True: fedavg and flexcfl take users with shuffle = false"
    ):
        stacked("fedavg", PLAIN, users={"shuffle": True}, cohorts={"kind": "flexcfl"})


@pytest.mark.parametrize(("base", "layers"), OFFERED)
def test_what_is_offered_can_begin(base, layers):
    check(crowd(), build(base, layers), EvaluateAt())


@pytest.mark.parametrize(
    ("base", "layers"),
    [cell if cell in QUICK else pytest.param(*cell, marks=pytest.mark.nightly) for cell in OFFERED],
)
def test_what_is_offered_runs(base, layers):
    where, often = crowd(availability=OnOff(3, 30.0, 0.8)), EvaluateAt(rounds=2, weighed=Weighed())
    plain = run_every_way(where, build(base, layers), often)  # with priors above all of it
    views = {r["view"] for r in plain.records if r["metric"] == "accuracy_mean"}
    assert views == {view.removesuffix("+prior") + end for view in views for end in ("", "+prior")}


@pytest.mark.nightly
@pytest.mark.parametrize("below", [("users",), ("edges",), ("users", "edges")], ids="+".join)
@pytest.mark.parametrize("kind", ["cfl", "flexcfl", "flhc"])
def test_other_kinds_of_cohorts_run(kind, below):
    few = {k: v for k, v in every.FEW.items() if k in every.parameters(kind)}
    made = stacked("fedyogi", PLAIN, **{name: TABLES[name] for name in below}, cohorts={"kind": kind, **few})
    run_every_way(crowd(availability=OnOff(3, 30.0, 0.8)), made, EvaluateAt(rounds=2))


@pytest.mark.nightly
@pytest.mark.parametrize("below", [(), ("users",)], ids=["edges", "users+edges"])
@pytest.mark.parametrize(
    "table",
    [
        {"contrast": {"mu_p": 1.0}, "robust": "MultiKrum"},
        {"inner": "fedyogi", "contrast": {}},
        {"inner": "fedpvr"},
        {"go_on": False, "own": True, "local_rounds": 2, "clients": 2},
    ],
    ids=["contrast", "contrast inside", "inner", "plain"],
)
@pytest.mark.parametrize("base", ["fedavg", "fedyogi", "fedbuff", "auxo"])
def test_other_edges_run(base, table, below):
    made = build(base, ("edges", *below), edges=table)
    sim = run_every_way(crowd(availability=OnOff(3, 30.0, 0.8)), made, EvaluateAt(rounds=2))
    assert "personal" in {r["view"] for r in sim.records if r["metric"] == "accuracy_mean"}


def test_the_command_prints_the_matrix(capsys):
    with pytest.raises(SystemExit) as end:
        main(["algorithms", "--layers"])
    assert not end.value.code
    out = " ".join(capsys.readouterr().out.split())
    for row in list_matrix(NAMES):
        assert row.algorithm in out
        assert all(reason in out for reason in row.refused.values())
        assert all(term in out for term in row.terms.values())
    assert all(f"{pair} don't go together: {reason}" in out for pair, reason in list_apart().items())


@pytest.mark.nightly
@pytest.mark.parametrize("name", every.EVERYONE)
def test_priors_stand_above_every_algorithm(name):
    """As `serve` of a view is asked for; who is refused other layers has this one."""
    where, often = every.crowd(availability=OnOff(3, 30.0, 0.8)), EvaluateAt(rounds=2, weighed=Weighed())
    terms = {"stop": every.enough(name), "often": often}
    plain = finished(where, every.make(name), plan=LOOP, **terms)
    again, _ = chained(where, every.make(name), every=13, plan=LOOP, **terms)
    assert lines(again) == lines(plain)
    stack = finished(where, every.make(name), plan=STACKED, **terms)
    heard = [values(sim, "accuracy_mean", view=find_headline(sim)) for sim in (plain, stack)]
    np.testing.assert_allclose(*heard, rtol=0, atol=1e-9)
    assert find_headline(plain).endswith("+prior")


def find_headline(sim):
    return next(r["view"] for r in sim.records if r["metric"] == "accuracy_mean")
