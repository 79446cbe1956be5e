"""The format of trellis codes: values that come back, parts read alone, and shapes that it refuses."""

import numpy as np
import pytest

from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.formats.trellis import TrellisCode, TrellisFormat, matrix_of, tiles_of, turn, turn_back

WEIGHT = (0.02 * np.random.default_rng(0).standard_normal((48, 256))).astype(np.float32)


def test_names_give_bits_and_length():
    assert get_format("trellis-w2").code == TrellisCode(2, 16)
    assert get_format("trellis-w3-l12").code == TrellisCode(3, 12)
    for name in ("trellis-w5", "trellis-w2-l7", "trellis-w2-l17", "trellis-w"):
        with pytest.raises(InputError, match="unknown format"):
            get_format(name)


@pytest.mark.parametrize("row_size", [16, 48, 352, 512])
def test_the_turn_comes_back(row_size):
    weight = np.random.default_rng(row_size).standard_normal((32, row_size)).astype(np.float32)
    np.testing.assert_allclose(turn_back(turn(weight)), weight, atol=2e-6)


def test_an_outlier_is_spread():
    weight = np.ones((16, 128), dtype=np.float32)
    weight[3, 77] = 1000
    assert np.abs(turn(weight)).max() < 100


def test_tiles_are_rows_of_16_by_16():
    matrix = np.arange(32 * 48).reshape(32, 48)
    tiles = tiles_of(matrix)
    np.testing.assert_array_equal(tiles[4].reshape(16, 16), matrix[16:32, 16:32])
    np.testing.assert_array_equal(matrix_of(tiles, matrix.shape), matrix)


@pytest.mark.parametrize("name", ["trellis-w1-l8", "trellis-w2-l8", "trellis-w3-l9", "trellis-w4-l10"])
def test_bytes_and_values_match_the_reference(name):
    fmt = get_format(name)
    made, expected = fmt.quantize(WEIGHT), fmt.quantize_ref(WEIGHT)
    for part, array in expected.parts.items():
        np.testing.assert_array_equal(made.parts[part], array)
    np.testing.assert_array_equal(dequantize(made), fmt.dequantize_ref(made))
    assert made.size_bytes == fmt.size_bytes(WEIGHT.shape) == 48 * (256 * fmt.bits // 8 + 4)
    assert np.square(dequantize(made) - WEIGHT).mean() < 1.2 * 4.0**-fmt.bits * 1.35 * WEIGHT.var()


def test_rows_and_columns_are_cut_at_whole_tiles():
    fmt = TrellisFormat(3, 9)
    made = fmt.quantize(WEIGHT)
    whole = dequantize(made)
    np.testing.assert_array_equal(dequantize(made.take_rows(np.arange(16, 48))), whole[16:])
    np.testing.assert_array_equal(dequantize(fmt.take_columns(made, slice(128, 256))), whole[:, 128:])
    for columns in (slice(0, 64), slice(64, 192)):
        with pytest.raises(InputError, match="turns 128 input features together"):
            fmt.take_columns(made, columns)
    with pytest.raises(InputError, match=r"N a multiple of 16, got shape \[8, 256\]"):
        dequantize(made.take_rows(np.arange(8)))


def test_zeros_come_back():
    np.testing.assert_allclose(dequantize(TrellisFormat(2, 8).quantize(np.zeros((16, 32), np.float32))), 0, atol=1e-25)


@pytest.mark.parametrize("shape", [(24, 64), (64,), (16, 16, 16)], ids=str)
def test_shapes_that_are_refused(shape):
    with pytest.raises(InputError, match="holds matrices"):
        get_format("trellis-w2-l8").quantize(np.ones(shape, np.float32))


def test_rows_that_are_refused():
    with pytest.raises(InputError, match="rows of a multiple of 16 weights, got 24"):
        get_format("trellis-w2").size_bytes((16, 24))
    with pytest.raises(InputError, match="finite weights"):
        get_format("trellis-w2").quantize(np.full((16, 16), np.inf, np.float32))
