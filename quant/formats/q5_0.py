"""Q5_0: 32 weights of 5 bits with one float16 scale."""

from quant.formats.bits import FIVE_BITS
from quant.formats.offset_codes import OffsetCodesFormat


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
