from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from support import SPEC, Line, batches, close, fit, local, numbers

from potluck.core.job import Batch, Job, ModelSpec, Opaque, Trace, Training
from potluck.core.trees import same_form
from potluck.jobs import (
    SGD,
    Adam,
    Correct,
    CrossEntropy,
    LabelCounts,
    Probe,
    Prox,
    Shuffled,
    Train,
    fine_tune,
    use_model,
)

# ---------------------------------------------------------------------------------------------- optimisers

SHAPES = [(3, 2), (4,), ()]
OPTIMISERS = [
    (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    (SGD(0.05, weight_decay=0.01), lambda p: torch.optim.SGD(p, 0.05, weight_decay=0.01)),
    (SGD(0.1, 0.9, 0.01), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
    (Adam(), torch.optim.Adam),
    (Adam(0.02, 0.8, 0.95, 1e-4), lambda p: torch.optim.Adam(p, 0.02, (0.8, 0.95), 1e-4)),
]


def numbers_like(seed, *lead):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn((*lead, *shape), generator=generator, dtype=torch.float64) for shape in SHAPES]


@pytest.mark.parametrize(
    "ours, theirs", OPTIMISERS, ids=lambda o: repr(o) if isinstance(o, SGD | Adam) else ""
)
def test_optimisers_do_as_in_torch(ours, theirs):
    params = numbers_like(0)
    others = [p.clone().requires_grad_() for p in params]
    torch_optim, state = theirs(others), ours.start(params)
    for count in range(1, 6):
        grads = numbers_like(count)
        for p, g in zip(others, grads, strict=True):
            p.grad = g.clone()
        torch_optim.step()
        ours.step(params, grads, state, ours.lr, count)
        assert all(torch.allclose(p, q, rtol=0, atol=1e-12) for p, q in zip(params, others, strict=True))


@pytest.mark.parametrize("optim", [o for o, _ in OPTIMISERS], ids=repr)
@pytest.mark.parametrize("rates", [None, (0.1, 0.02, 0.3)], ids=["one lr", "an lr each"])
def test_a_stack_of_clients_trains_like_each_of_them(optim, rates):
    """The last client stops after two steps: those still training are the first rows of the stack."""
    stack = numbers_like(0, 3)
    before = list(stack)
    apart = [[t[i].clone() for t in stack] for i in range(3)]
    state, states = optim.start(stack), [optim.start(client) for client in apart]
    for count in range(1, 5):
        active = 3 if count <= 2 else 2
        grads = numbers_like(count, 3)
        lr = optim.lr
        if rates is not None:
            column = torch.tensor(rates[:active], dtype=torch.float64)
            lr = [column.view(-1, *[1] * len(shape)) for shape in SHAPES]
        optim.step(
            [t[:active] for t in stack],
            [g[:active] for g in grads],
            [[t[:active] for t in row] for row in state],
            lr,
            count,
        )
        for i in range(active):
            rate = optim.lr if rates is None else rates[i]
            optim.step(apart[i], [g[i] for g in grads], states[i], rate, count)
    for i in range(3):
        assert all(torch.allclose(t[i], a, rtol=0, atol=1e-14) for t, a in zip(stack, apart[i], strict=True))
    assert all(a is b for a, b in zip(stack, before, strict=True))  # in place


# ------------------------------------------------------------------------------------------------ sampling


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(0, 4),
    st.none() | st.integers(1, 30),
    st.integers(0, 9),
)
def test_every_row_once_an_epoch_and_padding_at_its_end(n, batch, epochs, limit, seed):
    at, sampler = local(np.zeros(n), np.zeros(n), {}, seed=seed), Shuffled(limit)
    rows = sampler.draw(at, batch, epochs, None)
    used = n if limit is None else min(n, limit)
    per_epoch = -(-used // batch)
    assert rows.index.shape == rows.weight.shape == (epochs * per_epoch, batch)
    assert rows.count == sampler.most(at, batch) == used
    assert sampler.passes(at, batch, epochs, None) == rows.weight.sum() == used * epochs
    for epoch in range(epochs):
        mine = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        weight, index = rows.weight[mine].ravel(), rows.index[mine].ravel()
        assert weight.tolist() == [1.0] * used + [0.0] * (per_epoch * batch - used)
        drawn = index[:used].tolist()
        assert len(set(drawn)) == used
        assert set(drawn) <= set(range(n))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 25))
def test_a_number_of_steps_goes_over_the_rows_again_and_again(n, batch, steps):
    at = local(np.zeros(n), np.zeros(n), {})
    rows = Shuffled().draw(at, batch, 99, steps)
    assert len(rows.index) == (steps if n else 0)
    assert Shuffled().passes(at, batch, 99, steps) == rows.weight.sum()
    enough = Shuffled().draw(at, batch, steps, None)  # at least as many epochs as steps
    assert np.array_equal(rows.index, enough.index[: len(rows.index)])


def test_epochs_differ_and_seeds_repeat():
    at = local(np.zeros(30), np.zeros(30), {}, seed=4)
    one, two = Shuffled().draw(at, 30, 2, None).index
    assert one.tolist() != two.tolist()
    assert np.array_equal(Shuffled().draw(at, 30, 2, None).index, [one, two])
    assert not np.array_equal(
        Shuffled().draw(local(np.zeros(30), np.zeros(30), {}, seed=5), 30, 2, None).index, [one, two]
    )


# ------------------------------------------------------------------------------------------------ training

X, Y = [0.5, -1.0, 2.0, 1.5, -0.3], [1, 0, 1, 0, 1]
SENT = {"params": numbers(0.4, -0.1), "control": numbers(0.2, -0.3)}
OBJECTIVES = [CrossEntropy(), Prox(0.3), Correct()]


def whole(at):
    return Batch(at.x, at.y, torch.ones(len(at.y), dtype=at.x.dtype), torch.tensor(0), None)


@pytest.mark.parametrize(
    "objective, part",
    [
        (CrossEntropy(), "all"),
        (CrossEntropy(), "head"),
        (Prox(0.3), "all"),
        (Prox(0.3), "head"),
        (Correct(), "all"),
    ],
)
def test_what_is_sent_back_has_the_promised_form(objective, part):
    job = Train(objective=objective, batch=2, part=part)
    at = local(X, Y, SENT)
    body, _, _ = fit(job, at)
    assert same_form(body, job.cost(at).sends)
    assert list(body["delta"]) == (["w", "b"] if part == "all" else ["b"])


def test_costs_count_the_rows_that_are_drawn():
    at = local(X, Y, SENT)  # a forward pass of one sample costs 2, training three times that
    assert Train(epochs=3).cost(at).ops == 3 * 5 * 3 * 2
    assert Train(batch=2, steps=4).cost(at).ops == 3 * (5 + 2) * 2  # 2 + 2 + 1, then 2
    assert Train(sampler=Shuffled(limit=2)).cost(at).ops == 3 * 2 * 2
    assert Train(steps=4).cost(local([], [], SENT)).ops == 0
    assert use_model(ModelSpec()).cost(at).ops == 0


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_padding_counts_nothing(objective):
    """Batches of 2, 2 and 1 padded to 2: the last must be as a batch of one row."""
    job = Train(objective=objective, batch=2, optim=SGD(0.2))
    at = local(X, Y, SENT)
    net, keep = Line(), numbers(0.1, 0.1)
    params, held = job.begin(net, SENT, keep, None)
    *_, last = batches(job, at)
    assert last.weight.tolist() == [1.0, 0.0]
    alone = Batch(last.x[:1], last.y[:1], last.weight[:1], last.key, None)
    (a, means), (b, _) = job.loss(net, params, last, held), job.loss(net, params, alone, held)
    assert float(a) == pytest.approx(float(b), rel=1e-14)
    assert not means["loss"].requires_grad


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_objectives_are_the_same_under_vmap(objective):
    job, net = Train(objective=objective, optim=SGD(0.5)), Line()
    keeps = [numbers(0.1, -0.2), numbers(-0.4, 0.3)]
    moved = [numbers(0.9, 0.0), numbers(0.1, 0.7)]
    batch = whole(local(X, Y, SENT))

    def stack(trees):
        return {name: torch.stack([t[name] for t in trees]) for name in trees[0]}

    def step(params, keep, steps):
        _, held = job.begin(net, SENT, keep, None)
        slope = torch.func.grad(lambda p: job.loss(net, p, batch, held)[0])(params)
        trace = Trace({}, steps, torch.tensor(0.5, dtype=torch.float64))
        body, kept, _ = job.finish(params, SENT, keep, held, trace)
        return slope, body, keep if kept is None else kept

    steps = torch.tensor([3.0, 0.0], dtype=torch.float64)
    slopes, bodies, kept = torch.func.vmap(step)(stack(moved), stack(keeps), steps)
    for i in range(2):
        slope, body, mine = step(moved[i], keeps[i], steps[i])
        assert close({k: v[i] for k, v in slopes.items()}, slope, 1e-14)
        assert close({k: v[i] for k, v in kept.items()}, mine, 1e-14)
        for entry, tree in body.items():
            assert close({k: v[i] for k, v in bodies[entry].items()}, tree, 1e-14)


def test_corrected_gradients_are_g_minus_own_plus_all():
    job, net = Train(objective=Correct()), Line()
    keep, batch = numbers(0.5, 0.25), whole(local(X, Y, SENT))
    _, held = job.begin(net, SENT, keep, None)

    def slope(job, held):
        return torch.func.grad(lambda p: job.loss(net, p, batch, held)[0])(SENT["params"])

    plain = slope(Train(), Train().begin(net, SENT, None, None)[1])
    corrected = slope(job, held)
    assert close(corrected, numbers(plain["w"].item() - 0.5 + 0.2, plain["b"].item() - 0.25 - 0.3))


def test_a_device_that_kept_nothing_starts_from_zero_control():
    blank = Train(objective=Correct()).blank(SENT)
    assert close(blank, numbers(0.0, 0.0))
    assert Train().blank(SENT) is None
    body, keep, _ = fit(Train(objective=Correct(), batch=5, optim=SGD(0.5)), local(X, Y, SENT))
    # one step from zero: c_i+ is the gradient itself, (x - y) / lr - c with y = x - lr (g + c)
    slope = torch.func.grad(
        lambda p: Train().loss(Line(), p, whole(local(X, Y, SENT)), ({}, p, None))[0],
    )(SENT["params"])
    assert close(keep, slope)
    assert close(body["control"], slope)


def test_training_the_head_leaves_the_rest():
    job = Train(part="head", batch=5, optim=SGD(1.0))
    params, (frozen, _, _) = job.begin(Line(), SENT, None, None)
    assert list(params) == ["b"]
    assert list(frozen) == ["w"]
    at = local(X, Y, SENT)
    body, _, _ = fit(job, at)
    both, _, _ = fit(replace(job, part="all"), at)
    assert close(body["delta"]["b"], both["delta"]["b"])  # one step: the same slope
    tuned = fine_tune(Train(objective=Prox(1.0), epochs=9, steps=7), epochs=2, part="head")
    assert tuned == Train(epochs=2, part="head")


def test_jobs_that_differ_in_rate_and_steps_share_a_batch():
    one = Train(optim=SGD(0.1, 0.9), epochs=2)
    assert one.shape() == one.scale_rate(3.0).shape() == replace(one, steps=5, sampler=Shuffled(3)).shape()
    for other in (
        replace(one, batch=3),
        replace(one, objective=Prox()),
        replace(one, optim=SGD(0.1)),
        Train(part="head"),
    ):
        assert one.shape() != other.shape()


def test_scores_are_per_row():
    at = local(X, Y, SENT)
    params, held = use_model(ModelSpec()).begin(Line(), SENT, None, None)
    scores = use_model(ModelSpec()).score(Line(), params, whole(at), held)
    logits = [0.4 * x - 0.1 for x in X]
    assert scores["accuracy"].tolist() == [float((z > 0) == (y == 1)) for z, y in zip(logits, Y, strict=True)]
    expected = [np.log1p(np.exp(-z if y else z)) for z, y in zip(logits, Y, strict=True)]
    assert scores["loss"].tolist() == pytest.approx(expected)
    trained, held = Train(part="head").begin(Line(), SENT, None, None)
    again = Train(part="head").score(Line(), trained, whole(at), held)
    assert again["loss"].tolist() == pytest.approx(expected)
    assert len(use_model(ModelSpec()).draw(at).index) == 0


# -------------------------------------------------------------------------------------------- other jobs


def test_jobs_are_what_they_say():
    assert all(isinstance(job, Training) for job in (Train(), use_model(ModelSpec())))
    assert all(isinstance(job, Opaque) and isinstance(job, Job) for job in (Probe(), LabelCounts(2)))
    assert not isinstance(Train(), Opaque)
    assert not isinstance(Probe(), Training)


def test_label_counts():
    at, job = local(X, Y, {}), LabelCounts(4)
    result = job.run(at)
    assert result.body["counts"].tolist() == [2, 3, 0, 0]
    assert result.weight == 5.0
    assert same_form(result.body, job.cost(at).sends)


def test_a_probe_sends_its_ballast_back():
    at = local(X, Y, {"ballast": torch.arange(100)})
    result = Probe().run(at)
    assert torch.equal(result.body["ballast"], torch.arange(100))
    assert same_form(result.body, Probe().cost(at).sends)
    assert Probe().cost(at).ops == 0


def test_models_are_looked_up_by_what_the_job_names():
    wide = replace(SPEC, width=2.0)
    at = local(X, Y, SENT, models={SPEC: Line(), wide: type("Big", (Line,), {"ops": 20})()})
    assert Train(wide).cost(at).ops == 10 * Train().cost(at).ops
