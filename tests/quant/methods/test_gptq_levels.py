"""GPTQ onto 4-bit floats: the codes of the paper's loop, and an output error below that of rounding."""

import numpy as np
import pytest
from support.close import assert_close

from quant.formats import dequantize, get_format
from quant.formats.small_floats import E2M1_VALUES, unpack_pairs
from quant.methods import Layer, make_method
from quant.stats import InputStats

NAMES = ("nvfp4a16", "mxfp4a16")
TURNED = tuple(f"{name}-had" for name in NAMES)


def problem(num_rows: int, row_size: int) -> tuple[np.ndarray, np.ndarray]:
    """weight [N, K] and the Hessian [K, K] of correlated inputs"""
    rng = np.random.default_rng(row_size)
    weight = rng.standard_normal((num_rows, row_size)).astype(np.float32)
    mixing = rng.standard_normal((row_size, row_size)) / row_size**0.5 + 0.5 * np.eye(row_size)
    x = rng.standard_normal((4 * row_size, row_size)) @ mixing
    return weight, (x.T @ x).astype(np.float32)


def quantized(name: str, weight: np.ndarray, hessian: np.ndarray, **options):
    stats = {"w": InputStats(len(hessian), None, hessian.diagonal().copy(), hessian)}
    return make_method("gptq", options).quantize_layer(Layer({"w": weight}, {"w": name}), stats)["w"]


def textbook(weight: np.ndarray, hessian: np.ndarray, scale: np.ndarray, damp: float) -> np.ndarray:
    """Frantar et al. 2022, algorithm 1 with a block of one column, in float64: the rounded weight.

    scale   [N, K] float32
    """
    damped = hessian.astype(np.float64) + damp * hessian.diagonal().mean() * np.eye(len(hessian))
    upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    left, rounded = weight.astype(np.float64), np.empty(weight.shape)
    for k in range(weight.shape[1]):
        levels = E2M1_VALUES.astype(np.float64) * scale[:, k : k + 1]
        rounded[:, k] = np.take_along_axis(levels, np.abs(levels - left[:, k : k + 1]).argmin(axis=1)[:, None], 1)[:, 0]
        error = (left[:, k] - rounded[:, k]) / upper[k, k]
        left[:, k + 1 :] -= np.outer(error, upper[k, k + 1 :])
    return rounded


@pytest.mark.parametrize("options", [{"static_groups": True}, {}], ids=["static", "fitted at its turn"])
@pytest.mark.parametrize("name", NAMES)
def test_codes_match_the_textbook_loop(name, options):
    weight, hessian = problem(12, 64)
    got = quantized(name, weight, hessian, group_aware=False, **options)
    scale = np.repeat(get_format(name).read_scale(got), get_format(name).block_size, axis=1)
    assert_close(dequantize(got), textbook(weight, hessian, scale, damp=0.01), rtol=2.0**-22)


@pytest.mark.parametrize("name", TURNED)
def test_turned_blocks_are_the_plain_ones_of_the_turned_problem(name):
    """Weight and Hessian in the turned basis give the codes."""
    fmt, (weight, hessian) = get_format(name), problem(12, 64)
    turned_hessian = fmt.turn(fmt.turn(hessian).T.copy())
    plain = quantized(fmt.plain_name, fmt.turn(weight), turned_hessian)
    got = quantized(name, weight, hessian)
    assert got.format == name
    for part, array in plain.parts.items():
        np.testing.assert_array_equal(got.parts[part], array)


@pytest.mark.parametrize("name", (*NAMES, *TURNED))
def test_output_error_is_below_that_of_rounding(name):
    weight, hessian = problem(32, 128)

    def error(qtensor) -> float:
        difference = dequantize(qtensor).astype(np.float64) - weight
        return float(np.einsum("nk,kl,nl->", difference, hessian, difference))

    rounded = error(get_format(name).quantize(weight))
    searched, plain = (error(quantized(name, weight, hessian, mse=mse)) for mse in (True, False))
    assert searched < 0.8 * rounded and plain < 0.9 * rounded
    assert unpack_pairs(quantized(name, weight, hessian).parts["weight_packed"]).max() > 8
