"""Q5_1: 32 weights of 5 bits with a float16 scale and minimum."""

from quant.formats.bits import FIVE_BITS
from quant.formats.half_affine import HalfAffineFormat


class Q5_1(HalfAffineFormat):
    """weight = d * q + m, q in 0..31

    byte 0   2   4        8                  24
         +---+---+--------+------------------+   qh bit j = q[j] >> 4
         | d | m | qh: 32 |  qs: 32 x 4 bit  |   qs[j] = q[j] & 15 | (q[j + 16] & 15) << 4
         +---+---+--------+------------------+
    """

    name = "q5_1"
    gguf_type = 7
    gguf_file_type = 9  # MOSTLY_Q5_1
    block_bytes = 24
    packing = FIVE_BITS


assert Q5_1.block_bytes == 2 + 2 + 32 // 8 + 32 * 4 // 8
