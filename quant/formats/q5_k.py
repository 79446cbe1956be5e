"""Q5_K: super-blocks of 256 weights of 5 bits, 6-bit scale and minimum per 32."""

import numpy as np

from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.grid import Grid, GridFormat
from quant.formats.half import half_bytes
from quant.formats.k_affine import KAffineShape, quantize_k_affine
from quant.formats.k_scales import SEARCHES, pack_k_scales, read_k_grid

SHAPE = KAffineShape(qmax=31, sub_size=32, scale_max=63)


class Q5_K(GridFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..31, i the sub-block of 32

    byte 0   2      4         16       48                       176
         +---+------+---------+--------+------------------------+   qh[j] bit i = q[i][j] >> 4
         | d | dmin | scales  | qh: 32 |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] & 15 | q[2c + 1][j] << 4
         +---+------+---------+--------+------------------------+
    """

    name = "q5_k"
    gguf_type = 13
    block_size = 256
    block_bytes = 176

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(blocks, importance, SHAPE, SEARCHES[effort])
        header = [half_bytes(k.d), half_bytes(k.dmin), pack_k_scales(k.scales, k.minima)]
        return np.concatenate([*header, _pack_codes(k.q)], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        return read_k_grid(data[:, :16], SHAPE.qmax)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        low = unpack_nibbles(data[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        high = np.unpackbits(data[:, None, 16:48], axis=1, bitorder="little")  # [B, 8, 32]
        return (low | high << 4).reshape(-1, 256).view(np.int8)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return np.concatenate([grid.header, _pack_codes(q.astype(np.uint8))], axis=1)


def _pack_codes(q: np.ndarray) -> np.ndarray:
    """q [B, ...] uint8, 256 a block -> qh and qs [B, 160]"""
    qh = np.packbits(q.reshape(-1, 8, 32) >> 4, axis=1, bitorder="little")[:, 0]  # [B, 32]
    qs = pack_nibbles((q & 15).reshape(-1, 4, 64)).reshape(-1, 128)
    return np.concatenate([qh, qs], axis=1)


assert Q5_K.block_bytes == 2 + 2 + 12 + 256 // 8 + 256 * 4 // 8
