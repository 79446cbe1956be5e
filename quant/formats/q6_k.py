"""Q6_K: super-blocks of 256 weights of 6 bits, 8-bit scale per 16."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes, inverse, to_half
from quant.formats.linear_fit import fit_scale


class Q6_K(BlockFormat):
    """weight = d * scales[i] * (q - 32), q in 0..63, scales int8, i the sub-block of 16

    byte 0                128              192      208 210
         +----------------+----------------+--------+---+
         | ql: 2 x 64     | qh: 2 x 32     | scales | d |
         +----------------+----------------+--------+---+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        ql[h][j]      = q[0][j] & 15 | (q[2][j] & 15) << 4
        ql[h][32 + j] = q[1][j] & 15 | (q[3][j] & 15) << 4
        qh[h][j]      = q[0][j] >> 4 | q[1][j] >> 4 << 2 | q[2][j] >> 4 << 4 | q[3][j] >> 4 << 6
    """

    name = "q6_k"
    gguf_type = 14
    block_size = 256
    block_bytes = 210

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        limit = 128 * HALF_MAX  # beyond it d is no float16; such weights saturate
        x = np.clip(blocks, -limit, limit).reshape(-1, 16, 16)
        d, scales = _eight_bits(fit_scale(x.reshape(-1, 16), half_range=32).reshape(-1, 16))
        d = _refit(x, d, scales, _codes(x, d, scales))
        q = (_codes(x, d, scales) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
        ql = q[:, :, :2] & 15 | q[:, :, 2:] << 4  # [B, 2, 2, 32]
        qh = (q >> 4 << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
        parts = [ql.reshape(-1, 128), qh.reshape(-1, 64), scales.astype(np.int8).view(np.uint8), half_bytes(d)]
        return np.concatenate(parts, axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        ql, qh = data[:, :128].reshape(-1, 2, 2, 32), data[:, 128:192].reshape(-1, 2, 1, 32)
        low = np.concatenate([ql & 15, ql >> 4], axis=2)  # [B, 2, 4, 32]
        high = qh >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
        q = (low | high << 4).view(np.int8) - np.int8(32)
        scale = half_from_bytes(data[:, 208:])[:, None] * data[:, 192:208].view(np.int8)  # [B, 16]
        return (scale[:, :, None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


def _eight_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """values [B, 16] -> d [B] float32 exact in float16, scales [B, 16] float32 in -128..127

    The value of largest magnitude takes -128, one step further than 127 reaches.
    """
    at = np.abs(values).argmax(axis=1)
    extreme = np.take_along_axis(values, at[:, None], axis=1)[:, 0]
    d = to_half(extreme / np.float32(-128)).astype(np.float32)
    return d, np.clip(np.rint(values * inverse(d)[:, None]), -128, 127)


def _codes(x: np.ndarray, d: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Nearest codes [B, 16, 16] float32 in -32..31 of x under scales as they are stored."""
    return np.clip(np.rint(x * inverse(d[:, None] * scales)[:, :, None]), -32, 31)


def _refit(x: np.ndarray, d: np.ndarray, scales: np.ndarray, q: np.ndarray) -> np.ndarray:
    """d [B] float32, exact in float16, of least squared error for codes and scales as they are."""
    a = scales[:, :, None] * q  # x ~= d * a
    aa, ax = np.einsum("bij,bij->b", a, a), np.einsum("bij,bij->b", a, x)
    return to_half(np.where(aa > 0, ax / np.maximum(aa, 1), d)).astype(np.float32)


assert Q6_K.block_bytes == 256 * 4 // 8 + 256 * 2 // 8 + 16 + 2
