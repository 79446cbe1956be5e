"""4-bit floats in turned blocks: the dense Hadamard matrix of numpy is their oracle."""

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.weights import make_weight

from qbench.runtime.layers.linear import ReferenceLinear, choose_linear
from quant.extension import has_cpu_kernels
from quant.formats import TurnedFp4, dequantize, get_format
from quant.formats.fp4_linear import TURNED_FP4_FORMATS
from quant.qtensor import concat_rows
from quant.turn import hadamard

NAMES = tuple(TURNED_FP4_FORMATS)
ULP = 2.0**-23


def dense(fmt: TurnedFp4, row_size: int) -> np.ndarray:
    """[K, K] float64: the matrices of all blocks of a row"""
    return np.kron(np.eye(row_size // fmt.block_size), hadamard(fmt.block_size))


@pytest.mark.parametrize("name", NAMES)
def test_weights_match_the_plain_format_in_the_turned_basis(name):
    fmt, weight = get_format(name), make_weight("student_t4")
    matrix = dense(fmt, weight.shape[1])
    tolerance = 5 * ULP * fmt.block_size**0.5 * np.abs(weight).max()  # a sum and a difference per factor of two
    assert_close(fmt.turn(weight), weight @ matrix, atol=tolerance)
    assert_close(fmt.turn(fmt.turn(weight)), weight, atol=2 * tolerance)
    qtensor = fmt.quantize(weight)
    plain = get_format(fmt.plain_name).quantize(fmt.turn(weight))
    assert qtensor.format == name and qtensor.size_bytes == plain.size_bytes
    for part, array in plain.parts.items():
        np.testing.assert_array_equal(qtensor.parts[part], array)
    assert_close(dequantize(qtensor), dequantize(fmt.plain(qtensor)) @ matrix, atol=2 * tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_turned_inputs_times_the_codes_are_the_product(name):
    """y = (x H) (W H)^T, as other programs compute it"""
    fmt, weight = get_format(name), make_weight("gauss")
    qtensor, x = fmt.quantize(weight), np.random.default_rng(0).standard_normal((5, weight.shape[1]))
    online = (x @ dense(fmt, weight.shape[1])) @ dequantize(fmt.plain(qtensor)).astype(np.float64).T
    got = ReferenceLinear(qtensor)(torch.from_numpy(x).float())
    assert_close(got, online, atol=2**-19 * weight.shape[1] ** 0.5 * np.abs(weight).max())


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_whole_blocks_match_the_whole(name):
    fmt = get_format(name)
    qtensor = fmt.quantize(make_weight("gauss"))
    columns = slice(fmt.block_size, 3 * fmt.block_size)
    np.testing.assert_array_equal(dequantize(fmt.take_columns(qtensor, columns)), dequantize(qtensor)[:, columns])


@pytest.mark.skipif(not has_cpu_kernels(), reason="the extension is not built")
def test_kernels_multiply_turned_inputs():
    qtensor = get_format("mxfp4a16-had").quantize(make_weight("gauss"))
    x = torch.randn(3, qtensor.shape[1], generator=torch.Generator().manual_seed(0))
    row = choose_linear(qtensor.format)
    linear = row.build(concat_rows([qtensor, qtensor]))
    expected = ReferenceLinear(qtensor)(x)
    # Inputs are rounded to 8 bits per 32 by the kernels of mxfp4.
    assert_close(linear(x)[:, : qtensor.shape[0]], expected, atol=0.01 * float(expected.abs().max()))
    index = np.array([0, qtensor.shape[0] - 1])
    assert_close(linear.rows(index), dequantize(qtensor)[index], atol=2**-20 * float(np.abs(dequantize(qtensor)).max()))
    shape = (2 * qtensor.shape[0], qtensor.shape[1])
    assert linear.size_bytes == row.held_bytes(qtensor.format, shape, 2 * qtensor.size_bytes)
