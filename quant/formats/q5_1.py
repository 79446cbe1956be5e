"""Q5_1: 32 weights of 5 bits with a float16 scale and minimum."""

import numpy as np

from quant.formats.base import BlockFormat
from quant.formats.bits import pack_bits, pack_nibbles, unpack_bits, unpack_nibbles
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes, inverse, to_half


class Q5_1(BlockFormat):
    """weight = d * q + m, q in 0..31

    byte 0   2   4        8                  24
         +---+---+--------+------------------+   qh bit j = q[j] >> 4
         | d | m | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+---+--------+------------------+
    """

    name = "q5_1"
    gguf_type = 7
    block_size = 32
    block_bytes = 24

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        # Outside +-HALF_MAX neither d nor m is a float16; such weights saturate.
        blocks = np.clip(blocks, -HALF_MAX, HALF_MAX)
        m = blocks.min(axis=1)
        d = (blocks.max(axis=1) - m) / np.float32(31)
        scaled = (blocks - m[:, None]) * inverse(d)[:, None] + np.float32(0.5)
        q = np.clip(scaled, 0, 31).astype(np.uint8)
        header = [half_bytes(to_half(d)), half_bytes(to_half(m))]
        return np.concatenate([*header, pack_bits(q >> 4), pack_nibbles(q & 15)], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        q = unpack_nibbles(data[:, 8:]) | unpack_bits(data[:, 4:8]) << 4  # [B, 32]
        return half_from_bytes(data[:, :2])[:, None] * q + half_from_bytes(data[:, 2:4])[:, None]


assert Q5_1.block_bytes == 2 + 2 + 32 // 8 + 32 * 4 // 8
