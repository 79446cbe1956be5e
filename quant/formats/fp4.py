"""MXFP4 and NVFP4 of GGUF: 4-bit floats (E2M1) under a scale of 8 bits, E8M0 per 32 weights or E4M3 per 16."""

import numpy as np

from quant.formats.base import ReadOnlyFormat
from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.levels import CodebookFormat, CodebookLevels
from quant.formats.small_floats import E4M3_VALUES

# E2M1 doubled: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Code 8 is -0 and is never written.
CODEBOOK = CodebookLevels((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))
MAGNITUDES = CodebookLevels(CODEBOOK.values[:8])

# Scales that the search compares with that of the largest magnitude. Half of it pays only with importance.
CANDIDATES = {"fast": np.array([2], np.float32), "best": np.array([2, 0.5], np.float32)}


class MXFP4(CodebookFormat):
    """weight = 2**(e - 128) * codebook[q], q in 0..15

    byte 0   1                  17
         +---+------------------+
         | e |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+------------------+

    The fast way without importance is ggml's: the exponent of the largest magnitude, less 2, so that magnitudes above 6
    saturate; ties round towards 0. ggml takes that exponent from log2f, which rounds up just below a power of two; here
    it is exact. The search also tries the exponents next to it.
    source  OCP Microscaling Formats (MX) v1.0; ggml, quantize_row_mxfp4_ref
    """

    name = "mxfp4"
    gguf_type = 39
    gguf_file_type = 38  # MOSTLY_MXFP4_MOE
    block_size = 32
    block_bytes = 17
    codebook = CODEBOOK

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        x = blocks.T.copy()  # [32, B]
        absmax = np.abs(x).max(axis=0)
        e = np.maximum((absmax.view(np.uint32) >> 23).astype(np.int32) - 2, 0)  # [B]
        y = x * (254 - e << 23).view(np.float32)  # magnitudes below 8
        scale = np.ones_like(absmax)
        if importance is not None or effort == "best":
            scale = _search(np.abs(y), None if importance is None else importance.T, e, CANDIDATES[effort])
        q = MAGNITUDES.codes(np.abs(y) * (2 / scale))
        q |= ((y < 0) & (q > 0)).astype(np.uint8) << 3
        e += scale.view(np.int32) - np.float32(1).view(np.int32) >> 23
        return np.concatenate([e.astype(np.uint8)[:, None], pack_nibbles(q.T)], axis=1)

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        e = data[:, :1].astype(np.uint32)
        return np.where(e < 2, 1 + e << 21, e - 1 << 23).astype(np.uint32).view(np.float32)  # below 2: subnormal


def _search(y: np.ndarray, w: np.ndarray | None, e: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The scale among 1 and the candidates with the least squared error; among equal ones the first.

    y         [32, B] float32, magnitudes in units of 2**(e - 127)
    w         [32, B] float32 importance, or None
    e         [B] int32; a scale that would take it out of 0..252, beyond which 8 units are infinite, is not tried
    returns   [B] float32
    """
    scale = np.ones(y.shape[1], dtype=np.float32)
    least = _cost(y, w, scale[0])
    for candidate in candidates:
        cost = _cost(y, w, candidate)
        better = (cost < least) & (e < 252 if candidate > 1 else e > 0)
        least = np.where(better, cost, least)
        scale = np.where(better, candidate, scale)
    return scale


def _cost(y: np.ndarray, w: np.ndarray | None, scale: np.float32) -> np.ndarray:
    """Squared error of each block [B] float32, summed in order."""
    error = y - MAGNITUDES.nearest(y * (2 / scale)) * (scale / 2)
    terms = error * error if w is None else w * error * error
    cost = np.zeros(y.shape[1], dtype=np.float32)
    for term in terms:
        cost = cost + term
    return cost


assert MXFP4.block_bytes == 1 + 32 * 4 // 8


# Half the value of each byte as E4M3 without a sign. GGUF counts 0x7F, which would be NaN, as 0, and 0xFF as a number.
HALVES_OF_E4M3 = np.abs(E4M3_VALUES) / 2
HALVES_OF_E4M3[[0x7F, 0xFF]] = 0, 240


class NVFP4(ReadOnlyFormat, CodebookFormat):
    """weight = e4m3(s) / 2 * codebook[q], q in 0..15

    byte 0           4                      36
         +-----------+----------------------+
         |  4 x s    |  qs: 4 x (16 x 4 bit)  |   qs[j] = q[j] | q[j + 8] << 4 of each 16 weights
         +-----------+----------------------+
    """

    name, gguf_type, gguf_file_type = "nvfp4", 40, 39  # MOSTLY_NVFP4
    block_size, block_bytes = 64, 36
    codebook = CODEBOOK

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return HALVES_OF_E4M3[data[:, :4]]

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 4:].reshape(-1, 4, 8))


assert NVFP4.block_bytes == 4 + 64 * 4 // 8
