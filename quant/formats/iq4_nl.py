"""IQ4_NL: 32 weights of 4 bits that index a codebook, with one float16 scale."""

import numpy as np

from quant.formats.bits import pack_nibbles
from quant.formats.codebook import CodebookFormat
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes
from quant.formats.levels import CodebookLevels
from quant.formats.linear_fit import Search, even_targets, fit_blocks

# Finer around 0, where most weights are, and one step further below it than above.
CODEBOOK = CodebookLevels((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))

# The largest magnitude is tried about the lowest level and, with the scale's sign turned, about the highest.
IQ4_TARGETS = {
    "fast": even_targets(-128, 24, 9) + even_targets(116, 20, 6),
    "best": even_targets(-130, 30, 25) + even_targets(117.5, 22.5, 19),
}

SEARCHES = {
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
        d, y = fit_blocks(blocks, importance, CODEBOOK, SEARCHES[effort])
        return np.concatenate([half_bytes(d), pack_nibbles(CODEBOOK.codes(y))], axis=1)

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return half_from_bytes(data[:, :2])[:, None]


assert IQ4_NL.block_bytes == 2 + 32 * 4 // 8
