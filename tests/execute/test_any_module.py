"""Modules as others write them train as stacks: attention, recurrent layers, norms, adapters, padding."""

import warnings

import pytest
from own_modules import MODULES, TOKENS, clients, register_all
from test_executors import close, equal

from potluck.execute.reference import train
from potluck.execute.vectorised.executor import Stacked
from potluck.execute.vectorised.step import _FUSABLE

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def registered():
    register_all()


WAYS = {"stacked": (64, False), "captured": (64, True), "one by one": (1, True)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODULES)
def test_any_module_agrees_with_one_client_at_a_time(name, way):
    chunk, graphs = WAYS[way]
    todo, stacked = clients(name), Stacked(chunk, graphs=graphs)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule")
        first, again = stacked.run(todo), stacked.run(todo)
    assert all(map(close, first, [train(item) for item in todo]))
    assert all(map(equal, first, again))
    assert not stacked.unmapped


@pytest.mark.parametrize("name, at", [("padding", TOKENS - 2), ("padding in a Sequential", 1)])
def test_a_row_of_padding_stays_as_it_was(name, at):
    todo = clients(name)
    met = [set(item.at.pool.x[item.at.rows].flatten().tolist()) for item in todo]
    assert any(at in tokens for tokens in met)
    for stacked in (Stacked(64), Stacked(64, graphs=True)):
        for result, tokens in zip(stacked.run(todo), met, strict=True):
            table = next(iter(result.body["delta"].values()))
            assert {place for place, row in enumerate(table) if row.any()} == tokens - {at}


def test_where_all_weights_descend_in_the_backward_pass_nothing_is_left_to_do():
    _FUSABLE.clear()
    stacked = Stacked(64)
    stacked.run(clients("no bias anywhere"))
    assert (list(_FUSABLE.values()), stacked.fell_back) == ([{0, 1}], "")
