"""What ClassTer's devices and server compute: detectors, batches and views, distillation, the switch."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Line, close, local, numbers
from torch import nn

from potluck.algorithms.classter.device.augment import ByShape, Crop, Jitter, noise_like
from potluck.algorithms.classter.device.detect import Balanced, Detect, Fall, nt_xent
from potluck.algorithms.classter.device.distil import (
    Calibration,
    Distillation,
    Loudest,
    calibrate_logits,
)
from potluck.core import keys
from potluck.core.job import Batch, Local, ModelSpec
from potluck.execute.reference import Item, train
from potluck.fleet import TRAINING_FACTOR
from potluck.jobs import SGD, Train, use_model
from potluck.jobs.calibrate import Scaling, fit_here
from potluck.jobs.losses import divergence
from potluck.jobs.prior import WEIGH, weigh_in_order
from potluck.jobs.switch import Cosine, Entropy, Familiar, Home, Personal, Prior, Switch, Threshold, entropy
from potluck.models import Models, register

SPEC, ONE = ModelSpec(), ModelSpec(outputs=1)
KEY = keys.as_tensor(5)


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


class Logit(Line):
    """A detector of one feature: logit w x + b; remembers what it was asked."""

    def __init__(self, w=0.0, b=0.0):
        super().__init__(w, b)
        self.asked = []

    def features(self, params, x, key=None):
        self.asked.append((x, key))
        return params["w"] * x

    def head(self, params, z):
        return z + params["b"]


def batch(x, y, weight=None, seen=None):
    x = torch.tensor(x, dtype=torch.float64)
    weight = torch.ones(len(x), dtype=torch.float64) if weight is None else table(*weight)
    return Batch(x.reshape(len(x), -1), torch.tensor(y), weight, KEY, seen)


ROWS, VIEWS = table([1.0, 0.0], [0.0, 1.0]), table([1.0, 0.0], [0.6, 0.8])


def test_views_find_each_other_among_all_views():
    # Per view: log of the sum over the three others, less the own pair; cosines 1, 0, 0.6 and 0.8 over 0.5.
    expected = [0.46037, 0.33918, 0.46037, 0.85042]
    first = math.log(math.exp(2) + math.exp(0) + math.exp(1.2)) - 2
    assert first == pytest.approx(expected[0], abs=1e-5)
    found = float(nt_xent(ROWS, VIEWS, 0.5))
    assert found == pytest.approx(0.52759, abs=1e-5) == pytest.approx(sum(expected) / 4, abs=1e-5)
    assert found != pytest.approx(-2.0)  # as printed, of the first pair: no normalisation
    assert float(nt_xent(3 * ROWS, VIEWS, 0.5)) == pytest.approx(found)  # cosines know no length


def test_rows_that_are_not_real_count_nothing():
    junk = table([9.0, 1.0], [-3.0, 2.0])
    one, other = torch.cat([ROWS[:1], junk, ROWS[1:]]), torch.cat([VIEWS[:1], -junk, VIEWS[1:]])
    real = torch.tensor([True, False, False, True])
    assert torch.equal(nt_xent(one, other, 0.5, real), nt_xent(ROWS, VIEWS, 0.5))


@pytest.mark.parametrize(
    ("real", "scale"), [([False, False], 1.0), ([True, False], 1.0), ([True, False], 0.0)]
)
def test_with_fewer_than_two_rows_there_is_nothing_to_tell_apart(real, scale):
    one = (ROWS * scale).requires_grad_()
    loss = nt_xent(one, VIEWS, 0.25, torch.tensor(real))
    assert loss.item() == 0.0
    (slope,) = torch.autograd.grad(loss, one)
    assert torch.equal(slope, torch.zeros_like(slope))


def drawn(target, others, size, steps, seed):
    y = [1] * target + [0] * others
    y = [y[i] for i in keys.permute(seed, len(y))]
    at = local([0.0] * len(y), y, {"target": torch.tensor(1)}, seed=seed)
    return at, Balanced().draw(at, size, 3, steps)


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 9), st.integers(0, 9), st.integers(2, 9), st.none() | st.integers(1, 8), st.integers(0))
def test_batches_are_target_rows_then_others(target, others, size, steps, seed):
    at, rows = drawn(target, others, size, steps, seed)
    total = max(2, min(size, target + others))
    half = min(total // 2, target)
    assert rows.index.shape == (steps or 3 * math.ceil((target + others) / size), size)
    assert rows.count == target + others
    assert set(np.unique(rows.weight)) <= {0.0, 1.0}
    counts = Counter(), Counter()
    for index, weight in zip(rows.index, rows.weight, strict=True):
        real = index[weight > 0]
        assert (weight[: len(real)] == 1).all()  # padding comes last
        labels = at.y.numpy()[real]
        assert (labels[:half] == 1).all()
        assert (labels[half:] == (0 if others else 1)).all()
        assert len(real) == half + total - total // 2
        assert len(set(real[:half].tolist())) == half  # none is told from itself
        counts[0].update(real[:half].tolist()), counts[1].update(real[half:].tolist())
    for count, kind in zip(counts, (1, 0 if others else 1), strict=True):
        evenly = [count[row] for row in np.flatnonzero(at.y.numpy() == kind)]
        assert max(evenly) - min(evenly) <= 1
    assert Balanced().passes(at, size, 3, steps) == rows.weight.sum()
    assert rows.count == Balanced().most(at, size) == len(at.rows)  # however often they come


def test_without_the_class_there_are_no_steps_and_no_weight():
    at, rows = drawn(0, 5, 4, None, 0)
    assert (len(rows.index), rows.count, Balanced().passes(at, 4, 3, None)) == (0, 0.0, 0)
    assert Balanced().draw(local([], [], {"target": torch.tensor(1)}), 4, 3, None).count == 0.0


def test_both_kinds_weigh_alike_however_few():
    b = batch([1.0, -1.0, -2.0], [1, 0, 2])
    loss, _ = Detect(contrast=0.0).loss(Logit(), numbers(1.0, 0.5), b, torch.tensor(1))
    soft = [math.log1p(math.exp(z)) for z in (-1.5, -0.5, -1.5)]  # -z of the class, z of the others
    assert float(loss) == pytest.approx((soft[0] + (soft[1] + soft[2]) / 2) / 2)


def test_contrast_is_among_target_rows_and_their_views_alone():
    net = SimpleNamespace(features=lambda p, x, key: x, head=lambda p, z: z[:, :1] * 0)
    y, weight = [1, 1, 0, 0, 0], [1.0, 1.0, 1.0, 1.0, 0.0]
    b = batch([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [-1.0, 2.0], [7.0, 7.0]], y, weight)
    rows = SimpleNamespace(view=lambda x, key: VIEWS)
    loss, told = Detect(2.0, 0.5, rows).loss(net, {}, b, torch.tensor(1))
    assert float(told["contrast"]) == pytest.approx(0.52759, abs=1e-5)
    assert float(loss) == pytest.approx(math.log(2) + 2 * 0.52759, abs=1e-4)


def test_who_holds_nothing_else_trains_against_noise():
    net, b = Logit(), batch([1.0, 2.0, 3.0, 4.0, 5.0], [1] * 5)
    loss, _ = Detect(contrast=0.0).loss(net, numbers(1.0), b, torch.tensor(1))
    x = net.asked[0][0][:, 0]
    assert x[:2].tolist() == [1.0, 2.0]  # the second half gives way
    assert not set(x[2:].tolist()) & {3.0, 4.0, 5.0}
    soft = torch.nn.functional.softplus
    assert float(loss) == pytest.approx(float((soft(-x[:2]).mean() + soft(x[2:]).mean()) / 2))


def test_training_descends_and_tells_how_far_the_loss_fell():
    sent = {"params": numbers(), "target": torch.tensor(1)}
    at = local([1.0, 1.0, -1.0, -1.0], [1, 1, 0, 0], sent, models={ONE: Logit()})
    job = Train(ONE, Fall(Detect(contrast=0.0)), Balanced(), SGD(0.5), batch=4)
    done = train(Item(job, at))
    assert close(done.body["delta"], numbers(0.25))  # each row's slope is 1/2, towards its side
    assert done.metrics["loss"] == pytest.approx(math.log(2))
    assert done.metrics["fall"] == pytest.approx(math.log(2) - math.log1p(math.exp(-0.25)))
    plain = TRAINING_FACTOR * 4 * 2  # rows, and operations of this model
    assert job.cost(at).ops == plain + 2 * 4 * 2  # a pass before and one after
    other = Train(ONE, Detect(), Balanced(), SGD(0.5), batch=4)
    assert other.cost(at).ops == 1.5 * plain  # other views of half of them


def dropping(shape, classes):
    layers = nn.Linear(math.prod(shape), 8), nn.Dropout(0.5), nn.Linear(8, classes)
    return nn.Sequential(nn.Flatten(), *layers)


register("dropping", dropping)


@pytest.mark.parametrize("model", ["mlp", "dropping"])
@pytest.mark.parametrize("y", [[1, 1, 0, 0], [1, 0, 0, 2], [1, 1, 1, 1], [1, 1, 1]])
@pytest.mark.parametrize("shape", [(5,), (2, 4), (1, 6, 6)])
def test_padding_counts_nothing(shape, y, model):
    net = Models(shape, 1, torch.float64)[ModelSpec(model, outputs=1)]
    params = {n: p.requires_grad_() for n, p in net.init(3).items()}
    x = keys.normal(keys.as_tensor(1), (9, *shape), torch.float64)
    found = []
    for pad in (0, 1, 5):
        rows, labels = torch.cat([x[: len(y)], x[:1].expand(pad, *shape)]), torch.tensor(y + [y[0]] * pad)
        weight = table(*[1.0] * len(y), *[0.0] * pad)
        loss, _ = Detect().loss(net, params, Batch(rows, labels, weight, KEY, None), torch.tensor(1))
        found.append((loss, *torch.autograd.grad(loss, params.values(), allow_unused=True)))
    for more in found[1:]:
        for one, other in zip(found[0], more, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_padding_changes_no_noise_of_tokens():
    x, real = torch.arange(12).reshape(4, 3), torch.tensor(2)
    short, long = noise_like(x[:2], KEY, real), noise_like(x, KEY, real)
    assert torch.equal(short, long[:2])
    assert set(noise_like(x.repeat(20, 1), KEY).flatten().tolist()) == set(range(12))
    assert int(long.max()) < 6


def test_crops_show_a_part_of_each_image():
    x = torch.arange(2 * 36, dtype=torch.float64).reshape(2, 1, 6, 6)
    assert torch.equal(Crop(1.0, 0.0).view(x, KEY), x)
    seen = Crop(0.5, 0.0).view(x, KEY)
    for row, view in zip(x, seen, strict=True):
        found = view.unique()
        assert set(found.tolist()) <= set(row.flatten().tolist())
        assert len(found) < 36
        assert (view[0].diff(dim=0) >= 0).all()  # neighbours stay in order
        assert (view[0].diff(dim=1) >= 0).all()
    assert not torch.equal(seen, Crop(0.5, 0.0).view(x, keys.as_tensor(6)))
    many = x[:1].repeat(40, 1, 1, 1)
    turned = [torch.equal(view, x[0].flip(-1)) for view in Crop(1.0, 0.0, flip=True).view(many, KEY)]
    assert 8 < sum(turned) < 32
    factors = (Crop(1.0, 0.3).view(x + 1, KEY) / (x + 1)).flatten(1)
    assert torch.allclose(factors, factors[:, :1])  # one an image
    assert ((factors > 0.7) & (factors < 1.3)).all()
    assert factors[0, 0] != factors[1, 0]


def test_jitter_scales_channels_and_adds_noise():
    x = torch.ones(200, 2, 30, dtype=torch.float64)
    assert torch.equal(Jitter(0.0, 0.0).view(x, KEY), x)
    scaled = Jitter(0.1, 0.0).view(x, KEY)
    assert torch.equal(scaled, scaled[..., :1].expand_as(scaled))  # one factor a channel
    assert float(scaled[..., 0].std()) == pytest.approx(0.1, abs=0.02)
    assert float((Jitter(0.0, 0.1).view(x, KEY) - 1).std()) == pytest.approx(0.1, abs=0.005)


def test_views_suit_rows_by_their_axes():
    shapes = [(5,), (2, 9), (1, 8, 8), (2, 1, 8, 8)]
    fits = [[kind.suits(s) for s in shapes] for kind in (Crop(), Jitter(), ByShape())]
    assert fits == [[0, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    image, signal = torch.ones(2, 1, 8, 8), torch.ones(2, 1, 8)
    assert torch.equal(ByShape().view(image, KEY), Crop().view(image, KEY))
    assert torch.equal(ByShape().view(signal, KEY), Jitter().view(signal, KEY))


def test_logits_are_told_in_deviations_from_noise():
    z, mean, deviation = table([2.0, 5.0, 0.0]), table(1.0, 4.0, -2.0), table(0.5, 2.0, 1.0)
    p = calibrate_logits(z, mean, deviation, torch.tensor([True, True, True]))
    assert p.tolist() == [[2.0, 0.5, 2.0]]
    q = p.softmax(-1)
    assert q[0].tolist() == pytest.approx([0.44982, 0.10037, 0.44982], abs=1e-5)
    assert z.softmax(-1)[0].tolist() == pytest.approx([0.047, 0.946, 0.006], abs=1e-3)  # the wrong one wins
    said = table([1.0, 0.0, 1.0])
    kl = float(divergence(q, said, 1.0))
    assert kl == pytest.approx(0.012895, abs=1e-6)
    assert abs(float(divergence(said.softmax(-1), p, 1.0)) - kl) > 1e-4  # the teacher is first
    assert float(divergence(q, 2 * said, 2.0)) == pytest.approx(kl)  # the student is softened
    silent = calibrate_logits(z, mean, deviation, torch.tensor([True, False, True])).softmax(-1)
    assert silent[0].tolist() == pytest.approx([0.5, 0.0, 0.5])
    assert float(divergence(silent, table([1.0, 9.0, 1.0]), 1.0)) < 20  # finite


def test_calibration_is_by_standard_deviation_on_noise_of_its_own():
    net, models = Logit(), [numbers(2.0, 3.0), numbers(0.0, 1.0)]
    mean, deviation = Calibration("noise", 4000).scale(net, models, torch.ones(1, 1, dtype=torch.float64))
    assert mean.tolist() == pytest.approx([3.0, 1.0], abs=0.1)
    assert deviation.tolist() == pytest.approx([2.0, 1e-3], abs=0.1)  # not 4; and not below the floor
    assert float(deviation[1]) == 1e-3
    noise, key = net.asked[0]
    assert key is None  # as in use: no dropout
    assert len(noise) == 4000
    taught = Logit()
    Detect(contrast=0.0).loss(taught, numbers(), batch([1.0] * 64, [1] * 64), torch.tensor(1))
    assert not set(taught.asked[0][0][32:].flatten().tolist()) & set(noise.flatten().tolist())


def test_the_server_learns_what_detectors_say_and_reads_no_labels():
    job = Distillation(epochs=60, lr=0.05, batch=4, temperature=1.0, noise=500).job(SPEC, ONE)
    sent = {"params": numbers(), "models": [numbers(-1.0), numbers(1.0)], "trained": torch.tensor([True] * 2)}
    x, nets = [-2.0, -1.0, 0.5, 1.0, 2.0], {SPEC: Line(), ONE: Logit()}
    done = [train(Item(job, local(x, y, sent, models=nets))) for y in ([0] * 5, [1, 0, 1, 0, 1])]
    assert torch.equal(done[0].body["delta"]["w"], done[1].body["delta"]["w"])
    # z-scores -x and x, nearly: the student's logits (0, w x) come to the same at w = 2.
    assert float(done[0].body["delta"]["w"]) == pytest.approx(2.0, abs=0.3)
    assert done[0].metrics["deviation 0"] == pytest.approx(1.0, abs=0.15)
    assert set(done[0].metrics) == {"loss", "mean 0", "mean 1", "deviation 0", "deviation 1"}
    twice = job.cost(local(x, [0] * 5, sent, models=nets)).ops
    assert twice == TRAINING_FACTOR * 60 * 5 * 2 + (5 + 500) * 2 * 2


def test_the_loudest_detector_answers_in_deviations_from_noise():
    sent = {"models": [numbers(1.0, 5.0), numbers(-1.0), numbers(9.0, 99.0)]}

    def right(by, known, y):
        job = use_model(ONE, Loudest(Calibration(by)))
        params, held = job.begin(Logit(), {**sent, "trained": torch.tensor(known)}, None, None)
        scores = job.score(Logit(), params, batch([-1.0, 1.0], y), held)
        assert torch.isfinite(scores["loss"]).all()
        return scores["accuracy"].tolist()

    assert right("noise", [True, True, False], [1, 0]) == [1.0, 1.0]  # x and -x, nearly
    assert right("none", [True, True, False], [0, 0]) == [1.0, 1.0]  # 5 + x and -x
    assert right("noise", [False, False, True], [2, 2]) == [1.0, 1.0]


OWN, GENERAL = table([2.0, 0.0], [1.0, 0.0], [0.0, 0.0]), table([1.0, 0.0], [0.0, 2.0], [0.0, 0.0])
MINE = table([3.0, 0.0], [1.5, 0.0], [0.5, 0.0], [0.0, 0.0])
ROOM = Home(MINE, MINE, torch.zeros(4).long(), torch.ones(4))
EMPTY = Home(*(part[:0] for part in ROOM[:4]))
# One row more, which is none: surer, and of the other class.
MORE = table([9.0, 0.0]), table([9.0, 0.0]), torch.ones(1).long(), torch.zeros(1)
PADDED = Home(*(torch.cat(parts) for parts in zip(ROOM[:4], MORE, strict=True)))
REAL = torch.ones(3)


@pytest.mark.parametrize(
    ("chooser", "mine"),
    [
        (Entropy(), [1, 0, 1]),  # even: the own one
        (Threshold(1.0), [1, 1, 1]),  # as sure as of its least certain row
        (Threshold(0.75), [1, 1, 0]),
        (Threshold(0.5), [1, 0, 0]),
        (Threshold(0.25), [0, 0, 0]),
        (Cosine(), [1, 0, 0]),  # cosines 1, 0, and of nothing 0
        (Cosine(0.0), [1, 1, 1]),
        (Familiar(), [1, 0, 1]),  # the general one says 0, 1, 0, and class 0 is held
    ],
)
def test_who_answers(chooser, mine):
    for home in (ROOM, PADDED):
        logits, own = chooser.answer(OWN, GENERAL, home, REAL)
        assert own.tolist() == mine
        assert torch.equal(logits, torch.where(own.unsqueeze(1) > 0, OWN, GENERAL))


def test_entropies_and_choices_without_rows():
    found = entropy(table([2.0, 0.0, 0.0], [1.0, 1.0, 0.0]))
    assert found.tolist() == pytest.approx([0.66557, 1.01736], abs=1e-5)
    assert Threshold().answer(OWN, GENERAL, EMPTY, REAL).own.all()
    assert not Familiar().answer(OWN, GENERAL, EMPTY, REAL).own.any()


@pytest.mark.parametrize("form", WEIGH)
def test_the_general_model_is_weighed_by_what_is_met(form):
    scaling = Scaling(torch.tensor(2.0), table(0.5, 0.0), table(0.6, 0.4))
    logits, own = Prior(form).answer(OWN, GENERAL, ROOM._replace(scaling=scaling), REAL)
    assert torch.equal(logits, WEIGH[form](scaling.read(GENERAL), REAL, scaling.source))
    assert own.tolist() == [0.0] * 3
    alone = fit_here(ROOM.general, ROOM.labels, ROOM.real)
    for home in (ROOM, PADDED):
        found = Prior(form).answer(OWN, GENERAL, home, REAL).logits
        assert torch.allclose(found, WEIGH[form](alone.read(GENERAL), REAL, alone.source))


def test_what_a_prior_is_fitted_on_is_unweighed_and_may_be_sent():
    sent = {"params": numbers(1.0, -1.0)}
    at = local([1.0, -2.0, 3.0], [1, 0, 1], sent, models={SPEC: Line()})
    scaling = Scaling(table(2.0)[0], table(0.5, 0.0), table(0.6, 0.4))
    seen = {"features": at.x}
    found = []
    for more in ({}, {"scaling": scaling._asdict()}):
        job = Personal(epochs=0, switch=Prior()).job(Train(SPEC))
        assert job.whole
        own = batch(at.x.squeeze(1).tolist(), at.y.tolist(), seen=seen)
        params, held = job.begin(Line(), {**sent, **more}, None, own)
        assert torch.equal(job.objective.answer(Line(), params, own, held[2]), Line()(sent["params"], at.x))
        found.append(job.score(Line(), params, own, held)["loss"].tolist())
    by_hand = weigh_in_order(scaling.read(Line()(sent["params"], at.x)), torch.ones(3), scaling.source)
    assert found[1] == pytest.approx(F.cross_entropy(by_hand, at.y, reduction="none").tolist())
    assert found[0] != found[1]


def test_only_the_last_layer_is_tuned_and_both_models_are_told():
    job = Personal(epochs=2, lr=0.5).job(Train(SPEC, optim=SGD(0.1), batch=4))
    sent, tests = {"params": numbers(1.0, -1.0)}, np.array([2, 3])
    at = local([1.0, 1.0, -1.0, -3.0], [1, 1, 0, 0], sent, models={SPEC: Line()}, test=tests)
    done = train(Item(job, Local(0, np.array([0, 1]), sent, None, 0, at.models, at.pool, tests)))
    b = -1.0
    for _ in range(2):
        b += 0.5 / (1 + math.exp(1.0 + b))  # the slope is 1 - s(x + b)
    assert close(done.body["delta"], {"b": table(b + 1.0)})
    # Logits (0, w x + b): the own one is nearer to even on both, so the general one answers.
    told = [done.metrics[k] for k in ("accuracy", "own", "general", "personal")]
    assert told == [1.0, 1.0, 1.0, 0.0]
    seen = {"features": table([-1.0], [-3.0])}
    held = {"general": numbers(1.0), "own": (table([0.0]), torch.tensor([1]), torch.ones(1))}
    scores = Switch().score(Line(), numbers(1.0, 5.0), batch([-1.0, -3.0], [0, 0], seen=seen), held)
    # Own logits (0, 4) and (0, 2), general ones (0, -1) and (0, -3): surer and wrong; then less sure.
    told = [scores[k].tolist() for k in ("personal", "accuracy", "own", "general")]
    assert told == [[1, 0], [0, 1], [0, 0], [1, 1]]
