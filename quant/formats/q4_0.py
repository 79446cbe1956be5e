"""Q4_0: 32 weights of 4 bits with one float16 scale."""

from quant.formats.bits import NIBBLES
from quant.formats.offset_codes import OffsetCodesFormat


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
