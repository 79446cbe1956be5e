"""Bytes worked out by hand from the layouts drawn in the formats."""

import numpy as np
import pytest

from quant.formats import get_format

HALF_ONE = [0x00, 0x3C]  # float16 1.0, little endian


def ramp(size: int, first: int, last: int) -> np.ndarray:
    """[1, size]: first, first + 1, ... and last at the end, 0 between"""
    row = np.zeros((1, size), dtype=np.float32)
    row[0, 0], row[0, 1], row[0, -1] = first, first + 1, last
    return row


def blocks_of(name: str, weight: np.ndarray) -> list[int]:
    return get_format(name).quantize_ref(weight).parts["blocks"][0].tolist()


def test_q8_0():
    # absmax 127 makes d = 1; the codes are the weights in two's complement.
    assert blocks_of("q8_0", ramp(32, -127, 5)) == [*HALF_ONE, 0x81, 0x82, *[0] * 29, 5]


def test_q4_0():
    # -8 takes code 0 with d = 1; -7 is code 1, 0 is code 8, 5 is code 13 in the high nibble of the last byte.
    assert blocks_of("q4_0", ramp(32, -8, 5)) == [*HALF_ONE, 0x80, 0x81, *[0x88] * 13, 0xD8]


def test_q5_0():
    # Codes 0, 1, 16 ... 16, 21: the fifth bit is set from weight 2 on.
    assert blocks_of("q5_0", ramp(32, -16, 5)) == [*HALF_ONE, 0xFC, 0xFF, 0xFF, 0xFF, 0x00, 0x01, *[0] * 13, 0x50]


def test_q4_1():
    # m = 0 and d = 1: codes are the weights.
    assert blocks_of("q4_1", ramp(32, 0, 15)) == [*HALF_ONE, 0, 0, 0x00, 0x01, *[0] * 13, 0xF0]


def test_q5_1():
    # m = 0 and d = 1: codes are the weights.
    assert blocks_of("q5_1", ramp(32, 0, 31)) == [*HALF_ONE, 0, 0, 0, 0, 0, 0x80, 0x00, 0x01, *[0] * 13, 0xF0]


def test_bf16_rounds_ties_to_even():
    bits = np.array([[0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F800001]], dtype=np.uint32)
    upper = get_format("bf16").quantize_ref(bits.view(np.float32)).parts["blocks"].view("<u2")[0]
    assert [hex(value) for value in upper] == ["0x3f80", "0x3f82", "0x3f81", "0x3f80", "0x7fc0"]


@pytest.mark.parametrize("name, at", [("q4_k", 16), ("q5_k", 48)])
def test_k_affine_header_and_first_codes(name, at):
    qmax = {"q4_k": 15, "q5_k": 31}[name]
    row = np.zeros((1, 256), dtype=np.float32)
    row[0, :32] = np.arange(32) * qmax // 31 * 63.0  # scale 63 and minimum 0 in the first sub-block alone
    data = blocks_of(name, row)
    assert data[:4] == [*HALF_ONE, 0, 0]
    assert data[4:16] == [63, *[0] * 11]
    low = np.arange(32) * qmax // 31 & 15  # the second sub-block's codes, all 0, are the high nibbles
    assert data[at : at + 32] == low.tolist()
    if name == "q5_k":
        assert data[16:48] == (np.arange(32) * qmax // 31 >> 4).tolist()


def test_q2_k_codes_and_scales():
    row = np.zeros((1, 256), dtype=np.float32)
    row[0, 16:32] = np.tile(np.arange(4), 4) * 15.0  # scale 15 and minimum 0 in the second sub-block alone, d = 1
    row[0, 32:48] = np.tile(np.arange(-3, 1), 4) * 5.0  # scale 5 and minimum 15 in the third, dmin = 1
    data = blocks_of("q2_k", row)
    assert data[:16] == [0, 15, 5 | 15 << 4, *[0] * 13]
    # Runs of 32 weights share 32 bytes: bits 0 and 1 are of the first two sub-blocks, 2 and 3 of the next two.
    assert data[16:48] == [*[0 | 0 << 2, 1 << 2, 2 << 2, 3 << 2] * 4, *[0, 1, 2, 3] * 4]
    assert data[48:80] == [0] * 32
    assert data[80:] == [*HALF_ONE, *HALF_ONE]


def test_q6_k_codes_and_scales():
    row = np.zeros((1, 256), dtype=np.float32)
    row[0, :16] = np.arange(-32, 32, 4) * 64.0  # scale of largest magnitude: -128 times d, so d = -0.5
    data = blocks_of("q6_k", row)
    assert data[208:] == [0x00, 0xB8]
    assert data[192:208] == [0x80, *[0] * 15]
    codes = np.arange(0, 64, 4)
    assert data[:16] == (codes & 15).tolist()
    zero = 2 << 2 | 2 << 4 | 2 << 6  # the other three runs hold weights of 0: code 32
    assert data[128:144] == (codes >> 4 | zero).tolist()


def test_q3_k_codes_and_scales():
    row = np.zeros((1, 256), dtype=np.float32)
    row[0, :16] = np.tile(np.arange(-4, 4), 2) * -64.0  # scale of largest magnitude: -32 times d, so d = 2
    data = blocks_of("q3_k", row)
    assert data[108:] == [0x00, 0x40]
    # Stored scales are 0 (for -32) and then 32 (for 0): low nibbles 0, high bits 0 in the first and 2 elsewhere.
    assert data[96:108] == [*[0] * 8, 2 << 2 | 2 << 4 | 2 << 6, *[0xAA] * 3]
    # Codes 0..7 twice: low bits 0..3 with those of the other runs, all 4, 0; the third bit from the fifth code on.
    assert data[32:48] == [0, 1, 2, 3] * 4
    assert data[48:96] == [0] * 48
    assert data[:32] == [*[0xFE] * 4, *[0xFF] * 4, *[0xFE] * 4, *[0xFF] * 4, *[0xFF] * 16]


IQ4_LEVELS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def test_iq4_nl():
    # Levels times d = 1 in order, then in reverse: each byte holds a code and its difference from 15.
    row = np.array([IQ4_LEVELS + IQ4_LEVELS[::-1]], dtype=np.float32)
    assert blocks_of("iq4_nl", row) == [*HALF_ONE, *[i | (15 - i) << 4 for i in range(16)]]


def test_iq4_xs():
    # Scales -32 and 16 times d = 1, and six sub-blocks of zeros: stored 0, 48 and 32.
    row = np.zeros((1, 256), dtype=np.float32)
    row[0, :32] = -32.0 * np.array(IQ4_LEVELS * 2)
    row[0, 32:64] = 16.0 * np.array(IQ4_LEVELS * 2)
    data = blocks_of("iq4_xs", row)
    assert data[:2] == HALF_ONE
    high = 0 | 3 << 2 | sum(2 << 2 * i for i in range(2, 8))
    assert data[2:4] == [high & 255, high >> 8]
    assert data[4:8] == [0] * 4
    assert data[8:40] == [i | i << 4 for i in range(16)] * 2
    assert data[40:] == [0x88] * 96  # code 8 is the level nearest to 0


def test_mxfp4_block_by_hand():
    # The largest magnitude is 12 = 1.5 * 2**3: e = 127 + 3 - 2 = 128, whose codes are worth 1, doubled as they are.
    levels = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
    codes = [0, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15]  # never code 8, which is -0
    row = np.array([levels + levels[::-1]], dtype=np.float32)
    pairs = zip(codes, codes[::-1], strict=True)
    assert blocks_of("mxfp4", row) == [128, *[low | high << 4 for low, high in pairs]]


def test_mxfp4_rounds_ties_to_zero_and_saturates():
    # e = 127: codes are worth 0.5. Largest 7.75 saturates at 6; 0.25, 0.75, 2.5 and 5 are half way between two.
    row = np.zeros((1, 32), dtype=np.float32)
    row[0, :6] = 7.75, 0.25, 0.75, 2.5, -5, -0.25
    assert blocks_of("mxfp4", row) == [127, 7, 0, 1, 4, 14, *[0] * 11]


@pytest.mark.parametrize("absmax, e", [(0, 0), (1e-40, 0), (2.0**-125, 0), (2.0**-124, 1), (1, 125), (3e38, 252)])
def test_exponents_of_mxfp4(absmax, e):
    assert blocks_of("mxfp4", np.full((1, 32), absmax, dtype=np.float32))[0] == e
