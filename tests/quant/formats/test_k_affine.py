import numpy as np

from quant.formats.k_affine import pack_k_scales, unpack_k_scales


def test_bytes_by_hand():
    scales = np.array([[0b000001, 0b100000, 2, 3, 0b110101, 5, 6, 0b010111]], dtype=np.uint8)
    minima = np.array([[0b111111, 9, 10, 11, 0b101100, 13, 14, 0b001111]], dtype=np.uint8)
    first = [0b11_000001, 0b00_100000, 0b00_000010, 0b01_000011]
    second = [0b10_111111, 9, 10, 11]
    third = [0b1100_0101, 0xD5, 0xE6, 0b1111_0111]
    assert pack_k_scales(scales, minima).tolist() == [[*first, *second, *third]]


def test_round_trip():
    scales, minima = np.random.default_rng(0).integers(0, 64, (2, 500, 8), dtype=np.uint8)
    got_scales, got_minima = unpack_k_scales(pack_k_scales(scales, minima))
    np.testing.assert_array_equal(got_scales, scales)
    np.testing.assert_array_equal(got_minima, minima)
