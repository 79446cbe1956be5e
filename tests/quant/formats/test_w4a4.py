"""4-bit weights and 4-bit inputs: the rounding by hand, and the product in integers."""

import numpy as np
import pytest
import torch

from qbench.runtime.layers.linear import ReferenceLinear, choose_linear
from quant.formats import dequantize, get_format

FMT = get_format("w4a4")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_inputs_by_hand():
    x = np.float32([[7.5, -7.5, 3.4, 0.5, -1.5], [0, 0, 0, 0, 0]])
    assert FMT.fake_quantize_input(x, {}).tolist() == [[7, -8, 3, 0, -2], [0, 0, 0, 0, 0]]


def test_each_token_has_its_own_scale():
    x = normal(5, 64) * np.float32([[1e-3], [1], [10], [1e4], [0]])
    codes, scale = FMT.input_codes(x)
    assert codes.min() >= -8 and codes.max() <= 7 and (codes == np.rint(codes)).all()
    step = np.abs(x).max(axis=1, keepdims=True) / np.float32(7.5)
    assert np.abs(codes * scale - x).max(axis=1, keepdims=True) == pytest.approx(step / 2, rel=0.1)


def test_weights_match_w4():
    weight = normal(9, 96)
    ours, plain = FMT.quantize(weight), get_format("w4").quantize(weight)
    assert all(np.array_equal(ours.parts[name], plain.parts[name]) for name in plain.parts)
    assert FMT.size_bytes(weight.shape) == get_format("w4").size_bytes(weight.shape)


@pytest.mark.parametrize("shape", [(1, 1), (5, 64), (33, 200)])
@pytest.mark.parametrize("num_tokens", [1, 3, 40])
def test_the_product_is_that_of_the_definition(shape, num_tokens):
    qtensor, x = FMT.quantize(normal(*shape)), torch.from_numpy(normal(num_tokens, shape[1], seed=1))
    linear = choose_linear("w4a4").build(qtensor)
    codes, scale = FMT.input_codes(x.numpy())
    q, weight_scale, _, _ = FMT.unpack(qtensor)
    exact = codes.astype(np.float64) @ q.T.astype(np.float64) * weight_scale.astype(np.float64).T * scale
    bound = 4 * 2**-24 * np.abs(exact) + 1e-30
    assert (np.abs(linear(x).numpy() - exact) <= bound).all()
    assert np.abs(ReferenceLinear(qtensor)(x).numpy() - exact).max() <= 2**-20 * np.abs(exact).max() + 1e-30
    index = np.arange(shape[0])[::-1].copy()
    assert np.array_equal(linear.rows(index).numpy(), dequantize(qtensor)[index])


def test_a_column_of_zeros_carries_the_scale_of_other_lanes():
    qtensor, x = FMT.quantize(normal(4, 32)), normal(3, 32, seed=1)
    wider = FMT.add_zero_column(qtensor)
    assert np.array_equal(dequantize(wider)[:, :-1], dequantize(qtensor)) and not dequantize(wider)[:, -1].any()
    given = np.concatenate([x, np.full((3, 1), 100, np.float32)], axis=1)
    assert (FMT.input_codes(given)[1] == np.float32(100 / 7.5)).all()
