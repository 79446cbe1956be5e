"""Q4_0: 32 weights of 4 bits with one float16 scale."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.half import half_bytes, half_from_bytes
from quant.formats.signed_max import codes_of_signed_max


class Q4_0(BlockFormat):
    """weight = d * (q - 8), q in 0..15

    byte 0   2                  18
         +---+------------------+
         | d |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+------------------+
    """

    name = "q4_0"
    gguf_type = 2
    block_size = 32
    block_bytes = 18

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, q = codes_of_signed_max(blocks, half_range=8)
        return np.concatenate([half_bytes(d), pack_nibbles(q)], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        q = unpack_nibbles(data[:, 2:]).view(np.int8) - np.int8(8)  # [B, 32]
        return half_from_bytes(data[:, :2])[:, None] * q


assert Q4_0.block_bytes == 2 + 32 * 4 // 8
