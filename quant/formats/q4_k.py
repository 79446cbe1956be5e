"""Q4_K: super-blocks of 256 weights of 4 bits, 6-bit scale and minimum per 32."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.half import half_bytes, half_from_bytes
from quant.formats.k_affine import dequantize_k_affine, quantize_k_affine
from quant.formats.k_scales import pack_k_scales


class Q4_K(BlockFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..15, i the sub-block of 32

    byte 0   2      4         16                       144
         +---+------+---------+------------------------+
         | d | dmin | scales  |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] | q[2c + 1][j] << 4
         +---+------+---------+------------------------+
    """

    name = "q4_k"
    gguf_type = 12
    block_size = 256
    block_bytes = 144

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(blocks, qmax=15)
        qs = pack_nibbles(k.q.reshape(-1, 4, 64)).reshape(-1, 128)
        return np.concatenate([half_bytes(k.d), half_bytes(k.dmin), pack_k_scales(k.scales, k.minima), qs], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        q = unpack_nibbles(data[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        return dequantize_k_affine(half_from_bytes(data[:, :2]), half_from_bytes(data[:, 2:4]), data[:, 4:16], q)


assert Q4_K.block_bytes == 2 + 2 + 12 + 256 * 4 // 8
