"""HQQ against the published loop, written out one group at a time."""

import math

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.job import make_job
from quant.methods import Layer, make_method
from quant.methods.hqq import Hqq, fit_groups
from quant.recipes import get_recipe
from quant.recipes.yaml_recipe import recipe_from

WEIGHT = (0.02 * np.random.default_rng(0).standard_t(4, (24, 256))).astype(np.float32)


def published(groups: np.ndarray, qmax: int, iterations: int = 20) -> tuple[list[float], list[float], int]:
    """Scale and zero point of each group, and the number of rounds: optimize_weights_proximal of mobiusml/hqq."""
    scales, zeros = [], []
    for group in groups:
        span = float(group.max() - group.min())
        scales.append(min(1.0 if span <= 1e-4 else qmax / span, 2e4))
        zeros.append(-float(group.min()) * scales[-1])
    beta, best = 10.0, math.inf
    for done in range(1, iterations + 1):
        errors = []
        for i, group in enumerate(groups):
            scale, zero, left = scales[i], zeros[i], []
            for w in map(float, group):
                q = min(max(round(w * scale + zero), 0), qmax)
                e = w - (q - zero) / scale
                errors.append(abs(e))
                shrunk = math.copysign(max(abs(e) - abs(e) ** (0.7 - 1) / beta, 0), e) if e else 0.0
                left.append(q - (w - shrunk) * scale)
            zeros[i] = sum(left) / len(left)
        beta *= 1.01
        if (mean := sum(errors) / len(errors)) >= best:
            return scales, zeros, done
        best = mean
    return scales, zeros, iterations


@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("scale", [1.0, 50.0], ids=["as in a model", "large"])
def test_scales_and_zero_points_are_the_published_ones(group_size, scale):
    """Weights of a model have errors that the operator shrinks to 0; those of large ones remain."""
    groups = (scale * WEIGHT[:4]).reshape(-1, group_size)
    scales, zeros, _ = published(groups, 15)
    got_scale, got_zero = fit_groups(groups, 15, 20)
    np.testing.assert_allclose(got_scale[:, 0], scales, rtol=1e-5)
    np.testing.assert_allclose(got_zero[:, 0], zeros, atol=1e-3)


def test_the_stop_depends_on_the_whole_tensor():
    """So a tensor is not rounded some rows at a time."""
    groups = WEIGHT.reshape(-1, 64)
    assert 1 < published(groups, 15)[2] < 20
    assert not Hqq.rows_stand_alone


@pytest.mark.parametrize("format_name", ["q4_1", "q5_1"])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_stored_weights_match_the_grids(format_name, group_size):
    fmt = get_format(format_name)
    made = Hqq(group_size).quantize_layer(Layer({"w": WEIGHT}, {"w": format_name}), {})["w"]
    scale, zero = fit_groups(WEIGHT.reshape(-1, group_size), fmt.qmax, 20)
    d, m = (1 / scale).astype(np.float16).astype(np.float32), (-zero / scale).astype(np.float16).astype(np.float32)
    q = np.clip(np.rint((WEIGHT.reshape(-1, group_size) - m) / d), 0, fmt.qmax)
    np.testing.assert_array_equal(dequantize(made), (d * q + m).reshape(WEIGHT.shape))


def test_it_is_better_than_rounding_on_the_same_groups():
    def error(method):
        made = method.quantize_layer(Layer({"w": WEIGHT}, {"w": "q4_1"}), {})["w"]
        return np.square(dequantize(made) - WEIGHT).mean()

    assert error(Hqq(32)) < 0.97 * error(make_method("rtn", {}))


def test_groups_of_equal_weights():
    """No range: the scale is 1, and the zero point alone holds the weight."""
    weight = np.full((2, 64), np.float32(0.3))
    made = Hqq().quantize_layer(Layer({"w": weight}, {"w": "q4_1"}), {})["w"]
    np.testing.assert_allclose(dequantize(made), weight, rtol=2**-10)


def small_source() -> ArraySource:
    config = small_config("llama")
    return ArraySource(config, random_weights(config))


@pytest.mark.parametrize(
    "document, says",
    [
        ({"container": "hf", "default": "w4g32-asym", "method": "hqq"}, "does not hold; use q4_1 or q5_1"),
        ({"container": "gguf", "default": "q4_0", "method": "hqq"}, "does not hold; use q4_1 or q5_1"),
        ({"base": "hqq-w4g128"}, "needs rows of a multiple of group_size 128, got 64"),
        ({"base": "hqq-w4g64", "options": {"group_size": 48}}, "group_size is 48, expected a multiple of 32"),
        ({"base": "hqq-w4g64", "options": {"iterations": 0}}, "iterations is 0, expected a whole number above 0"),
    ],
)
def test_refused_before_any_work(document, says):
    with pytest.raises(InputError, match=says):
        make_job(small_source(), recipe_from(document, "mine"))


def test_other_group_sizes_by_name():
    recipe = get_recipe("hqq-w4g32")
    assert recipe.name == "hqq-w4g32" and recipe.make_method() == Hqq(32)
    with pytest.raises(InputError, match="group_size is 16"):
        get_recipe("hqq-w4g16")
