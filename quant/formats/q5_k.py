"""Q5_K: super-blocks of 256 weights of 5 bits, 6-bit scale and minimum per 32."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.half import half_bytes, half_from_bytes
from quant.formats.k_affine import dequantize_k_affine, quantize_k_affine
from quant.formats.k_scales import pack_k_scales


class Q5_K(BlockFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..31, i the sub-block of 32

    byte 0   2      4         16       48                       176
         +---+------+---------+--------+------------------------+   qh[j] bit i = q[i][j] >> 4
         | d | dmin | scales  | qh: 32 |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] & 15 | q[2c + 1][j] << 4
         +---+------+---------+--------+------------------------+
    """

    name = "q5_k"
    gguf_type = 13
    block_size = 256
    block_bytes = 176

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(blocks, qmax=31)
        qh = np.packbits(k.q >> 4, axis=1, bitorder="little")[:, 0]  # [B, 32]
        qs = pack_nibbles((k.q & 15).reshape(-1, 4, 64)).reshape(-1, 128)
        scales = pack_k_scales(k.scales, k.minima)
        return np.concatenate([half_bytes(k.d), half_bytes(k.dmin), scales, qh, qs], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        low = unpack_nibbles(data[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        high = np.unpackbits(data[:, None, 16:48], axis=1, bitorder="little")  # [B, 8, 32]
        d, dmin = half_from_bytes(data[:, :2]), half_from_bytes(data[:, 2:4])
        return dequantize_k_affine(d, dmin, data[:, 4:16], low | high << 4)


assert Q5_K.block_bytes == 2 + 2 + 12 + 256 // 8 + 256 * 4 // 8
