"""IQ4_NL and IQ4_XS: weights of 4 bits that index one codebook, in blocks of 32 and super-blocks of 256."""

import numpy as np

from quant.formats.bits import HALF_MAX, half_bytes, half_from_bytes, pack_nibbles
from quant.formats.k_linear import fit_k_linear
from quant.formats.levels import CodebookFormat, CodebookLevels
from quant.formats.linear_fit import Search, even_targets, fit_blocks

# Finer around 0, where most weights are, and one step further below it than above.
CODEBOOK = CodebookLevels((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))

# The largest magnitude is tried about the lowest level and, with the scale's sign turned, about the highest.
IQ4_TARGETS = {
    "fast": even_targets(-128, 24, 9) + even_targets(116, 20, 6),
    "best": even_targets(-130, 30, 25) + even_targets(117.5, 22.5, 19),
}

IQ4_NL_SEARCHES = {
    "fast": Search(IQ4_TARGETS["fast"], num_refits=1),
    "best": Search(IQ4_TARGETS["best"], num_refits=2),
}


class IQ4_NL(CodebookFormat):
    """weight = d * codebook[q], q in 0..15

    byte 0   2                  18
         +---+------------------+
         | d |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+------------------+
    """

    name = "iq4_nl"
    gguf_type = 20
    gguf_file_type = 25  # MOSTLY_IQ4_NL
    block_size = 32
    block_bytes = 18
    codebook = CODEBOOK
    largest_weight = CODEBOOK.reach * HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, y = fit_blocks(blocks, importance, CODEBOOK, IQ4_NL_SEARCHES[effort])
        return np.concatenate([half_bytes(d), pack_nibbles(CODEBOOK.codes(y))], axis=1)

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None]


assert IQ4_NL.block_bytes == 2 + 32 * 4 // 8


IQ4_XS_SEARCHES = {
    "fast": Search(IQ4_TARGETS["fast"], num_refits=1, num_rounds=1),
    "best": Search(IQ4_TARGETS["best"], num_refits=2, num_rounds=2),
}


class IQ4_XS(CodebookFormat):
    """weight = d * (scales[i] - 32) * codebook[q], q in 0..15, scales in 0..63, i the sub-block of 32

    byte 0   2          4          8                          136
         +---+----------+----------+--------------------------+
         | d | scales_h | scales_l |  qs: 8 x 16 bytes        |   qs[i][j] = q[i][j] | q[i][j + 16] << 4
         +---+----------+----------+--------------------------+

    scales_l[i] = scales[2i] & 15 | (scales[2i + 1] & 15) << 4
    scales_h    bits 2i and 2i + 1 of a little-endian uint16 = scales[i] >> 4
    """

    name = "iq4_xs"
    gguf_type = 23
    gguf_file_type = 30  # MOSTLY_IQ4_XS
    fallback = "iq4_nl"
    block_size = 256
    block_bytes = 136
    codebook = CODEBOOK
    largest_weight = 32 * CODEBOOK.reach * HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = fit_k_linear(blocks, importance, 8, CODEBOOK, 32, IQ4_XS_SEARCHES[effort])
        qs = pack_nibbles(CODEBOOK.codes(k.y)).reshape(-1, 128)
        return np.concatenate([half_bytes(k.d), _pack_scales(k.scales), qs], axis=1)

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None] * _unpack_scales(data[:, 2:8])


def _pack_scales(scales: np.ndarray) -> np.ndarray:
    """scales [B, 8] whole numbers in -32..31 -> scales_h and scales_l [B, 6] uint8"""
    s = (scales + 32).astype(np.uint8)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)
    high = ((s >> 4).reshape(-1, 2, 4) << shifts).sum(axis=2, dtype=np.uint8)
    return np.concatenate([high, s[:, 0::2] & 15 | (s[:, 1::2] & 15) << 4], axis=1)


def _unpack_scales(data: np.ndarray) -> np.ndarray:
    """[B, 6] uint8 -> scales [B, 8] int8 in -32..31"""
    high = (data[:, :2, None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & 3).reshape(-1, 8)
    low = np.stack([data[:, 2:] & 15, data[:, 2:] >> 4], axis=2).reshape(-1, 8)
    return (low | high << 4).view(np.int8) - np.int8(32)


assert IQ4_XS.block_bytes == 2 + 8 * 6 // 8 + 256 * 4 // 8
