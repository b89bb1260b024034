import copy
import inspect
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from potluck.core.errors import ConfigError, ModelError
from potluck.core.job import ModelSpec
from potluck.core.keys import as_tensor
from potluck.models import Model, Models, register, scale_units
from potluck.models.registry import MODELS
from potluck.models.stacked_layers import PIECE

DIGIT, IMAGE = (1, 8, 8), (1, 28, 28)
ZOO = ("linear", "mlp", "lenet5", "convnet")


class Residual(nn.Module):
    """Not a Sequential: a skip, a constant buffer, one dropout used twice, a head."""

    def __init__(self, shape, classes):
        super().__init__()
        self.enter = nn.Linear(shape[0], 16)
        self.norm = nn.GroupNorm(4, 16)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.rand(16))
        self.head = nn.Linear(16, classes)

    def features(self, x):
        x = self.drop(self.act(self.enter(x)))
        return x + self.drop(self.norm(x)) * self.scale

    def forward(self, x):
        return self.head(self.features(x))


def mixed(shape, classes):
    """A nested Sequential of known layers, unknown layers and dropout."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(shape[0], 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.GELU()),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"),
        nn.AvgPool2d(2),
        nn.Dropout2d(0.5),
        nn.ReLU(inplace=True),
        nn.PReLU(),
        nn.Flatten(2),
        nn.Conv1d(8, 4, 1),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.LayerNorm(16),
        nn.Dropout(0.5),
        nn.Linear(16, classes),
    )


@pytest.fixture(autouse=True)
def registered():
    before = dict(MODELS._values), dict(MODELS._modules)
    register("residual", Residual)
    register("mixed", mixed)
    yield
    MODELS._values, MODELS._modules = before


def make(name, shape=DIGIT, classes=10, dtype=torch.float64, **factors):
    return Model(ModelSpec(name, **factors), shape, classes, dtype)


def made(name):
    return make(name, (12,) if name == "residual" else DIGIT)


def rows(model, n=6, seed=0):
    return torch.randn(n, *model.shape, generator=torch.Generator().manual_seed(seed), dtype=model.dtype)


def refusal(build, shape=DIGIT, classes=10):
    register("refused", build)
    with pytest.raises(ModelError) as caught:
        make("refused", shape, classes, torch.float32)
    assert "\n" not in str(caught.value)
    assert "'refused'" in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------- the zoo


@pytest.mark.parametrize(
    ("name", "shape", "factors", "size"),
    [
        ("linear", IMAGE, {}, 7_850),
        ("mlp", IMAGE, {}, 159_010),
        ("mlp", IMAGE, {"depth": 2}, 199_210),
        ("mlp", (5,), {"width": 0.07}, 5 * 14 + 14 + 140 + 10),
        ("lenet5", IMAGE, {}, 61_706),
        ("lenet5", (3, 32, 32), {}, 62_006),
        ("lenet5", IMAGE, {"width": 0.001}, 26 + 26 + (25 + 1) + 2 + 20),
        ("convnet", IMAGE, {}, 1_663_370),
    ],
)
def test_sizes(name, shape, factors, size):
    model = make(name, shape, dtype=torch.float32, **factors)
    assert model.size == size == sum(p.numel() for p in model.init(0).values())
    assert model.nbytes == 4 * size


@pytest.mark.parametrize("shape", [DIGIT, (8, 8), (3, 32, 32), (1, 64, 20), (1, 4, 4), (1, 10, 31)])
@pytest.mark.parametrize("name", ["lenet5", "convnet"])
def test_images_of_any_size(name, shape):
    model = make(name, shape, 3, width=0.5)
    assert model(model.init(1), rows(model)).shape == (6, 3)


def test_images_only():
    with pytest.raises(ModelError, match=r"needs images .* shape \(20,\); use 'linear' or 'mlp'"):
        make("lenet5", (20,))
    with pytest.raises(ModelError, match=r"channels first.* permute them to \(1, 28, 28\)"):
        make("convnet", (28, 28, 1))
    with pytest.raises(ModelError, match=r"at least 4x4 pixels, .* \(1, 3, 8\)"):
        make("lenet5", (1, 3, 8))


def test_widths_round_up():
    assert [scale_units(6, w) for w in (0.5, 0.51, 0.01, 2.0)] == [3, 4, 1, 12]
    assert scale_units(200, 0.07) == 14


def test_ops_of_lenet5_by_hand():
    by_hand = 5 * 5 * 1 * 6 * 28 * 28 + 5 * 5 * 6 * 16 * 10 * 10 + 400 * 120 + 120 * 84 + 84 * 10
    assert by_hand == 416_520
    assert make("lenet5", IMAGE).ops == by_hand


@pytest.mark.parametrize("name", [*ZOO, "mixed", "residual"])
def test_ops_equal_the_flop_counter(name):
    from torch.utils.flop_counter import FlopCounterMode

    model = made(name)
    with FlopCounterMode(display=False) as counter:
        model.module(model.init(0))(rows(model, 1))
    assert model.ops == counter.get_total_flops() // 2


# --------------------------------------------------------------------------------------- the same function


@pytest.mark.parametrize("name", [*ZOO, "mixed", "residual"])
def test_call_equals_the_module(name):
    model = made(name)
    params, x = model.init(3), rows(model)
    untouched = x.clone()
    module = model.module(params)
    torch.testing.assert_close(model(params, x), module(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(module(x), functional_call(module, params, (x,)), rtol=0, atol=0)
    assert torch.equal(x, untouched)


@pytest.mark.parametrize("name", ["lenet5", "linear"])
def test_many_rows_are_the_same_a_few_at_a_time(name):
    model = Model(ModelSpec(name), IMAGE, 10, torch.float64)
    draw = torch.Generator().manual_seed(1)
    params, x = model.init(1), torch.randn(2 * PIECE + 3, *IMAGE, dtype=torch.float64, generator=draw)
    at_once = model(params, x)  # where gradients may be wanted, rows stay together
    with torch.no_grad():
        torch.testing.assert_close(model(params, x), at_once, rtol=0, atol=1e-12)
        of_two = x[: 2 * PIECE].reshape(2, PIECE, *IMAGE)
        shared = vmap(lambda rows: model(params, rows))(of_two)  # one model for a stack, frozen
        torch.testing.assert_close(shared.flatten(0, 1), at_once[: 2 * PIECE], rtol=0, atol=1e-12)


@pytest.mark.parametrize("key", [None, 5])
@pytest.mark.parametrize("name", [*ZOO, "mixed", "residual"])
def test_head_of_features_equals_the_call(name, key):
    model = made(name)
    params, x, key = model.init(3), rows(model), None if key is None else as_tensor(key)
    z = model.features(params, x, key)
    assert z.ndim == 2
    torch.testing.assert_close(model.head(params, z), model(params, x, key), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [*ZOO, "mixed", "residual"])
def test_stacked_gradients_equal_those_of_a_loop(name):
    model = made(name)
    each = [model.init(k) for k in range(3)]
    stack = {n: torch.stack([p[n] for p in each]) for n in each[0]}
    x = torch.stack([rows(model, seed=k) for k in range(3)])
    y = torch.arange(18).reshape(3, 6) % 10
    keys = torch.stack([as_tensor(k + 7) for k in range(3)])

    def loss(params, x, y, key):
        return F.cross_entropy(model(params, x, key), y)

    stacked = vmap(grad(loss))(stack, x, y, keys)
    for k, params in enumerate(each):
        leaves = {n: p.clone().requires_grad_() for n, p in params.items()}
        alone = torch.autograd.grad(loss(leaves, x[k], y[k], keys[k]), list(leaves.values()))
        for n, g in zip(leaves, alone, strict=True):
            torch.testing.assert_close(stacked[n][k], g, rtol=0, atol=1e-10)


# ----------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_init_is_a_function_of_the_key(name):
    model = made(name)
    state = torch.random.get_rng_state()
    a, b, c = model.init(2**64 - 1), model.init(2**64 - 1), model.init(2)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert any(not torch.equal(a[n], c[n]) for n in a)
    for p in a.values():
        assert p.dtype == torch.float64
        assert p.is_contiguous()
        assert not p.requires_grad
        assert type(p) is torch.Tensor


def test_init_is_pytorchs_and_the_same_in_any_precision():
    single, double = make("mlp", (5,), dtype=torch.float32).init(9), make("mlp", (5,)).init(9)
    torch.manual_seed(9)
    layer = nn.Linear(5, 200)
    assert torch.equal(single["0.weight"], layer.weight)
    assert all(torch.equal(single[n].double(), double[n]) for n in single)


@pytest.mark.parametrize("name", ["mixed", "residual"])
def test_module_is_an_ordinary_one_of_its_own(name):
    model = made(name)
    params = model.init(4)
    module = model.module(params)
    assert not module.training
    assert any(isinstance(part, nn.Dropout) for part in module.modules())
    assert all(torch.equal(p, params[n]) and p.requires_grad for n, p in module.named_parameters())
    with torch.no_grad():
        next(module.parameters()).zero_()
    again = model.module(params)
    assert all(torch.equal(p, params[n]) for n, p in again.named_parameters())
    fresh = {n: p.detach() for n, p in again.named_parameters()}
    x = rows(model)
    assert torch.equal(model(fresh, x), model(params, x))


def test_weights_that_are_given_are_where_training_starts():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    register("given", lambda: net)
    model = make("given")
    assert torch.equal(model.init(1)["1.weight"], net[1].weight.double())
    assert net[1].weight.dtype == torch.float32


def test_tied_weights_stay_tied():
    def tied(shape, classes):
        layer = nn.Linear(shape[0], shape[0])
        return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(shape[0], classes))

    register("tied", tied)
    model = make("tied", (12,))
    params, x = model.init(0), rows(model)
    module = model.module(params)
    assert len(params) == 4
    assert module[0] is module[2]
    torch.testing.assert_close(model(params, x), module(x), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize("name", ["mixed", "residual"])
def test_dropout_is_keyed(name):
    model = made(name)
    params, x = model.init(0), rows(model)
    one, two = as_tensor(1), as_tensor(2)
    assert torch.equal(model(params, x, one), model(params, x, one))
    assert not torch.equal(model(params, x, one), model(params, x, two))
    assert not torch.equal(model(params, x, one), model(params, x))
    assert torch.equal(model(params, x), model(params, x))  # the key of a call isn't left behind
    mapped = vmap(lambda k: model(params, x, k))(torch.stack([one, two]))
    torch.testing.assert_close(mapped[1], model(params, x, two), rtol=0, atol=1e-12)


def test_dropout_drops_its_share_and_ignores_padding():
    register("dropped", lambda: nn.Sequential(nn.Dropout(0.3), nn.Flatten(), nn.Linear(1000, 10)))
    model = make("dropped", (10, 100))
    x = torch.ones(20, 10, 100, dtype=torch.float64)
    z = model.features(model.init(0), x, as_tensor(3))
    assert z.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (z == 0).double().mean() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(model.features(model.init(0), x[:7], as_tensor(3)), z[:7])


def test_every_dropout_has_its_own_mask():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)
            self.head = nn.Linear(2000, 10)

        def features(self, x):
            return torch.cat([self.drop(x), self.drop(x)], 1)

        def forward(self, x):
            return self.head(self.features(x))

    register("twice", Twice)
    model = make("twice", (1000,))
    z = model.features(model.init(0), torch.ones(1, 1000, dtype=torch.float64), as_tensor(1))[0] > 0
    assert (z[:1000] == z[1000:]).double().mean() == pytest.approx(0.5, abs=0.06)


# ---------------------------------------------------------------------------------- what is refused, and why


def test_batch_norm_is_refused():
    message = refusal(
        lambda classes: nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.Sequential(nn.BatchNorm2d(6)), nn.Flatten(), nn.Linear(216, classes)
        )
    )
    assert "BatchNorm2d at '1.0'" in message
    assert "leak between clients, break under vmap and are corrupted by padding" in message
    assert "nn.GroupNorm(groups, 6)" in message


@pytest.mark.parametrize(
    "mixing",
    [lambda x: x - x.mean(0), lambda x: (x.squeeze() if len(x) > 1 else x + 1).reshape(len(x), -1)],
    ids=["a mean over rows", "another result for one row"],
)
def test_models_that_mix_rows_are_refused(mixing):
    class Mixing(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.last = nn.Linear(64, classes)

        def forward(self, x):
            return self.last(mixing(x.flatten(1)))

    assert "of a row alone than of the same row in a batch" in refusal(Mixing)


def test_models_that_answer_nan_from_the_start_are_refused():
    class Logarithm(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.last = nn.Linear(64, classes)

        def forward(self, x):
            return self.last(x.flatten(1)).sub(100.0).log()

    assert "answers NaN before it is trained" in refusal(Logarithm)


def test_running_statistics_are_refused():
    message = refusal(
        lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten(), nn.Linear(64, 10))
    )
    assert "buffer '0.running_mean' changes in training" in message


def test_wrong_classes_are_refused():
    message = refusal(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8)))
    assert "gives 8 outputs a row, but the data has 10 classes" in message
    assert "nn.Linear(..., classes)" in message
    assert "gives [2, 1, 8, 10] for 2 rows, not [2, 10]" in refusal(lambda: nn.Linear(8, 10))


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(784, 10)

    def forward(self, x):
        return self.last(x.flatten(1))  # here


def test_a_failing_forward_is_told_with_its_line():
    lines = Path(__file__).read_text().splitlines()
    (line,) = [at for at, text in enumerate(lines, 1) if text.endswith("flatten(1))  # here")]
    assert refusal(Narrow).endswith(f"(test_models.py, line {line})")


def test_a_failing_forward_is_told_in_one_line():
    message = refusal(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    assert "fails on rows of shape (1, 8, 8)" in message
    assert ".py, line" not in message  # no code but torch's
    assert "mat1 and mat2 shapes cannot be multiplied" in message
    assert "can't be built for rows of shape (1, 8, 8)" in refusal(lambda: nn.Linear(-1, 10))
    assert "gave int, not an nn.Module" in refusal(lambda: 3)


def test_other_traps_are_refused():
    class Trap(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.act, self.out = act, nn.Linear(64, 10)

        def forward(self, x):
            return self.out(self.act(x).flatten(1))

    class Pair(Trap):
        def forward(self, x):
            return super().forward(x), x

    assert "draws random numbers of its own" in refusal(lambda: Trap(F.dropout))
    assert "changes its input in place" in refusal(lambda: Trap(lambda x: x.mul_(2)))
    assert "returns tuple" in refusal(lambda: Pair(F.relu))
    assert "no parameters" in refusal(lambda: nn.Flatten())
    attention = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)
    with_attention = nn.Sequential(nn.Flatten(1, 2), attention, nn.Flatten(), nn.Linear(64, 10))
    assert "set dropout=0 of '1.self_attn'?" in refusal(lambda: with_attention)


def test_the_features_of_a_lone_linear_are_its_input():
    register("lone", lambda: nn.Linear(5, 10, bias=False))
    model = make("lone", (5,))
    params, x = model.init(0), rows(model)
    assert torch.equal(model.features(params, x), x)
    assert torch.equal(model.head(params, x), model(params, x))


def test_features_need_a_known_head():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(64, 10)

        def forward(self, x):
            return self.out(x.flatten(1))

    class Other(Whole):  # its features aren't what its head is given
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(64, 10)

        def features(self, x):
            return x

    for build, why in ((Whole, "isn't known where its head begins"), (Other, "don't lead to its output")):
        register("whole", build)
        model = make("whole")
        params, x = model.init(0), rows(model)
        assert model(params, x).shape == (6, 10)
        with pytest.raises(ModelError, match=why + r".*give the module a `features` method"):
            model.features(params, x)
        with pytest.raises(ModelError, match=why):
            model.head(params, x)
        with pytest.raises(ModelError, match=why):
            _ = model.head_names


def test_the_heads_parameters_are_named():
    assert made("mixed").head_names == ("12.weight", "12.bias")
    assert made("residual").head_names == ("head.weight", "head.bias")


def test_registration_is_checked():
    with pytest.raises(ModelError, match="register what builds the module"):
        register("bad", nn.Linear(3, 4))
    with pytest.raises(ModelError, match="needs 'hidden', but is offered only shape, classes, vocabulary"):
        register("bad", lambda classes, hidden: None)
    with pytest.raises(ConfigError, match="'lenet': no such model; did you mean 'lenet5'"):
        make("lenet")
    with pytest.raises(ConfigError, match=r"'linear' can't change its width \(width = 0.5\)"):
        make("linear", width=0.5)
    with pytest.raises(ConfigError, match="depth = 0 should be above 0, at most 100"):
        make("mlp", depth=0)


# ------------------------------------------------------------------------------------- users' own modules


class Hidden(nn.Module):
    """A class as people write it: its width is a number of units, its depth one of layers."""

    def __init__(self, shape, classes, width=64, depth=2):
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), *(nn.ReLU(),) * depth)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.inner(x))


def count_own(build, name="own", **factors):
    register(name, build)
    return Model(ModelSpec(name, **factors), (12,), 5).size


def test_a_modules_own_width_and_depth_stay():
    assert count_own(Hidden) == 12 * 64 + 64 + 64 * 5 + 5 == 1157
    assert count_own(partial(Hidden, width=8, depth=1), "small") == 12 * 8 + 8 + 8 * 5 + 5
    # What this would make of a factor isn't known.
    assert count_own(lambda vocabulary, **sizes: Hidden(**sizes)) == 1157
    assert count_own(lambda classes, width=0.5: two_layers(classes, width)) == 12 * 5 + 5 + 5 * 5 + 5
    for key in ("width", "depth"):
        with pytest.raises(
            ConfigError, match=rf"'own' can't change its {key} \({key} = 0.5\): its builder's"
        ):
            count_own(Hidden, **{key: 0.5})


def test_a_factor_is_asked_for_in_plain_words():
    def by_default(classes, width=1.0):
        return two_layers(classes, width)

    def by_type(classes, width: float = 1):
        return two_layers(classes, width)

    for build in (two_layers, by_default, by_type):
        assert count_own(build) == 12 * 10 + 10 + 10 * 5 + 5
        assert count_own(build, width=0.5) == 12 * 5 + 5 + 5 * 5 + 5
    with pytest.raises(ModelError, match=r"'own': its builder's 'width' is a whole number without a default"):
        count_own(of_units)


def two_layers(classes, width):
    hidden = round(10 * width)
    return nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def of_units(classes, width: int):
    return nn.Linear(12, width)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_models_of_the_package_take_factors_alone(name):
    build, takes = MODELS[name]
    given = inspect.signature(build).parameters
    assert takes & {"width", "depth"} == {"width", "depth"} & set(given)


def test_models_are_built_once():
    models = Models(DIGIT, 10)
    wide = models[ModelSpec("mlp")]
    assert models[ModelSpec("mlp")] is wide
    assert models[ModelSpec("mlp", width=0.5)].size < wide.size
    assert list(models) == [ModelSpec("mlp"), ModelSpec("mlp", width=0.5)]
    assert len(models) == 2
    assert wide.init(0)["1.weight"].dtype == torch.float32


def test_models_cross_processes():
    model = made("mixed")
    again = pickle.loads(pickle.dumps(model))
    params, x = model.init(1), rows(model)
    assert torch.equal(again(params, x), model(params, x))
    assert pickle.loads(pickle.dumps(Models(DIGIT, 10)))[ModelSpec()].size == make("mlp").size
    assert "size=" in repr(copy.copy(model))


def test_tokens():
    class Tagger(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.embed = nn.Embedding(30, 8)
            self.lstm = nn.LSTM(8, 16, batch_first=True)
            self.head = nn.Linear(16, classes)

        def features(self, x):
            return self.lstm(self.embed(x))[0][:, -1]

        def forward(self, x):
            return self.head(self.features(x))

    register("tagger", Tagger)
    register("bag", lambda classes: nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.LazyLinear(classes)))
    models = Models((5,), 10, torch.float64, inputs=torch.int64)
    x = torch.arange(10).reshape(2, 5)
    for name in ("tagger", "bag"):
        model = models[ModelSpec(name)]
        params = model.init(0)
        torch.testing.assert_close(model(params, x), model.module(params)(x), rtol=0, atol=1e-12)
        torch.testing.assert_close(
            model.head(params, model.features(params, x)), model(params, x), rtol=0, atol=1e-12
        )
    assert models[ModelSpec("tagger")].ops == 5 * (8 * 64 + 16 * 64) + 160
    assert models[ModelSpec("bag")].ops == 200


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_layers_that_only_functional_call_can_run():
    calls = []

    def watched(classes):
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, classes))
        net[1].register_forward_hook(lambda *_: calls.append(1))
        nn.utils.parametrizations.weight_norm(net[2])
        return net

    def attentive(classes):
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        return nn.Sequential(nn.Flatten(1, 2), block, nn.Flatten(), nn.Linear(64, classes))

    register("watched", watched)
    register("attentive", attentive)
    for name in ("watched", "attentive"):
        model = make(name)
        params, x = model.init(0), rows(model)
        calls.clear()
        torch.testing.assert_close(model(params, x), model.module(params)(x), rtol=0, atol=1e-12)
        torch.testing.assert_close(model(params, x, as_tensor(0)), model(params, x), rtol=0, atol=1e-12)
        assert len(calls) == (4 if name == "watched" else 0)
        z = model.features(params, x)
        torch.testing.assert_close(model.head(params, z), model(params, x), rtol=0, atol=1e-12)


def test_a_sequential_that_ends_in_something_else_has_no_head():
    register("pooled", lambda: nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()))
    register("closed", lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 64), Residual((64,), 10)))
    register(
        "late",
        lambda: nn.Sequential(
            nn.Flatten(1, 2), nn.Linear(8, 10), nn.AdaptiveAvgPool2d((1, 10)), nn.Flatten()
        ),
    )
    for name in ("pooled", "closed", "late"):
        model = make(name)
        with pytest.raises(ModelError, match=r"end a Sequential in its last nn\.Linear"):
            model.features(model.init(0), rows(model))


@pytest.mark.parametrize("name", ["mixed", "residual"])
def test_constants_follow_the_device(name):
    """The meta device stands in for a GPU: a tensor left behind on the CPU is an error there too."""
    model = made(name)
    params = {n: p.to("meta") for n, p in model.init(0).items()}
    x = rows(model).to("meta")
    stack = {n: p.expand(2, *p.shape) for n, p in params.items()}
    for _ in range(2):  # first met inside of a vmap, then outside
        slopes = vmap(grad(lambda p: model(p, x).sum()))(stack)
        assert slopes.keys() == params.keys()
    assert model(params, x).device.type == "meta"
    assert model(params, x, as_tensor(1).to("meta")).device.type == "meta"
    assert all(t.device.type == "meta" for t in model.module(params).state_dict().values())


def test_ops_of_a_model_that_meta_tensors_cannot_run():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(64, 10)

        def forward(self, x):
            x = x.flatten(1)
            return self.out(x) if x.sum() < 1e9 else self.out(-x)

    register("branching", Branching)
    assert make("branching").ops == 640
