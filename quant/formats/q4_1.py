"""Q4_1: 32 weights of 4 bits with a float16 scale and minimum."""

from quant.formats.bits import NIBBLES
from quant.formats.half_affine import HalfAffineFormat


class Q4_1(HalfAffineFormat):
    """weight = d * q + m, q in 0..15

    byte 0   2   4                  20
         +---+---+------------------+
         | d | m |  qs: 32 x 4 bit  |   qs[j] = q[j] | q[j + 16] << 4
         +---+---+------------------+
    """

    name = "q4_1"
    gguf_type = 3
    gguf_file_type = 3  # MOSTLY_Q4_1
    block_bytes = 20
    packing = NIBBLES


assert Q4_1.block_bytes == 2 + 2 + 32 * 4 // 8
