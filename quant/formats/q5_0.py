"""Q5_0: 32 weights of 5 bits with one float16 scale."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import pack_bits, pack_nibbles, unpack_bits, unpack_nibbles
from quant.formats.half import half_bytes, half_from_bytes
from quant.formats.signed_max import codes_of_signed_max


class Q5_0(BlockFormat):
    """weight = d * (q - 16), q in 0..31

    byte 0   2        6                  22
         +---+--------+------------------+   qh bit j = q[j] >> 4
         | d | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+--------+------------------+
    """

    name = "q5_0"
    gguf_type = 6
    block_size = 32
    block_bytes = 22

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, q = codes_of_signed_max(blocks, half_range=16)
        return np.concatenate([half_bytes(d), pack_bits(q >> 4), pack_nibbles(q & 15)], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        q = unpack_nibbles(data[:, 6:]) | unpack_bits(data[:, 2:6]) << 4  # [B, 32]
        return half_from_bytes(data[:, :2])[:, None] * (q.view(np.int8) - np.int8(16))


assert Q5_0.block_bytes == 2 + 32 // 8 + 32 * 4 // 8
