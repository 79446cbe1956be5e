"""AWQ: scales and clipping against plain rounding on the same grid, and against a search written out."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.calibrated import calibrated
from support.close import assert_close

from qbench.runtime import load_model
from quant.errors import InputError
from quant.formats import IntGroupFormat, dequantize, get_format
from quant.methods import Layer, make_method
from quant.methods.awq import Awq
from quant.methods.awq_clip import RATIOS, error_of_groups, quantize_clipped
from quant.models import ModelConfig
from quant.stats import InputStats

CONFIG = small_config("llama", intermediate_size=128)
TOKENS = torch.randint(160, (4, 64), generator=torch.Generator().manual_seed(1))
DOWN, UP = "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.up_proj.weight"


def make_weight(num_rows: int, row_size: int) -> np.ndarray:
    return (0.02 * np.random.default_rng(9).standard_t(4, (num_rows, row_size))).astype(np.float32)


def make_x(num_tokens: int, row_size: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    return (rng.standard_normal((num_tokens, row_size)) * np.exp(rng.standard_normal(row_size))).astype(np.float32)


def output_error(qtensor, weight: np.ndarray, x: np.ndarray) -> float:
    return float(np.square(x.astype(np.float64) @ (dequantize(qtensor) - weight).T).sum())


def clipped_ref(fmt: IntGroupFormat, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Group by group, in float64 sums: the range with the least error of that group's part of the outputs."""
    size = fmt.group_size or weight.shape[1]
    out = np.empty_like(weight)
    for row in range(len(weight)):
        for start in range(0, weight.shape[1], size):
            group, inputs = weight[row, start : start + size], x[:, start : start + size].astype(np.float64)
            tried = []
            for ratio in RATIOS:
                scale, zero = fmt.fit(group[None] * np.float32(ratio))
                step = scale.astype(np.float32)
                got = step * (np.clip(np.rint(group / step) + zero, fmt.qmin, fmt.qmax) - zero)
                tried.append((np.square(inputs @ (got - group)).sum(), got))
            out[row, start : start + size] = min(tried, key=lambda each: each[0])[1]
    return out


@pytest.mark.parametrize("num_tokens", [8, 200], ids=["fewer inputs than features", "more"])
@pytest.mark.parametrize("name", ["w4g32-asym", "w4g32", "w3-asym", "w2g64"])
def test_clipping_is_the_search_written_out(name, num_tokens):
    fmt, weight, x = get_format(name), make_weight(6, 128), make_x(num_tokens, 128)
    got = dequantize(quantize_clipped(fmt, weight, x))
    expected = clipped_ref(fmt, weight, x)
    same = (got == expected).reshape(len(got), -1, fmt.group_size or 128).all(axis=2)
    # Two ranges of nearly the same error may change places because float32 sums replace float64 ones.
    assert same.mean() >= 0.95
    assert_close(np.square(x @ (got - weight).T).sum(), np.square(x @ (expected - weight).T).sum(), rtol=2**-7)


def test_group_errors_by_hand():
    x = np.array([[1, 2, 0, 1], [0, 1, 3, 0]], dtype=np.float32)
    error = np.array([[[1, 1], [2, 0]]], dtype=np.float32)  # one row, two groups of two
    expected = [[3**2 + 1**2, 0 + 6**2]]
    assert error_of_groups(x, 2)(error).tolist() == expected
    assert error_of_groups(np.concatenate([x, 0 * x]), 2)(error).tolist() == expected


@pytest.mark.parametrize("name", ["w4g32-asym", "w3g32", "w2g32-asym"])
def test_clipping_brings_the_error_down(name):
    fmt, weight, x = get_format(name), make_weight(64, 256), make_x(128, 256)
    assert output_error(quantize_clipped(fmt, weight, x), weight, x) < 0.97 * output_error(
        fmt.quantize(weight), weight, x
    )


def feed_forward_layer(format_name: str) -> tuple[Layer, dict[str, InputStats], np.ndarray]:
    """Up and down projection, the input of `down` with features of very unlike magnitude."""
    weights = {name: weight for name, weight in random_weights(CONFIG).items() if name in (UP, DOWN)}
    x = make_x(300, 128)
    stats = InputStats(len(x), np.abs(x).max(axis=0), np.square(x).sum(axis=0), sample=x)
    layer = Layer(weights, {UP: "f32", DOWN: format_name}, config=ModelConfig.from_hf(CONFIG))
    return layer, {DOWN: stats}, x


@pytest.mark.parametrize("name", ["w4g32-asym", "w3g32", "q4_0"])
def test_scaling_brings_the_error_down(name):
    layer, stats, x = feed_forward_layer(name)
    made = Awq(clip=False).quantize_layer(layer, stats)
    scale = layer.weights[UP][:, 0] / dequantize(made[UP])[:, 0]
    y = x.astype(np.float64) @ layer.weights[DOWN].T
    error = np.square((x / scale) @ dequantize(made[DOWN]).T - y).sum()
    plain = output_error(get_format(name).quantize(layer.weights[DOWN]), layer.weights[DOWN], x)
    assert error < 0.9 * plain


def test_a_channel_without_inputs_does_not_move_the_others():
    layer, _, x = feed_forward_layer("w3g32")
    x[:, 7] = 0
    stats = InputStats(len(x), np.abs(x).max(axis=0), np.square(x).sum(axis=0), sample=x)
    made = Awq(clip=False).quantize_layer(layer, {DOWN: stats})
    scale = layer.weights[UP][:, 0] / dequantize(made[UP])[:, 0]
    assert scale[7] == 1
    others = np.delete(scale, 7)
    assert others.max() > 1.5
    assert_close(others.max() * others.min(), 1, rtol=2**-20)


def test_one_ratio_is_plain_rounding():
    layer, stats, _ = feed_forward_layer("w4g32-asym")
    made = Awq(num_ratios=1, clip=False).quantize_layer(layer, stats)
    np.testing.assert_array_equal(dequantize(made[UP]), layer.weights[UP])
    plain = get_format("w4g32-asym").quantize(layer.weights[DOWN])
    for part, array in plain.parts.items():
        np.testing.assert_array_equal(made[DOWN].parts[part], array)


def test_threads_do_not_show():
    layer, stats, _ = feed_forward_layer("w4g32-asym")
    made, before = [], torch.get_num_threads()
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        made.append(Awq().quantize_layer(layer, stats))
    torch.set_num_threads(before)
    for name, one in made[0].items():
        for part, array in one.parts.items():
            np.testing.assert_array_equal(array, made[1][name].parts[part])


def test_a_model_is_closer_than_by_plain_rounding():
    source = ArraySource(CONFIG, random_weights(CONFIG))
    exact = load_model(source, impl="reference")(TOKENS)

    def error(method):
        model = load_model(calibrated(source, TOKENS, make_method(method, {}), lambda name: "w3g32-asym"))
        return float((model(TOKENS) - exact).square().mean())

    assert error("awq") < 0.95 * error("rtn")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_ratios": 0}, "num_ratios is 0, expected a whole number above 0"),
        ({"num_ratios": 1.5}, "num_ratios is 1.5, expected a whole"),
        ({"clip": "yes"}, "clip is 'yes', expected true or false"),
    ],
    ids=str,
)
def test_rejects_options(options, message):
    with pytest.raises(InputError, match=message):
        make_method("awq", options)
