"""LDLQ onto a trellis: the textbook's targets, and an output error below that of encoding without feedback."""

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.trellis import SIDE, matrix_of, tiles_of, turn, turn_back
from quant.job import make_job
from quant.methods import Layer, make_method
from quant.recipes.yaml_recipe import recipe_from
from quant.stats import InputStats
from quant.turn import turn_runs


def problem(num_rows: int, row_size: int) -> tuple[np.ndarray, np.ndarray]:
    """weight [N, K] and the Hessian [K, K] of correlated inputs"""
    rng = np.random.default_rng(row_size)
    mixing = rng.standard_normal((row_size, row_size)) + 4 * np.eye(row_size)
    x = rng.standard_normal((4 * row_size, row_size)) @ mixing
    return rng.standard_normal((num_rows, row_size)).astype(np.float32), (x.T @ x).astype(np.float32)


def quantized(name: str, weight: np.ndarray, hessian: np.ndarray):
    stats = {"w": InputStats(len(hessian), None, hessian.diagonal().copy(), hessian)}
    return make_method("trellis", {}).quantize_layer(Layer({"w": weight}, {"w": name}), stats)["w"]


def textbook(name: str, weight: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """Blocks of columns from the first to the last in float64. After each, the columns to come take the values that
    have the least output error with all columns done.
    """
    fmt = get_format(name)
    turned = turn(weight).astype(np.float64)
    scale = fmt.scale_of(turned).astype(np.float64)
    H = turn_runs(turn_runs(hessian, weight.shape[1]).T, weight.shape[1]).astype(np.float64)
    H += 0.01 * H.diagonal().mean() * np.eye(len(H))
    left, made = turned.copy(), np.zeros_like(turned)
    for end in range(SIDE, len(H) + 1, SIDE):
        block = slice(end - SIDE, end)
        packed = fmt.code.encode(tiles_of((left[:, block] / scale).astype(np.float32)))
        made[:, block] = matrix_of(fmt.code.decode(packed), (len(weight), SIDE)) * scale
        error = made[:, :end] - turned[:, :end]
        left[:, end:] = turned[:, end:] - error @ H[:end, end:] @ np.linalg.inv(H[end:, end:])
    return turn_back(made)


def test_weights_match_the_textbook():
    weight, hessian = problem(32, 64)
    got, expected = dequantize(quantized("trellis-w2-l9", weight, hessian)), textbook("trellis-w2-l9", weight, hessian)
    assert np.abs(got - expected).max() < 2.0**-20 * 64 * np.abs(expected).max()


def share_that_is_left(hessian: np.ndarray) -> float:
    """Output error with feedback over that without, if all errors are of equal size."""
    H = turn_runs(turn_runs(hessian, len(hessian)).T, len(hessian)).astype(np.float64)
    left = 0.0
    for begin in range(0, len(H), SIDE):
        block, later = slice(begin, begin + SIDE), slice(begin + SIDE, None)
        left += np.trace(H[block, block] - H[block, later] @ np.linalg.pinv(H[later, later]) @ H[later, block])
    return left / np.trace(H)


@pytest.mark.parametrize("bits, rel", [(2, 0.25), (3, 0.15), (4, 0.15)])
def test_feedback_takes_its_theoretical_share(bits, rel):
    """QTIP's tr(D) / tr(H). Errors that are fed back widen the targets, most at 2 bits, and damping takes a part."""
    weight, hessian = problem(32, 128)

    def error(qtensor) -> float:
        difference = dequantize(qtensor).astype(np.float64) - weight
        return float(np.einsum("nk,kl,nl->", difference, hessian, difference))

    name = f"trellis-w{bits}-l10"
    got = error(quantized(name, weight, hessian)) / error(get_format(name).quantize(weight))
    assert got == pytest.approx(share_that_is_left(hessian), rel=rel)


@pytest.mark.parametrize(
    "document, says",
    [
        ({"container": "hf", "default": "w4g32", "method": "trellis"}, "rounds to trellis-w2, -w3 or -w4, got w4g32"),
        ({"base": "trellis-w2", "options": {"damp": 2}}, "trellis: damp is 2, expected 0 to 1"),
        ({"container": "gguf", "default": "trellis-w2", "method": "trellis"}, "a gguf artifact cannot hold trellis-w2"),
    ],
)
def test_refused_before_any_work(document, says):
    config = small_config("llama")
    with pytest.raises(InputError, match=says):
        make_job(ArraySource(config, random_weights(config)), recipe_from(document, "mine"))


def test_errors_name_the_weight():
    weight, hessian = problem(16, 32)
    with pytest.raises(InputError, match="w: trellis needs finite weights"):
        quantized("trellis-w2-l8", np.full_like(weight, np.nan), hessian)
    with pytest.raises(InputError, match="w: no calibration token reached it"):
        make_method("trellis", {}).quantize_layer(Layer({"w": weight}, {"w": "trellis-w2-l8"}), {})
