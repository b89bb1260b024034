"""The layer prior: what is served is also weighed by devices' own priors, and no test label is read."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import (
    LOCAL,
    LOOP,
    SPEC,
    STACKED,
    WORKERS,
    chained,
    finished,
    lines,
    pool,
    simulate,
    small,
    values,
    weights,
)

import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.ftfa import ftfa
from potluck.algorithms.ifca.algorithm import ifca
from potluck.core import keys
from potluck.core.errors import ConfigError
from potluck.data import Shift, StoredPartition, arrange, divide, order_of_stream
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment, run
from potluck.experiment.prepare import prepare
from potluck.experiment.schema.settings import as_recorded
from potluck.fleet import place_attackers
from potluck.jobs.calibrate import ROUNDS, begin_search, end_search, share_of, sum_up, take_step
from potluck.jobs.prior import WEIGH, weigh_by_labels, weigh_in_order, weigh_together
from potluck.rules.serving import Weighed
from potluck.simulate import evaluate, prior_views
from potluck.simulate.prior_views import join_halves, weigh_view
from potluck.simulate.served_scores import Told

RULE = FedAvg(clients=4, local=LOCAL)
PRIOR = EvaluateAt(weighed=Weighed())
TOLD = ("accuracy", "loss", "causal", "batch", "labels", "calibrated")


def roomy(train=(9, 4, 12, 7, 10, 6), validation=(5, 3, 0, 6, 4, 1), test=(13, 1, 6, 0, 9, 20), data=None):
    """A few devices with so many rows each, of classes that are unequally common."""
    data = pool() if data is None else data
    rows = data.free
    rows = rows[keys.permute(3, len(rows))]
    rows = rows[np.argsort(data.y.numpy()[rows[:200]], kind="stable")]
    cells = np.stack([train, validation, test], 1).reshape(-1)
    offsets = np.concatenate([[0], np.cumsum(cells)])
    return replace(small(train, data=data), partition=StoredPartition(rows[: offsets[-1]], offsets))


def relabelled(federation, label):
    """The same, but that every row that devices are tested on is of one class."""
    y = federation.pool.y.clone()
    for node in range(federation.devices):
        y[torch.tensor(federation.partition.rows(node, "test"))] = label
    return replace(federation, pool=replace(federation.pool, y=y))


def logits(sim, split, node):
    federation = sim.federation
    _, params = sim.find_models()["global"]
    rows = torch.tensor(order_of_stream(federation.partition, node, split))
    return federation.models[SPEC](params, federation.pool.x[rows]), federation.pool.y[rows]


# --------------------------------------------------------------------------------------------- what is scored


def test_scores_by_hand():
    sim = finished(roomy(), RULE, often=PRIOR)
    x, y = (torch.cat(part) for part in zip(*(logits(sim, "validation", n) for n in range(6)), strict=True))
    search = begin_search(x, 4)
    for _ in range(ROUNDS):
        sums = sum_up(x, y, torch.ones(len(y)).double(), search.at)
        search = take_step(search, sums)
    scaling = end_search(search, share_of(sums.counts))
    told = values(sim, "prior", view="global+prior")[-1]
    assert told["temperature"] == pytest.approx(1 / float(scaling.slope))
    assert told["biases"] == pytest.approx(scaling.bias.tolist())
    assert (told["rows"], told["rounds"]) == (19, ROUNDS)
    assert told["bytes"] == 6 * 8 * (ROUNDS * 5 + ROUNDS * (4 + 1 + 5 + 25))
    for node in range(6):
        z, y = logits(sim, "test", node)
        found = {name: values(sim, name, node=node, view="global+prior") for name in TOLD}
        if not len(y):
            assert not any(found.values())
            continue
        logs, ones = scaling.read(z), torch.ones(len(y)).double()
        causal, batch = (weigh(logs, ones, scaling.source) for weigh in (weigh_in_order, weigh_together))
        held = sim.federation.pool.y[torch.tensor(sim.federation.partition.rows(node, "train"))]
        counts = torch.bincount(held, minlength=4)
        own = logs + ((counts + scaling.source) / (len(held) + 1) / scaling.source).log()
        each = causal, causal, batch, own, logs
        by_hand = [float((a.argmax(-1) == y).double().mean()) for a in each]
        names = "accuracy", "causal", "batch", "labels", "calibrated"
        assert [found[name][-1] for name in names] == pytest.approx(by_hand)
        assert found["loss"][-1] == pytest.approx(torch.nn.functional.cross_entropy(causal, y).item())


@pytest.mark.parametrize("form", [*WEIGH, "labels"])
def test_the_form_that_is_named_leads(form):
    sim = finished(roomy(), RULE, often=EvaluateAt(weighed=Weighed(form)))
    for node in (0, 1, 2, 4, 5):
        assert values(sim, "accuracy", node=node, view="global+prior") == values(sim, form, node=node)
    means = [r for r in sim.records if r["metric"] == "accuracy_mean"]
    assert [r["view"] for r in means] == ["global+prior", "global"] * 2
    own = [values(sim, form, node=node)[-1] for node in (0, 1, 2, 4, 5)]
    assert means[-2]["value"] == pytest.approx(np.mean(own)) == sim.accuracy


def test_no_label_of_a_test_row_is_read():
    federation = roomy()
    sims = [finished(relabelled(federation, label), RULE, often=PRIOR) for label in range(4)]
    assert len({str(values(sim, "prior")) for sim in sims}) == 1
    for node in (0, 1, 2, 4, 5):
        for name in ("causal", "batch", "labels", "calibrated"):
            # A row is answered by one class, whatever it is said to be: one of the four runs is right.
            found = [values(sim, name, node=node)[-1] for sim in sims]
            assert sum(found) == pytest.approx(1.0)
    firsts = [values(sim, "causal", node=0)[-1] for sim in sims]
    assert max(firsts) < 1.0  # it doesn't say one class of all


def test_nothing_else_changes():
    rule = ftfa(LOCAL, 3)
    plain, sim = finished(roomy(), rule), finished(roomy(), rule, often=PRIOR)
    assert torch.equal(weights(plain), weights(sim))
    rest = [r for r in sim.records if not str(r.get("view")).endswith("+prior")]
    assert rest == plain.records
    assert len(sim.records) > len(rest)


@pytest.mark.parametrize("rule", [RULE, ftfa(LOCAL, 3), ifca(LOCAL, 3)], ids=["fedavg", "ftfa", "ifca"])
def test_every_executor_comes_to_the_same(rule):
    sims = [finished(roomy(), rule, often=PRIOR, plan=plan, rounds=1) for plan in (LOOP, WORKERS, STACKED)]
    assert lines(sims[0]) == lines(sims[1])
    views = {r["view"] for r in sims[0].records if r["metric"] == "accuracy_mean"}
    assert len(views) == 2 * sum(not view.endswith("+prior") for view in views)
    for one, other in zip(sims[0].records, sims[2].records, strict=True):
        a, b = one["value"], other["value"]
        if isinstance(a, dict):
            a, b = ([n for n in v.values() if isinstance(n, float)] for v in (a, b))
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9)


def test_resumed_at_any_event():
    straight = finished(roomy(), ftfa(LOCAL, 3), rounds=1, often=PRIOR)
    again, _ = chained(roomy(), ftfa(LOCAL, 3), rounds=1, often=PRIOR)
    assert lines(straight) == lines(again)


def test_shifts_are_weighed_too_by_the_fit_of_the_last_evaluation():
    levels = (0.0, 0.5, 1.0)
    data = {"source": "synthetic", "rows": 600, "clients": 8, "partition": "shards", "classes_per_client": 2}
    run = potluck.run(
        Experiment(
            data={**data, "shift": 0.5},
            evaluate={"shifts": list(levels)},
            layers=["prior"],
            model={"name": "linear"},
            stop={"rounds": 2},
            run={"executor": "loop"},
        )
    )
    told = [r for r in run.lines if r["metric"] == "accuracy_shifted" and r["view"] == "global+prior"]
    assert [r["value"]["shift"] for r in told] == list(levels)
    last = {r["view"]: r["value"] for r in run.lines if r["metric"] == "accuracy_mean"}
    at_half = told[1]["value"]
    assert at_half["mean"] == last["global+prior"] == run.summary["accuracy_mean"]
    assert at_half["mean"] == pytest.approx(at_half["causal"])
    assert run.summary["view"] == "global+prior"
    assert run.summary["global_view"] == "global"  # which is everybody's, not weighed by anybody's rows


def test_attackers_fit_with_the_others_and_count_in_no_mean():
    federation = roomy()
    hostile = replace(federation, fleet=place_attackers(federation.fleet, 3, kind="noise", nodes=[0]))
    sims = [finished(f, RULE, often=PRIOR) for f in (federation, hostile)]
    facts = [values(sim, "prior")[0] for sim in sims]  # at the start, before anybody has lied
    assert facts[0] == facts[1]
    means = [values(sim, "accuracy_mean", view="global+prior")[0] for sim in sims]
    own = [values(sims[0], "causal", node=node)[0] for node in (0, 1, 2, 4, 5)]
    assert means == pytest.approx([np.mean(own), np.mean(own[1:])])


def test_rows_are_met_in_the_order_of_the_stream():
    """Sorted by class they would be easy to follow; the first of a stream are answered without its rest."""
    held = divide(pool(), "shards", 8, 1, classes_per_client=1, test=0.4)
    onset = Shift(0.5, "onset")
    made = arrange(pool(), held, 1, levels=(Shift(0.5), onset), kind="shards", classes_per_client=1)
    first = made.phases[0]
    federation = replace(small((9,) * 8), pool=made.pool, partition=first.partition, shifts=first.shifts)
    often = EvaluateAt(weighed=Weighed(), shifts=(Shift(0.5), onset))
    sim = finished(federation, RULE, often=often, rounds=8)
    told = {
        (r["value"].get("kind"), r["view"]): r["value"] for r in sim.records if "shift" in str(r["metric"])
    }
    assert told[None, "global"]["mean"] == told["onset", "global"]["mean"]  # the same rows
    assert told[None, "global+prior"]["batch"] == told["onset", "global+prior"]["batch"]
    assert told[None, "global+prior"]["loss"] != told["onset", "global+prior"]["loss"]


# ----------------------------------------------------------------------------------------- on validation rows


def test_settings_can_be_chosen_without_touching_test_rows():
    federation = roomy()
    x = pool().x.clone()
    x[torch.from_numpy(pool().test)] = float("nan")
    for node in range(6):
        x[torch.tensor(federation.partition.rows(node, "test"))] = float("nan")
    spoilt = replace(federation, pool=replace(pool(), x=x))
    often = EvaluateAt(on="validation", weighed=Weighed())
    sims = [finished(f, RULE, often=often) for f in (federation, spoilt)]
    assert lines(sims[0]) == lines(sims[1])
    halves = [v["rows"] for v in values(sims[0], "prior")]
    assert halves[:2] == halves[2:]
    assert sum(halves[:2]) == 19
    assert min(halves) > 3
    rows = [len(values(sims[0], "accuracy", node=node, view="global+prior")) for node in range(6)]
    assert rows == [2, 2, 0, 2, 2, 2]


def test_no_row_is_answered_by_a_fit_that_has_seen_its_label(monkeypatch):
    """Also where a row is another device's, as in a rehearsal."""
    random = torch.Generator().manual_seed(1)
    rows = np.arange(40).reshape(4, 10)
    logits = torch.randn(40, 3, dtype=torch.float64, generator=random)
    labels = torch.arange(40) % 3
    seen, fit, score = [], prior_views.fit_together, prior_views.score_weighed

    def fitted(devices):
        found = fit(devices)
        seen.append((found.scaling, {int(row) for d in devices for row in d.rows}))
        return found

    def scored(devices, scaling, form):
        mine = next(rows for known, rows in seen if known is scaling)
        assert mine.isdisjoint(int(row) for d in devices for row in d.rows)
        return score(devices, scaling, form)

    monkeypatch.setattr(prior_views, "fit_together", fitted)
    monkeypatch.setattr(prior_views, "score_weighed", scored)
    held = torch.ones(3).double()
    told = [Told(mine, logits[torch.tensor(mine)], labels[torch.tensor(mine)], held) for mine in rows]
    found = weigh_view(
        [[one, one, other] for one, other in zip(told, told[::-1], strict=True)], "causal", True
    )
    assert {row for _, mine in seen for row in mine} == set(range(40))
    assert [[s["rows"] for s in test] for test in found.scores] == [[10] * 4] * 2
    assert found.scores[0] == found.scores[1][::-1]


def test_both_halves_count_by_their_rows():
    three = {"rows": 3.0, "accuracy": 1.0, "loss": 0.5}
    assert join_halves(three, {"rows": 1.0, "accuracy": 0.0, "loss": 2.5}) == pytest.approx(
        {"rows": 4.0, "accuracy": 0.75, "loss": 1.0}
    )
    nothing = {"rows": 0.0}
    assert join_halves(three, nothing) == join_halves(nothing, three) == three
    assert join_halves(nothing, nothing) == nothing


def test_shifts_are_rehearsed_with_others_rows_and_fitted_on_own_ones(monkeypatch):
    held = divide(pool(), "shards", 8, 1, classes_per_client=1, validation=0.3)
    made = arrange(pool(), held, 1, levels=(Shift(1.0),), kind="shards", classes_per_client=1)
    first = made.phases[0]
    federation = replace(small((9,) * 8), pool=made.pool, partition=first.partition, shifts=first.shifts)
    asked, answers = [], evaluate.list_answers

    def listed(items, stretches, executor):
        asked.append(stretches)
        return answers(items, stretches, executor)

    monkeypatch.setattr(evaluate, "list_answers", listed)
    often = EvaluateAt(on="validation", weighed=Weighed(), shifts=(Shift(1.0),))
    sim = finished(federation, RULE, often=often)
    *_, last = asked
    for node, (own, met) in enumerate(last):
        assert np.array_equal(own, first.partition.rows(node, "validation"))
        assert np.array_equal(met, order_of_stream(first.shifts[Shift(1.0)], node, "validation"))
        assert not set(own.tolist()) & set(met.tolist())
    views = [r["view"] for r in sim.records if r["metric"] == "accuracy_shifted"]
    assert views == ["global+prior", "global"]


# ------------------------------------------------------------------------------------------------ refusals


def test_somebody_must_have_validation_rows():
    nobody = roomy(validation=(0,) * 6)
    with pytest.raises(
        ConfigError, match=r"layers = \['prior'\]: no device has validation rows.*data.validation"
    ):
        simulate(nobody, RULE, often=PRIOR)
    some = roomy(validation=(5, 0, 0, 0, 0, 0))
    for seed in range(20):
        sim = simulate(some, RULE, often=EvaluateAt(weighed=Weighed(), panel=2), seed=seed)
        if 0 not in sim.panel:
            break
    with pytest.raises(
        ConfigError, match=r"layers = \['prior'\]: no device of the panel has validation rows"
    ):
        sim.run()


def test_wrong_forms_are_named():
    with pytest.raises(
        ConfigError, match=r"layer.prior.form = 'online': must be 'causal', 'batch' or 'labels'"
    ):
        Weighed("online")
    with pytest.raises(ConfigError, match=r"layer.prior.form = 'online': .*'causal', 'batch' or 'labels'"):
        prepare(Experiment(layers=["prior"], layer={"prior": {"form": "online"}}))


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ({"prior": True}, r'serve\.prior = True: priors are a layer; write layers = \["prior"\] instead'),
        ({"form": "labels"}, r"serve\.form = 'labels': .* and \[layer\.prior\] form = 'labels' instead"),
        ({}, r"serve = {}: .*layers"),
    ],
)
def test_the_key_of_before_says_how_it_is_written_now(old, told):
    with pytest.raises(ConfigError, match=told):
        Experiment(serve=old)
    with pytest.raises(ConfigError, match=r"--set: serve\.prior = True: priors are a layer"):
        Experiment().with_overrides(["serve.prior=true"])


def test_runs_of_before_can_be_read():
    with as_recorded():
        plain = Experiment(serve={"prior": False, "form": "causal"})
        primed = Experiment(serve={"prior": True, "form": "labels"})
    assert (plain.layers, plain.layer) == ([], {})
    assert (primed.layers, primed.layer) == (["prior"], {"prior": {"form": "labels"}})


def test_who_knows_nothing_of_its_rows_answers_as_the_view_itself():
    """A layer of no effort changes nothing: no row of its own, no row before."""
    logs = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logs = logs.log_softmax(-1)
    known = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    torch.testing.assert_close(weigh_by_labels(logs, torch.zeros(3, 4), known), logs, rtol=0, atol=1e-12)
    unread = torch.zeros(3, 5, dtype=torch.float64)
    for weigh in (weigh_in_order, weigh_together):
        torch.testing.assert_close(weigh(logs, unread, known).softmax(-1), logs.exp(), rtol=0, atol=1e-12)


def test_a_layer_beside_changes_nothing_of_a_view():
    """Nor of what is trained, whatever stands below."""
    tables = {
        "data": {"source": "digits", "limit": 300, "partition": "user_devices", "users": 5}
        | {"devices_per_user": [2, 3]},
        "model": {"width": 0.05},
        "stop": {"rounds": 2},
        "layer": {"cohorts": {"clients": 4, "cohorts": 2}},
    }
    plain = run(Experiment(**tables, layers=["users", "cohorts"]))
    primed = run(Experiment(**tables, layers=["prior", "users", "cohorts"]))
    assert primed.experiment.layers == ["users", "cohorts", "prior"]
    assert primed.summary["view"] == "cohort+prior"
    assert [r for r in primed.lines if not str(r.get("view")).endswith("+prior")] == plain.lines
