"""Q2_K, Q4_K and Q5_K: super-blocks of 256 weights in sub-blocks with small integer scales and minima.

Q4_K and Q5_K keep 8 scales and 8 minima of 6 bits in 12 bytes. Letters A..H are the eight scales, a..h the eight
minima; a letter is one bit, high bits left.

    byte 0 1 2 3    EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD    scales 0..3, above them the top bits of scales 4..7
    byte 4 5 6 7    eeaaaaaa ffbbbbbb ggcccccc hhdddddd    minima 0..3, above them the top bits of minima 4..7
    byte 8 9 10 11  eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH    low nibbles of minima 4..7 and scales 4..7
"""

from typing import ClassVar

import numpy as np

from quant.formats.affine_fit import Trials
from quant.formats.bits import HALF_MAX, half_bytes, half_from_bytes, pack_nibbles, unpack_nibbles
from quant.formats.grid import CodesLastFormat, Grid, GridFormat
from quant.formats.k_affine_fit import KAffineSearch, KAffineShape, quantize_k_affine

# RMSE on Gaussian weights in Q4_K compared with that of "fast": without a window 0.8 % more, "best" 1.0 % less; without
# shifts 0.7 % more, and 1.8 % more weighted error if importance is lognormal.
K_TRIALS = Trials(first_extra=-3.0, extra_step=1.0, num_extra=8, num_shifts=3, num_refits=2)
K_SEARCHES = {
    "fast": KAffineSearch(K_TRIALS, windows=((1, 1),)),
    "best": KAffineSearch(K_TRIALS, windows=((4, 8), (2, 4))),
}

SCALE_MAX = 63  # 6 bits


def pack_k_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """scales, minima [B, 8] uint8 below 64 -> [B, 12] uint8"""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    third = scales[:, 4:] & 0x0F | minima[:, 4:] << 4
    return np.concatenate([first, second, third], axis=1)


def unpack_k_scales(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B, 12] uint8 -> scales, minima [B, 8] uint8"""
    first, second, third = data[:, :4], data[:, 4:8], data[:, 8:]
    scales = np.concatenate([first & 0x3F, third & 0x0F | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 0x3F, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


class KScalesFormat(CodesLastFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..qmax, i the sub-block of 32

    byte 0   2      4         16
         +---+------+---------+-------------+
         | d | dmin | scales  |  codes      |
         +---+------+---------+-------------+
    """

    block_size = 256
    largest_weight = SCALE_MAX * HALF_MAX
    qmax: ClassVar[int]

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(
            blocks, importance, KAffineShape(self.qmax, sub_size=32, scale_max=SCALE_MAX), K_SEARCHES[effort]
        )
        header = [half_bytes(k.d), half_bytes(k.dmin), pack_k_scales(k.scales, k.minima)]
        return np.concatenate([*header, self.pack_codes(k.q.reshape(-1, 256))], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, :16]
        scales, minima = unpack_k_scales(header[:, 4:])
        scale = half_from_bytes(header[:, :2])[:, None] * scales.astype(np.float32)  # [B, 8]
        minimum = half_from_bytes(header[:, 2:4])[:, None] * minima.astype(np.float32)
        return Grid(np.repeat(scale, 32, axis=1), np.repeat(-minimum, 32, axis=1), 0, self.qmax, header)


Q2_K_SHAPE = KAffineShape(qmax=3, sub_size=16, scale_max=15)
# With 4 codes it matters which weights are clipped: without shifts the RMSE on Gaussian weights is 1.9 % higher. "best"
# still finds 0.1 %.
Q2_K_SEARCHES = {
    "fast": KAffineSearch(Trials(-0.6, 0.4, num_extra=7, num_shifts=3, num_refits=2), windows=((1, 1),)),
    "best": KAffineSearch(Trials(-0.6, 0.2, num_extra=14, num_shifts=3, num_refits=3), windows=((2, 2), (2, 2))),
}
RUN_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]


class Q2_K(GridFormat):
    """weight = d * (scales[i] & 15) * q - dmin * (scales[i] >> 4), q in 0..3, i the sub-block of 16

    byte 0        16                 80  82    84
         +--------+------------------+---+------+
         | scales |  qs: 2 x 32      | d | dmin |
         +--------+------------------+---+------+

    Each half h of 128 weights is four runs of 32, q[h][r][j]:
        qs[h][j] = q[0][j] | q[1][j] << 2 | q[2][j] << 4 | q[3][j] << 6
    """

    name = "q2_k"
    gguf_type = 10
    gguf_file_type = 10  # MOSTLY_Q2_K
    fallback = "q4_0"
    block_size = 256
    block_bytes = 84
    largest_weight = Q2_K_SHAPE.scale_max * HALF_MAX

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        k = quantize_k_affine(blocks, importance, Q2_K_SHAPE, Q2_K_SEARCHES[effort])
        return _join(k.scales | k.minima << 4, k.q, np.concatenate([half_bytes(k.d), half_bytes(k.dmin)], axis=1))

    def read_grid(self, data: np.ndarray) -> Grid:
        scales = data[:, :16]
        scale = half_from_bytes(data[:, 80:82])[:, None] * (scales & 15).astype(np.float32)  # [B, 16]
        minimum = half_from_bytes(data[:, 82:])[:, None] * (scales >> 4).astype(np.float32)
        header = np.concatenate([scales, data[:, 80:]], axis=1)
        return Grid(np.repeat(scale, 16, axis=1), np.repeat(-minimum, 16, axis=1), 0, Q2_K_SHAPE.qmax, header)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        runs = data[:, 16:80].reshape(-1, 2, 1, 32) >> RUN_SHIFTS & 3  # [B, 2, 4, 32]
        return runs.reshape(-1, 256).view(np.int8)

    def pack_grid(self, grid: Grid, q: np.ndarray) -> np.ndarray:
        return _join(grid.header[:, :16], q.astype(np.uint8), grid.header[:, 16:])


def _join(scales: np.ndarray, q: np.ndarray, d_dmin: np.ndarray) -> np.ndarray:
    """scales [B, 16], q [B, ...] of 256 per block, d_dmin [B, 4], all uint8 -> [B, 84]"""
    qs = (q.reshape(-1, 2, 4, 32) << RUN_SHIFTS).sum(axis=2, dtype=np.uint8)  # [B, 2, 32]
    return np.concatenate([scales, qs.reshape(-1, 64), d_dmin], axis=1)


assert Q2_K.block_bytes == 16 + 256 * 2 // 8 + 2 + 2


class Q4_K(KScalesFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..15, i the sub-block of 32

    byte 0   2      4         16                       144
         +---+------+---------+------------------------+
         | d | dmin | scales  |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] | q[2c + 1][j] << 4
         +---+------+---------+------------------------+
    """

    name = "q4_k"
    gguf_type = 12
    gguf_file_type = 15  # MOSTLY_Q4_K_M
    fallback = "q5_0"
    block_bytes = 144
    qmax = 15

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return unpack_nibbles(data[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256).view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return pack_nibbles(q.astype(np.uint8).reshape(-1, 4, 64)).reshape(-1, 128)


assert Q4_K.block_bytes == 2 + 2 + 12 + 256 * 4 // 8


class Q5_K(KScalesFormat):
    """weight = d * scales[i] * q - dmin * minima[i], q in 0..31, i the sub-block of 32

    byte 0   2      4         16       48                       176
         +---+------+---------+--------+------------------------+   qh[j] bit i = q[i][j] >> 4
         | d | dmin | scales  | qh: 32 |  qs: 4 x 32 bytes      |   qs[c][j] = q[2c][j] & 15 | q[2c + 1][j] << 4
         +---+------+---------+--------+------------------------+
    """

    name = "q5_k"
    gguf_type = 13
    gguf_file_type = 17  # MOSTLY_Q5_K_M
    fallback = "q5_1"
    block_bytes = 176
    qmax = 31

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        low = unpack_nibbles(data[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
        high = np.unpackbits(data[:, None, 16:48], axis=1, bitorder="little")  # [B, 8, 32]
        return (low | high << 4).reshape(-1, 256).view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        q = q.astype(np.uint8)
        qh = np.packbits(q.reshape(-1, 8, 32) >> 4, axis=1, bitorder="little")[:, 0]  # [B, 32]
        qs = pack_nibbles((q & 15).reshape(-1, 4, 64)).reshape(-1, 128)
        return np.concatenate([qh, qs], axis=1)


assert Q5_K.block_bytes == 2 + 2 + 12 + 256 // 8 + 256 * 4 // 8
