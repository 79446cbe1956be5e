"""SmoothQuant: eq. 4 by hand, the layer's outputs with outliers, and limits of the search."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.calibrated import calibrated
from support.close import assert_close

from qbench.reference.outliers import scale_channels
from qbench.runtime import load_model
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.formats import dequantize, get_format
from quant.methods import Layer, make_method
from quant.methods.smoothquant import SmoothQuant, smoothing_scale
from quant.models import ModelConfig, split_name
from quant.stats import InputStats

CONFIG = small_config("llama")
TOKENS = torch.randint(160, (4, 64), generator=torch.Generator().manual_seed(1))
NORM = "model.layers.0.input_layernorm.weight"
QKV = tuple(f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv")


def stats_of(x: np.ndarray) -> InputStats:
    absmax, squares = np.abs(x).max(axis=0), np.square(x).sum(axis=0)
    return InputStats(len(x), absmax, squares, sample=x)


def attention_layer(format_name: str = "w8a8") -> tuple[Layer, dict[str, InputStats], np.ndarray]:
    """q, k and v behind a norm of ones, and their inputs [128, 64] with two channels of outliers."""
    rng = np.random.default_rng(3)
    weights = {name: array for name, array in random_weights(CONFIG).items() if name in QKV}
    x = rng.standard_normal((128, 64)).astype(np.float32)
    x[:, [5, 40]] *= 60
    norm = np.ones(64, dtype=np.float32)
    formats = dict.fromkeys(weights, format_name) | {NORM: "f32"}
    layer = Layer(weights, formats, {NORM: norm}, ModelConfig.from_hf(CONFIG))
    return layer, dict.fromkeys(weights, stats_of(x)), x


def error_of(method: str, options: dict, format_name: str = "w8a8") -> float:
    """Relative squared error of q, k and v together, with int8 inputs."""
    layer, stats, x = attention_layer(format_name)
    made = make_method(method, options).quantize_layer(layer, stats)
    smoothed = x * dequantize(made[NORM]) if NORM in made else x
    fmt, error, power = get_format(format_name), 0.0, 0.0
    for name in QKV:
        y = x.astype(np.float64) @ layer.weights[name].T
        got = fmt.fake_quantize_input(smoothed, made[name].shared) @ dequantize(made[name]).T
        error, power = error + np.square(got - y).sum(), power + np.square(y).sum()
    return error / power


@pytest.mark.parametrize(
    "alpha, expected", [(0.5, [4, 1, 0.5, 1, 1]), (1.0, [8, 4, 1, 1, 1]), (0.0, [2, 0.25, 0.25, 1, 1])]
)
def test_equation_4_by_hand(alpha, expected):
    x, weight = np.array([8, 4, 1, 0, 3], np.float32), np.array([0.5, 4, 4, 2, 0], np.float32)
    assert_close(smoothing_scale(x, weight, alpha), np.array(expected), rtol=2**-22)


def test_both_sides_meet_at_alpha_half():
    """Eq. 4 at 0.5 gives each channel of inputs and weights the same largest magnitude, sqrt(max|X_j| max|W_j|)."""
    layer, stats, x = attention_layer("f32")
    layer = replace(layer, formats=dict.fromkeys(QKV, "w8a8-astatic") | {NORM: "f32"})
    made = SmoothQuant().quantize_layer(layer, stats)
    of_x = np.abs(x * dequantize(made[NORM])).max(axis=0)
    of_weight = np.max([np.abs(layer.weights[name]).max(axis=0) for name in QKV], axis=0) / dequantize(made[NORM])
    assert_close(of_x, of_weight, rtol=2**-20)
    for name in QKV:
        assert_close(made[name].shared["input_scale"], [of_x.max() / 127], rtol=2**-20)


@pytest.mark.parametrize("format_name", ["w8a8", "w8a8-wtensor", "w8a8-atensor", "w8a8-wtensor-astatic"])
def test_smoothing_brings_the_error_down(format_name):
    plain = "w8a8-wtensor-atensor" if "tensor" in format_name else "w8a8"
    assert error_of("smoothquant", {}, format_name) < 0.25 * error_of("rtn", {}, plain)


@pytest.mark.parametrize("format_name", ["w8a8", "w8a8-wtensor-atensor"])
def test_the_search_is_no_worse_than_any_fixed_alpha(format_name):
    searched = error_of("smoothquant", {"alpha": "auto"}, format_name)
    fixed = [error_of("smoothquant", {"alpha": alpha}, format_name) for alpha in (0.25, 0.5, 0.75)]
    # The search sums each linear's relative error; the sum here is weighted by their outputs.
    assert searched < 1.05 * min(*fixed, error_of("rtn", {}, format_name))


@pytest.mark.parametrize("options", [{}, {"alpha": "auto"}, {"pairs": False}], ids=str)
def test_threads_do_not_show(options):
    layer, stats, _ = attention_layer()
    made = []
    before = torch.get_num_threads()
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        made.append(SmoothQuant(**options).quantize_layer(layer, stats))
    torch.set_num_threads(before)
    for name, one in made[0].items():
        for part, array in one.parts.items():
            np.testing.assert_array_equal(array, made[1][name].parts[part])


@pytest.mark.parametrize("options", [{}, {"alpha": "auto"}], ids=str)
def test_a_model_with_outliers_comes_back(options):
    """The same function with and without outliers: smoothed, it is nearly as exact as the one without, plain."""
    weights = random_weights(CONFIG)
    tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
    outliers = ArraySource(CONFIG, {name: weight.numpy() for name, weight in scale_channels(tensors).items()})
    exact = load_model(ArraySource(CONFIG, weights), impl="reference")(TOKENS)

    def error(source, method, options):
        model = load_model(calibrated(source, TOKENS, make_method(method, options), lambda name: "w8a8", "bf16"))
        impls = {impl.split("[")[0] for name, impl in model.impls.items() if "layers" in name}
        assert impls == {"cpu-w8a8" if has_cpu_kernels() else "reference"}
        return float((model(TOKENS) - exact).square().mean())

    plain_without = error(ArraySource(CONFIG, weights), "rtn", {})
    plain_with, smoothed_with = error(outliers, "rtn", {}), error(outliers, "smoothquant", options)
    assert plain_with > 20 * plain_without
    assert smoothed_with < 2 * plain_without


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "qwen3moe"])
def test_other_architectures_come_back(kind):
    """Biases, norms of heads and experts behind a router in bf16; 20-fold outliers in the input of all of these."""
    config = small_config(kind)
    weights = random_weights(config)
    for name in [name for name in weights if name.endswith("layernorm.weight")]:
        weights[name][7] *= 20
    source = ArraySource(config, weights)
    exact = load_model(source, impl="reference")(TOKENS)

    def error(method):
        made = calibrated(source, TOKENS, make_method(method, {}), lambda name: "bf16" if "gate.w" in name else "w8a8")
        # The median token's: one that another expert gets is far off, whatever the precision.
        return float((load_model(made)(TOKENS) - exact).square().mean(-1).median())

    assert error("smoothquant") < 0.5 * error("rtn")


def test_static_scales_span_the_calibrated_inputs():
    source = ArraySource(CONFIG, random_weights(CONFIG))
    made = calibrated(source, TOKENS, SmoothQuant(), lambda name: "w8a8-astatic")
    for name, info in made.tensors.items():
        if split_name(name)[1] is not None and len(info.shape) == 2:
            assert made.read(name).shared["input_scale"].shape == (1,)
    expected = load_model(source, impl="reference")(TOKENS)
    error = (load_model(made)(TOKENS) - expected).square().mean()
    assert error < 0.01 * expected.var()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"alpha": 1.5}, "alpha is 1.5, expected a number from 0 to 1, or auto"),
        ({"alpha": "best"}, "alpha is 'best', expected"),
        ({"alpha": True}, "alpha is True, expected"),
        ({"pairs": 1}, "pairs is 1, expected true or false"),
    ],
    ids=str,
)
def test_rejects_options(options, message):
    with pytest.raises(InputError, match=message):
        make_method("smoothquant", options)


def test_asks_for_no_more_than_it_reads():
    assert SmoothQuant().needs == {"absmax"}
    assert SmoothQuant(alpha="auto").needs == {"absmax", "sample"}
