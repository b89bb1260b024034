"""Followers learn from a frozen teacher: by hand, and what of it is kept, charged and checked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import LOCAL, SPEC, pool
from torch import nn

from potluck.algorithms.fedrac.device.teach import Teach, mark_rows
from potluck.algorithms.fedrac.device.trial import Trial
from potluck.core.errors import ConfigError, ModelError
from potluck.core.job import Batch, Local, ModelSpec
from potluck.core.trees import add
from potluck.execute.reference import Item, train
from potluck.jobs import SGD, Adam
from potluck.jobs.losses import divergence
from potluck.models import Models, register
from potluck.models.footprint import inference_bytes, training_bytes

Z_T, Z_S = torch.tensor([[3.0, 1.0, 0.0]]).double(), torch.tensor([[2.0, 1.0, 0.0]]).double()
BIG = ModelSpec("mlp", width=0.06)


class Fixed:
    """A model whose parameters are its logits."""

    classes = 3

    def __call__(self, params, x, key=None):
        return params["z"].expand(len(x), -1)


def batch(logits, known=1.0, label=0):
    one = torch.ones(1, dtype=torch.float64)
    seen = {"logits": logits, "known": known * one, "mark": one}
    return Batch(torch.zeros(1, 2).double(), torch.tensor([label]), one, torch.tensor(0), seen)


def loss(z, how, known=1.0, label=0):
    return how.loss(Fixed(), {"z": z}, batch(Z_T, known, label), {})[0]


def test_the_loss_by_hand():
    # KL = .0138667, CE = ln(1 + e^-1 + e^-2) = .4076060
    told = Teach(SPEC).loss(Fixed(), {"z": Z_S}, batch(Z_T), {})
    assert float(told[0]) == pytest.approx(0.1 * 0.4076060 + 0.9 * 9 * 0.0138667, abs=1e-6)
    assert float(told[0]) == pytest.approx(0.1530808, abs=1e-6)
    assert float(told[1]["loss"]) == pytest.approx(0.4076060, abs=1e-6)
    assert float(told[1]["loss_teacher"]) == pytest.approx(0.0138667, abs=1e-6)
    # Without T^2 it would be .0532406.
    assert 0.1 * float(told[1]["loss"]) + 0.9 * float(told[1]["loss_teacher"]) == pytest.approx(
        0.0532406, abs=1e-6
    )
    assert float(loss(Z_S, Teach(SPEC, a=1.0))) == pytest.approx(0.4076060, abs=1e-6)  # labels alone
    assert float(loss(Z_S, Teach(SPEC), known=0.0)) == pytest.approx(0.4076060, abs=1e-6)  # no lesson


def test_the_slope_leads_to_the_teacher_and_not_to_its_label():
    """d/dz T^2 KL = T (softmax(z / T) - softmax(z_T / T)): down for what the teacher says less of."""
    how, z = Teach(SPEC, a=0.0), Z_S.clone().requires_grad_()
    slopes = [torch.autograd.grad(loss(z, how, label=label), z)[0] for label in (0, 2)]
    torch.testing.assert_close(slopes[0], 3 * ((Z_S / 3).softmax(-1) - (Z_T / 3).softmax(-1)))
    assert torch.equal(slopes[0], slopes[1])
    assert slopes[0][0, 0] < 0  # the teacher is surer of class 0: its logit grows
    before, after = (float(loss(s, how)) for s in (Z_S, Z_S - slopes[0]))
    assert 0 < after < before
    assert float(loss(Z_T, how)) == pytest.approx(0.0, abs=1e-12)


# ------------------------------------------------------------------------------------------ on a device


def place(models, send, keep=None, rows=range(6), seed=5):
    data = pool()
    return Local(3, np.array(rows), send, keep, seed, models, data)


@pytest.fixture
def models():
    data = pool()
    return Models(data.shape, data.classes, data.x.dtype)


def work(**how):
    return replace(LOCAL, objective=Teach(BIG, room=8, **how), epochs=2)


def sends(models):
    plain = {"params": models[SPEC].init(1)}
    return plain, {**plain, "teacher": models[BIG].init(2)}


def test_a_lesson_is_kept_and_charged_once(models):
    plain, lesson = sends(models)
    job = work()
    first = train(Item(job, place(models, lesson)))
    assert first.keep["logits"].shape == (8, 4)
    torch.testing.assert_close(first.keep["logits"][:6], models[BIG](lesson["teacher"], pool().x[:6]))
    assert torch.equal(first.keep["logits"][6:], torch.zeros(2, 4).double())
    assert first.keep["mark"].isnan().tolist() == [False] * 6 + [True] * 2
    again = train(Item(job, place(models, plain, first.keep)))
    assert again.keep is None  # as before
    assert again.metrics["taught"] == first.metrics["taught"] == 1.0
    for name, delta in first.body["delta"].items():  # the very same lesson
        torch.testing.assert_close(again.body["delta"][name], delta)
    costs = [job.cost(place(models, send)).ops for send in (lesson, plain)]
    assert costs[0] - costs[1] == 6 * models[BIG].ops  # one pass over six rows
    streamed = work(slower=5.0).cost(place(models, lesson)).ops
    assert streamed - costs[1] == 5 * 6 * models[BIG].ops


def test_without_a_lesson_labels_alone_count(models):
    plain, lesson = sends(models)
    lost = train(Item(work(), place(models, plain)))  # its memory is gone
    labels = train(Item(replace(LOCAL, epochs=2), place(models, plain)))
    assert lost.metrics["taught"] == 0.0
    for name, delta in labels.body["delta"].items():
        torch.testing.assert_close(lost.body["delta"][name], delta)
    kept = train(Item(work(), place(models, lesson))).keep
    other = train(Item(work(), place(models, plain, kept, rows=[0, 1, 2, 90, 91, 92])))
    assert other.metrics["taught"] == 0.5  # three rows are others
    more = train(Item(work(), place(models, plain, kept, rows=range(12))))
    assert more.metrics["taught"] == 0.5  # six of twelve; there is room for eight


def test_marks_tell_rows_apart():
    x = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    # weights 1, 1.5, 2: 1 + 3 + 6 = 10; 3 + 3 + 2 = 8
    assert mark_rows(x).tolist() == [10.0, 8.0, 0.0]
    assert mark_rows(x.to(torch.int64)).tolist() == [10.0, 8.0, 0.0]


def test_the_teacher_is_used_as_it_is(models):
    """No dropout in what it says, although students train with theirs."""
    register("dropping_teacher", lambda shape, classes, width: nn.Sequential(
        nn.Linear(shape[0], 6), nn.Dropout(0.9), nn.Linear(6, classes)))  # fmt: skip
    spec = ModelSpec("dropping_teacher")
    net = models[spec]
    params = net.init(1)
    job = replace(LOCAL, model=SPEC, objective=Teach(spec, room=8))
    found = train(Item(job, place(models, {"params": models[SPEC].init(1), "teacher": params})))
    torch.testing.assert_close(found.keep["logits"][:6], net(params, pool().x[:6]))


def test_other_outputs_are_refused(models):
    two = ModelSpec("mlp", outputs=2)
    job = replace(LOCAL, objective=Teach(two))
    send = {"params": models[SPEC].init(1), "teacher": models[two].init(1)}
    with pytest.raises(ModelError, match=r"a follower of 4 outputs can't be taught by .*, which has 2: give"):
        job.cost(place(models, send))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"a": 1.1}, "teach.a = 1.1"),
        ({"temperature": 0}, "teach.temperature = 0"),
    ],
)
def test_bad_settings_are_refused(how, said):
    with pytest.raises(ConfigError, match=said):
        Teach(SPEC, **how)


def test_a_student_comes_near_its_teacher(models):
    """By what it says alone, whatever the labels are."""
    plain, lesson = sends(models)
    rows = range(40)
    taught = replace(work(a=0.0), objective=Teach(BIG, a=0.0, room=64), optim=Adam(0.02), epochs=150)
    done = train(Item(taught, place(models, lesson, rows=rows)))
    student = add(plain["params"], done.body["delta"])
    x = pool().x[: len(rows)]
    said = (models[BIG](lesson["teacher"], x) / 3).softmax(-1)
    before, after = (divergence(said, models[SPEC](p, x), 3.0).mean() for p in (plain["params"], student))
    assert after < before / 10


# ----------------------------------------------------------------------------------------------- memory


def test_bytes_of_training(models):
    """mlp 5-6-4 in float64: 5*6+6+6*4+4 = 64 parameters, 512 bytes.

    Two rows: 2*5 numbers in; stored for the backward pass are at least the hidden layer (2*6) and the outputs
    (2*4). SGD keeps nothing, momentum as much as the model, Adam twice.
    """
    net = models[SPEC]
    plain = training_bytes(net, SGD(), 2)
    assert plain >= 3 * 512 + 8 * (10 + 12 + 8)
    assert plain <= 3 * 512 + 8 * (10 + 2 * 12 + 2 * 8)
    assert training_bytes(net, SGD(momentum=0.9), 2) == plain + 512
    assert training_bytes(net, Adam(), 2) == plain + 2 * 512
    rest = training_bytes(net, SGD(), 4) - 3 * 512
    assert rest == 2 * (plain - 3 * 512)  # what passes grows with the batch
    assert inference_bytes(net) == 512 + rest // 4
    half = replace(SPEC, width=SPEC.width / 2)
    assert training_bytes(models[half], SGD(), 2) > plain / 2 - 1  # not a quarter: ends keep their sizes


def test_a_trial_tells_nothing_but_the_number_of_rows(models):
    at = place(models, {"ballast": torch.zeros(7, dtype=torch.uint8)})
    trial = Trial(SPEC, passes=4)
    assert trial.cost(at).ops == 4 * models[SPEC].ops
    done = trial.run(at)
    assert done.weight == 6.0
    assert list(done.body) == ["ballast"]
