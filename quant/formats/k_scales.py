"""Common code of Q4_K and Q5_K: d, dmin, and 12 bytes that keep 8 scales and 8 minima of 6 bits.

Letters A..H are the eight scales, a..h the eight minima; a letter is one bit, high bits left.

    byte 0 1 2 3    EEAAAAAA FFBBBBBB GGCCCCCC HHDDDDDD    scales 0..3, above them the top bits of scales 4..7
    byte 4 5 6 7    eeaaaaaa ffbbbbbb ggcccccc hhdddddd    minima 0..3, above them the top bits of minima 4..7
    byte 8 9 10 11  eeeeEEEE ffffFFFF ggggGGGG hhhhHHHH    low nibbles of minima 4..7 and scales 4..7
"""

from typing import ClassVar

import numpy as np

from quant.formats.affine_fit import Trials
from quant.formats.grid import CodesLastFormat, Grid
from quant.formats.half import HALF_MAX, half_bytes, half_from_bytes
from quant.formats.k_affine import KAffineSearch, KAffineShape, quantize_k_affine

# RMSE on Gaussian weights in Q4_K compared with that of "fast": without a window 0.8 % more, "best" 1.0 % less; without
# shifts 0.7 % more, and 1.8 % more weighted error if importance is lognormal.
TRIALS = Trials(first_extra=-3.0, extra_step=1.0, num_extra=8, num_shifts=3, num_refits=2)
SEARCHES = {
    "fast": KAffineSearch(TRIALS, windows=((1, 1),)),
    "best": KAffineSearch(TRIALS, windows=((4, 8), (2, 4))),
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
            blocks, importance, KAffineShape(self.qmax, sub_size=32, scale_max=SCALE_MAX), SEARCHES[effort]
        )
        header = [half_bytes(k.d), half_bytes(k.dmin), pack_k_scales(k.scales, k.minima)]
        return np.concatenate([*header, self.pack_codes(k.q.reshape(-1, 256))], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        header = data[:, :16]
        scales, minima = unpack_k_scales(header[:, 4:])
        scale = half_from_bytes(header[:, :2])[:, None] * scales.astype(np.float32)  # [B, 8]
        minimum = half_from_bytes(header[:, 2:4])[:, None] * minima.astype(np.float32)
        return Grid(np.repeat(scale, 32, axis=1), np.repeat(-minimum, 32, axis=1), 0, self.qmax, header)
