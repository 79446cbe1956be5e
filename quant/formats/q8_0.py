"""Q8_0: 32 weights of 8 bits with one float16 scale."""

import numpy as np

from quant.formats.half import HALF_MAX, half_bytes, inverse, to_half
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets
from quant.formats.one_scale import OneScaleFormat

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
