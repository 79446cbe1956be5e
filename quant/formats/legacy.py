"""Q4_0, Q5_0 and Q8_0: blocks of 32 whole-number codes under one float16 scale."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from quant.formats.bits import FIVE_BITS, HALF_MAX, NIBBLES, Packing, half_bytes, half_from_bytes, inverse, to_half
from quant.formats.grid import CodesLastFormat, Grid
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets, fit_blocks


def codes_of_signed_max(blocks: np.ndarray, half_range: int) -> tuple[np.ndarray, np.ndarray]:
    """One scale per block and the codes, weight ~= d * (q - half_range).

    The two's complement range has one more step below zero than above; d may be negative so that the
    largest magnitude always uses it. Codes come from the unrounded d, as in ggml's reference.

    blocks   [B, n] float32
    returns  d [B] float16; q [B, n] uint8 in 0..2 * half_range - 1
    """
    at = np.abs(blocks).argmax(axis=1)
    extreme = np.take_along_axis(blocks, at[:, None], axis=1)[:, 0]
    d = np.clip((extreme + 0) / np.float32(-half_range), -HALF_MAX, HALF_MAX)  # + 0: -0.0 counts as 0.0
    scaled = blocks * inverse(d)[:, None] + np.float32(half_range + 0.5)
    q = np.clip(scaled, 0, 2 * half_range - 1).astype(np.uint8)  # the cast truncates: + 0.5 made it a rounding
    return to_half(d), q


class OneScaleFormat(CodesLastFormat):
    """weight = d * q, q among `levels`, d float16 in the first two bytes of the block.

    The fast way without importance is ggml's: the scale of the largest magnitude, codes by rounding, its bytes.
    An effort that `searches` does not name rounds in this way whatever the importance.
    """

    block_size = 32
    levels: ClassVar[WholeLevels]
    searches: ClassVar[Mapping[str, Search]]

    def round_blocks(self, blocks: np.ndarray) -> np.ndarray:
        """blocks [B, 32] float32 -> uint8 [B, block_bytes], identical to ggml's reference"""
        d, q = codes_of_signed_max(blocks, -self.levels.lowest)
        return np.concatenate([half_bytes(d), self.pack_codes(q.view(np.int8) + np.int8(self.levels.lowest))], axis=1)

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        if effort not in self.searches or (effort == "fast" and importance is None):
            return self.round_blocks(blocks)
        d, y = fit_blocks(blocks, importance, self.levels, self.searches[effort])
        return np.concatenate([half_bytes(d), self.pack_codes(self.levels.nearest(y))], axis=1)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None] * self.read_codes(data)

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, :2]
        scale = np.repeat(half_from_bytes(header)[:, None], self.block_size, axis=1)
        return Grid(scale, np.zeros_like(scale), self.levels.lowest, self.levels.highest, header)


class OffsetCodesFormat(OneScaleFormat):
    """weight = d * (q - half), q in 0..2 * half - 1, half = 2**(bits - 1) of `packing`"""

    packing: ClassVar[Packing]

    def __init_subclass__(cls, **options: Any) -> None:
        half = 2 ** (cls.packing.bits - 1)
        cls.levels = WholeLevels(-half, half - 1)
        cls.searches = {
            "fast": Search(even_targets(-half, 2, 9)),
            "best": Search(even_targets(-half, 3, 25), num_refits=1),
        }
        cls.largest_weight = cls.levels.reach * HALF_MAX
        super().__init_subclass__(**options)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return self.packing.unpack(data[:, 2:]).view(np.int8) + np.int8(self.levels.lowest)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return self.packing.pack((q - self.levels.lowest).astype(np.uint8))


class Q4_0(OffsetCodesFormat):
    """weight = d * (q - 8), q in 0..15

    byte 0   2                  18
         +---+------------------+
         | d |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+------------------+
    """

    name = "q4_0"
    gguf_type = 2
    gguf_file_type = 2  # MOSTLY_Q4_0
    block_bytes = 18
    packing = NIBBLES


assert Q4_0.block_bytes == 2 + 32 * 4 // 8


class Q5_0(OffsetCodesFormat):
    """weight = d * (q - 16), q in 0..31

    byte 0   2        6                  22
         +---+--------+------------------+   qh bit j = q[j] >> 4
         | d | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+--------+------------------+
    """

    name = "q5_0"
    gguf_type = 6
    gguf_file_type = 8  # MOSTLY_Q5_0
    block_bytes = 22
    packing = FIVE_BITS


assert Q5_0.block_bytes == 2 + 32 // 8 + 32 * 4 // 8


SEARCHES = {"best": Search(even_targets(-124, 6, 13))}


class Q8_0(OneScaleFormat):
    """weight = d * q, q int8; -128 is never written: kernels that multiply magnitudes may count on that

    byte 0   2                               34
         +---+-------------------------------+
         | d |  qs: 32 x int8                |
         +---+-------------------------------+
    """

    name = "q8_0"
    gguf_type = 8
    gguf_file_type = 7  # MOSTLY_Q8_0
    block_bytes = 34
    levels = WholeLevels(-127, 127)
    largest_weight = levels.reach * HALF_MAX
    searches = SEARCHES

    def round_blocks(self, blocks: np.ndarray) -> np.ndarray:
        absmax = np.abs(blocks).T.copy().max(axis=0)  # NumPy takes twice as long over a short last axis
        d = np.minimum(absmax / np.float32(127), HALF_MAX)
        # Codes come from the unrounded d: the bytes are then those of ggml's reference.
        scaled = np.clip(blocks * inverse(d)[:, None], -127, 127)
        return np.concatenate([half_bytes(to_half(d)), self.pack_codes(round_half_away(scaled))], axis=1)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return data[:, 2:].view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return q.astype(np.int8).view(np.uint8)


def round_half_away(x: np.ndarray) -> np.ndarray:
    """Nearest integer, ties away from zero (C's roundf; np.rint takes ties to even)."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= np.float32(0.5), x)


assert Q8_0.block_bytes == 2 + 32
