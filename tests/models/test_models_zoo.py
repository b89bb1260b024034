"""Residual and separable networks, and models of signals and text."""

import pickle

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from potluck.core.errors import ConfigError, ModelError
from potluck.core.job import ModelSpec
from potluck.core.keys import as_tensor
from potluck.models import Model, PlainLSTM, Residual, register
from potluck.models.registry import MODELS
from potluck.models.zoo.blocks import lstm, plain_lstm

IMAGE, COLOUR, SIGNAL, TEXT = (1, 28, 28), (3, 32, 32), (9, 128), (80,)
SMALL = {  # shape and factors that keep tests quick
    "resnet8": ((1, 8, 8), {"width": 0.5}),
    "resnet18": ((8, 8), {"width": 1 / 16}),
    "resnet34": ((3, 6, 6), {"width": 1 / 32, "depth": 0.5}),
    "mobilenetv1": ((1, 8, 8), {"width": 1 / 16, "depth": 0.3}),
    "mobilenetv2": ((1, 8, 8), {"width": 1 / 8, "depth": 0.4}),
    "har_cnn": ((9, 20), {"width": 1 / 16}),
    "har_cnn_light": ((9, 20), {"width": 0.125}),
    "har_lstm": ((9, 12), {"width": 0.125, "depth": 2}),
    "char_lstm": ((7,), {"width": 1 / 32}),
}


def make(name, shape, classes=10, dtype=torch.float64, **factors):
    inputs = torch.int64 if name == "char_lstm" else None
    return Model(ModelSpec(name, **factors), shape, classes, dtype, inputs)


@pytest.fixture(autouse=True, scope="module")
def alone():
    """More threads than one only slow down models of this size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(name):
    shape, factors = SMALL[name]
    return make(name, shape, **factors)


def rows(model, n=4, seed=0):
    source = torch.Generator().manual_seed(seed)
    if model.inputs == torch.int64:
        return torch.randint(model.classes, (n, *model.shape), generator=source)
    return torch.randn(n, *model.shape, generator=source, dtype=model.dtype)


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.fixture(autouse=True)
def registered():
    before = dict(MODELS._values), dict(MODELS._modules)
    yield
    MODELS._values, MODELS._modules = before


# ------------------------------------------------------------------------------------------ sizes and costs


@pytest.mark.parametrize(
    ("name", "shape", "classes", "factors", "size"),
    [
        ("resnet8", IMAGE, 10, {}, 78_042),
        ("resnet8", COLOUR, 10, {}, 78_330),
        ("resnet18", COLOUR, 10, {}, 11_173_962),
        ("mobilenetv1", COLOUR, 10, {}, 3_217_226),
        ("mobilenetv2", COLOUR, 10, {}, 2_236_682),
        ("har_cnn", SIGNAL, 6, {}, 557_510),
        ("har_cnn_light", SIGNAL, 6, {}, 65_350),
        ("har_cnn_light", SIGNAL, 6, {"width": 0.125}, 1_454),
        ("har_lstm", SIGNAL, 6, {}, 4 * 64 * (9 + 64 + 2) + 65 * 6),
        ("char_lstm", TEXT, 80, {}, 819_920),
    ],
)
def test_sizes(name, shape, classes, factors, size):
    assert make(name, shape, classes, torch.float32, **factors).size == size


def test_resnet34_has_21_million():
    with torch.device("meta"):
        net = MODELS["resnet34"][0](COLOUR, 10, 1.0, 1.0)
    assert sum(p.numel() for p in net.parameters()) == 21_282_122


def test_ops_by_hand():
    first, projection, head = 9 * 16 * 28**2, 16 * 16 * 28**2, 640
    stage1 = 2 * 9 * 16 * 16 * 28**2
    stage2 = (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) * 14**2
    stage3 = (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64) * 7**2
    assert make("resnet8", IMAGE).ops == first + stage1 + projection + stage2 + stage3 + head
    text = 80 * 4 * 256 * (8 + 256 + 256 + 256) + 256 * 80
    assert make("char_lstm", TEXT, 80, torch.float32).ops == text


@pytest.mark.parametrize("name", [name for name in SMALL if "lstm" not in name])
def test_ops_equal_the_flop_counter(name):
    model = made(name)
    with FlopCounterMode(display=False) as counter:
        model.module(model.init(0))(rows(model, 1))
    assert model.ops == counter.get_total_flops() // 2


def test_depth_scales_the_blocks_of_every_stage():
    def blocks(depth):
        with torch.device("meta"):
            net = MODELS["resnet34"][0](COLOUR, 10, 1.0, depth)
        return [len(stage) for stage in net[1:5]]

    assert [blocks(depth) for depth in (1, 0.5, 0.01, 2)] == [
        [3, 4, 6, 3],
        [2, 2, 3, 2],
        [1, 1, 1, 1],
        [6, 8, 12, 6],
    ]
    with pytest.raises(ConfigError, match="'har_cnn' can't change its depth"):
        make("har_cnn", SIGNAL, depth=0.5)


def test_a_norm_never_has_too_few_channels():
    for name in ("resnet8", "resnet18", "mobilenetv1", "mobilenetv2"):
        for width in (1, 0.5, 0.3, 0.13):
            with torch.device("meta"):
                net = MODELS[name][0](COLOUR, 10, width, 0.1)
            for part in net.modules():
                if isinstance(part, nn.GroupNorm):
                    assert part.num_channels // part.num_groups >= min(8, part.num_channels)


def test_rows_of_the_wrong_form_are_refused():
    with pytest.raises(ModelError, match=r"needs images .* shape \(9, 8, 8, 8\)"):
        make("resnet18", (9, 8, 8, 8))
    with pytest.raises(ModelError, match=r"'har_lstm' needs signals \(channels, steps\), .* \(1, 28, 28\)"):
        make("har_lstm", IMAGE)
    with pytest.raises(ModelError, match=r"'char_lstm' needs rows of tokens \(steps,\), .* \(9, 128\)"):
        make("char_lstm", SIGNAL)
    with pytest.raises(ModelError, match="'char_lstm' fails on rows"):
        Model(ModelSpec("char_lstm"), TEXT, 80)  # numbers, not tokens


# --------------------------------------------------------------------------------------- the same function


@pytest.mark.parametrize("name", SMALL)
def test_calls_features_and_head_equal_the_module(name):
    model = made(name)
    params, x = model.init(3), rows(model)
    close(model(params, x), model.module(params)(x))
    z = model.features(params, x)
    assert z.ndim == 2
    close(model.head(params, z), model(params, x))
    assert [model.shapes[n] for n in model.head_names] == [(10, z.shape[1]), (10,)]
    assert z.std(0).max() > 0  # it isn't normalised away


@pytest.mark.parametrize("name", SMALL)
def test_stacked_gradients_equal_those_of_a_loop(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("not compiled")

    monkeypatch.setattr("potluck.models.layers.wrap_module", refuse)
    model = made(name)
    each = [model.init(k) for k in range(3)]
    stack = {n: torch.stack([p[n] for p in each]) for n in each[0]}
    x = torch.stack([rows(model, seed=k) for k in range(3)])
    y = torch.arange(12).reshape(3, 4) % 10

    def loss(params, x, y):
        return F.cross_entropy(model(params, x, as_tensor(1)), y)

    stacked = vmap(grad(loss))(stack, x, y)
    for k, params in enumerate(each):
        leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
        alone = torch.autograd.grad(loss(leaves, x[k], y[k]), list(leaves.values()))
        for n, g in zip(leaves, alone, strict=True):
            close(stacked[n][k], g, 1e-10)
    assert max(g.abs().max() for g in stacked.values()) > 1e-3


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_is_pytorchs(layers):
    torch.manual_seed(4)
    theirs = nn.LSTM(5, 6, layers, batch_first=True)
    torch.manual_seed(4)
    ours = PlainLSTM(5, 6, layers)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, drawn in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], drawn)
    theirs.double()
    ours.double().load_state_dict(theirs.state_dict())
    x = torch.randn(3, 7, 5, dtype=torch.float64)
    expected = theirs(x)[0]
    weights, direction = list(ours.parameters()), torch.randn_like(expected)
    slopes = torch.autograd.grad((expected * direction).sum(), list(theirs.parameters()))
    for run in (lstm, plain_lstm):
        outputs = run(x, weights)
        close(outputs, expected)
        mine = torch.autograd.grad((outputs * direction).sum(), weights)
        for a, b in zip(mine, slopes, strict=True):
            close(a, b)
    close(ours(x), expected)
    with torch.no_grad():
        close(ours(x), expected)


def test_dropout_inside_a_residual_has_its_own_masks():
    def build(shape, classes):
        inner = Residual(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
        return nn.Sequential(Residual(nn.Sequential(inner, nn.Dropout(0.5))), nn.Linear(shape[0], classes))

    register("dropped", build)
    model = make("dropped", (2000,))
    params, x = model.init(0), torch.ones(1, 2000, dtype=torch.float64)
    close(model.features(params, x), 3 * x)
    z = model.features(params, x, as_tensor(3))
    assert torch.equal(z, model.features(params, x, as_tensor(3)))
    # 1 + (2a + 2b) * 2c for independent a, b, c of 0 or 1
    values, counts = z.unique(return_counts=True)
    assert values.tolist() == [1, 5, 9]
    assert (counts / 2000).tolist() == pytest.approx([5 / 8, 1 / 4, 1 / 8], abs=0.04)


def test_a_residual_with_a_hook_or_an_unknown_part_still_runs():
    calls = []

    def build(shape, classes):
        block = Residual(nn.Sequential(nn.Linear(shape[0], shape[0]), nn.PReLU()))
        hooked = Residual(nn.Linear(shape[0], shape[0]))
        hooked.register_forward_hook(lambda *_: calls.append(1))
        return nn.Sequential(block, hooked, nn.Linear(shape[0], classes))

    register("odd_zoo", build)
    model = make("odd_zoo", (6,))
    assert model.ops == 36 + 36 + 60
    params, x = model.init(0), rows(model)
    calls.clear()
    close(model(params, x), model.module(params)(x))
    assert len(calls) == 2


def test_a_detector_reads_the_whole_vocabulary():
    spec = ModelSpec("char_lstm", width=1 / 32, outputs=1)
    detector = pickle.loads(pickle.dumps(Model(spec, TEXT, 80, inputs=torch.int64)))
    tokens = torch.arange(2 * TEXT[0]).reshape(2, -1) % 80
    assert detector(detector.init(0), tokens).shape == (2, 1)
    assert detector.vocabulary == 80
