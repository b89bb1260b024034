"""What aggregators answer is judged by what they were sent."""

import pytest
import torch
from federations import LOCAL, finished, small, weights

from potluck import algorithms
from potluck.engine.schedule import StopAt
from potluck.rules.state import GlobalState

TOLD = GlobalState.report


def run(monkeypatch, change=lambda weight: weight, seconds=100.0):
    """Rounds of HierFL whose edges answer with another weight."""

    def report(self, task):
        body, weight = TOLD(self, task)
        return body, change(weight)

    monkeypatch.setattr(GlobalState, "report", report)
    algorithm = algorithms.make("hierfl", LOCAL, clients=10)
    return finished(small(edges=2, compute=4e5), algorithm, stop=StopAt(rounds=4, seconds=seconds))


def test_an_edge_may_count_all_rows_that_it_was_sent(monkeypatch):
    sim = run(monkeypatch)
    assert sim.round == 4
    assert sim.accounts.lost.get("bad", 0) == 0


@pytest.mark.parametrize(
    "wrong", [lambda w: 100 * w, lambda w: -1.0, lambda w: float("nan"), lambda w: "all"]
)
def test_an_edge_that_counts_more_is_refused(monkeypatch, wrong):
    sim, start = run(monkeypatch, wrong), run(monkeypatch, seconds=1e-3)
    assert sim.accounts.lost["bad"] >= 2
    assert torch.equal(weights(sim), weights(start))
