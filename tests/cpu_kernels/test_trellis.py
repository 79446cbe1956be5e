"""The C++ search through the trellis: the bits of the NumPy search, on every instruction set."""

import numpy as np
import pytest
from support.threads import assert_threads_change_nothing

from cpu_kernels import _ext, trellis
from quant.formats.trellis import TILE, TrellisCode

OP = "trellis"
CODES = [(1, 8), (2, 8), (2, 11), (3, 9), (4, 8), (4, 10)]


def tiles(number: int) -> np.ndarray:
    x = 140 * np.random.default_rng(number).standard_normal((number, TILE))
    x[1::3], x[2::3] = 0, x[2::3] * 1000  # equal costs, and values that the code does not reach
    return x.astype(np.float32)


@pytest.mark.parametrize("bits, state_bits", CODES)
def test_bits_match_the_reference(isa, bits, state_bits):
    x, code = tiles(5), TrellisCode(bits, state_bits)
    packed, ran = _ext.trellis_encode(x, bits, state_bits, isa)
    assert ran == isa and packed.dtype == np.uint16
    np.testing.assert_array_equal(packed, code.encode_ref(x))
    np.testing.assert_array_equal(trellis.decode(packed, bits, state_bits), code.decode_ref(packed))


def test_every_number_of_threads_gives_the_same_bits():
    assert_threads_change_nothing((1, 5), lambda: trellis.encode(tiles(17), 2, 9))


@pytest.mark.parametrize("bits, state_bits", [(0, 12), (5, 12), (2, 7), (2, 17)])
def test_codes_that_do_not_exist(bits, state_bits):
    with pytest.raises(ValueError, match="expected 1 to 4, 8 to 16"):
        trellis.encode(tiles(1), bits, state_bits)
    with pytest.raises(ValueError, match="expected 1 to 4, 8 to 16"):
        trellis.decode(np.zeros((1, 16 * bits), np.uint16), bits, state_bits)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="expected 256 columns"):
        trellis.encode(tiles(1)[:, :255].copy(), 2, 9)
    with pytest.raises(ValueError, match="expected 32 columns"):
        trellis.decode(np.zeros((1, 33), np.uint16), 2, 9)
    with pytest.raises(ValueError, match="NaN or infinity"):
        trellis.encode(np.full((1, TILE), np.nan, np.float32), 2, 9)


def test_no_tiles():
    packed = trellis.encode(np.empty((0, TILE), np.float32), 3, 9)
    assert packed.shape == (0, 48) and trellis.decode(packed, 3, 9).shape == (0, TILE)
