"""The matrix of layers is this test's table: what is offered runs, and what isn't says why."""

import every
import numpy as np
import pytest
import torch
from federations import LOOP, STACKED, chained, finished, lines, values, weights
from stacks import CELLS, NAMES, OFFERED, PLAIN, QUICK, TERMS, build, crowd

from potluck.core.errors import ConfigError
from potluck.engine.acceptance import check
from potluck.engine.schedule import EvaluateAt, StopAt
from potluck.fleet import OnOff
from potluck.layers import complete_layers, find_refusal, list_matrix, stacked
from potluck.layers.matrix import _REFUSED
from potluck.simulate.prior_views import SUFFIX


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
        assert complete_layers(base, [layer], {})[layer][key] is value
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
    where = crowd(availability=OnOff(3, 30.0, 0.8))
    made, often = build(base, layers), EvaluateAt(rounds=2, prior="causal")  # and priors above all of it
    terms = {"stop": StopAt(rounds=4, device_seconds=150), "often": often}
    plain = finished(where, made, plan=LOOP, **terms)
    assert plain.round >= 2
    assert np.isfinite(values(plain, "accuracy_mean")).all()
    views = {r["view"] for r in plain.records if r["metric"] == "accuracy_mean"}
    assert views == {view.removesuffix(SUFFIX) + end for view in views for end in ("", SUFFIX)}
    again, _ = chained(where, made, every=13, plan=LOOP, **terms)  # killed and resumed as often
    assert lines(again) == lines(plain)
    stack = finished(where, made, plan=STACKED, **terms)
    assert stack.now == plain.now
    torch.testing.assert_close(weights(stack), weights(plain), rtol=0, atol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("name", every.EVERYONE)
def test_priors_stand_above_every_algorithm(name):
    """As `serve` of a view is asked for; who is refused other layers has this one."""
    where, often = every.crowd(availability=OnOff(3, 30.0, 0.8)), EvaluateAt(rounds=2, prior="causal")
    terms = {"stop": every.enough(name), "often": often}
    plain = finished(where, every.make(name), plan=LOOP, **terms)
    again, _ = chained(where, every.make(name), every=13, plan=LOOP, **terms)
    assert lines(again) == lines(plain)
    stack = finished(where, every.make(name), plan=STACKED, **terms)
    heard = [values(sim, "accuracy_mean", view=find_headline(sim)) for sim in (plain, stack)]
    np.testing.assert_allclose(*heard, rtol=0, atol=1e-9)
    assert find_headline(plain).endswith(SUFFIX)


def find_headline(sim):
    return next(r["view"] for r in sim.records if r["metric"] == "accuracy_mean")
