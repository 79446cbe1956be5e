"""NVFP4 of GGUF: 64 weights of 4-bit floats (E2M1), with a float of 8 bits (E4M3) per 16 weights as scale."""

import numpy as np

from quant.formats.bits import unpack_nibbles
from quant.formats.codebook import CodebookFormat
from quant.formats.e4m3 import E4M3_VALUES
from quant.formats.mxfp4 import CODEBOOK
from quant.formats.read_only import ReadOnlyFormat

# Half the value of each byte as E4M3 without a sign. GGUF counts 0x7F, which would be NaN, as 0, and 0xFF as a number.
HALVES_OF_E4M3 = np.abs(E4M3_VALUES) / 2
HALVES_OF_E4M3[[0x7F, 0xFF]] = 0, 240


class NVFP4(ReadOnlyFormat, CodebookFormat):
    """weight = e4m3(s) / 2 * codebook[q], q in 0..15

    byte 0           4                      36
         +-----------+----------------------+
         |  4 x s    |  qs: 4 x (16 x 4 bit)  |   qs[j] = q[j] | q[j + 8] << 4 of each 16 weights
         +-----------+----------------------+
    """

    name, gguf_type, gguf_file_type = "nvfp4", 40, 39  # MOSTLY_NVFP4
    block_size, block_bytes = 64, 36
    codebook = CODEBOOK

    def read_scale(self, data: np.ndarray) -> np.ndarray:
        return HALVES_OF_E4M3[data[:, :4]]

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 4:].reshape(-1, 4, 8))


assert NVFP4.block_bytes == 4 + 64 * 4 // 8
