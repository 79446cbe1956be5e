"""Q4_1 and Q5_1: blocks of 32 codes with a float16 scale and minimum."""

from typing import ClassVar

import numpy as np

from quant.formats.affine_fit import Trials, fit_affine
from quant.formats.bits import FIVE_BITS, HALF_MAX, NIBBLES, Packing, half_bytes, half_from_bytes, inverse, to_half
from quant.formats.grid import CodesLastFormat, Grid

TRIALS = {
    "fast": Trials(first_extra=-3.0, extra_step=1.0, num_extra=8, num_shifts=3, num_refits=2),
    "best": Trials(first_extra=-3.0, extra_step=0.5, num_extra=15, num_shifts=5, num_refits=4),
}


class HalfAffineFormat(CodesLastFormat):
    """weight = d * q + m, q in 0..qmax, the largest code that `packing` holds

    byte 0   2   4
         +---+---+-------------+
         | d | m |  codes      |
         +---+---+-------------+
    """

    block_size = 32
    largest_weight = HALF_MAX
    packing: ClassVar[Packing]

    @property
    def qmax(self) -> int:
        return 2**self.packing.bits - 1

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        d, m, q = _quantize(blocks, importance, effort, self.qmax)
        return np.concatenate([half_bytes(d), half_bytes(m), self.pack_codes(q)], axis=1)

    def read_grid(self, data: np.ndarray) -> Grid:
        d, m = half_from_bytes(data[:, :2]), half_from_bytes(data[:, 2:4])
        scale, offset = (np.repeat(value[:, None], self.block_size, axis=1) for value in (d, m))
        return Grid(scale, offset, 0, self.qmax, data[:, :4])

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return self.packing.unpack(data[:, 4:]).view(np.int8)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return self.packing.pack(q.astype(np.uint8))


def _quantize(
    blocks: np.ndarray, importance: np.ndarray | None, effort: str, qmax: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, minimum and codes: searched for, or ggml's rounding if there is neither importance nor time.

    blocks, importance   [B, 32] float32; weights beyond +-65504, where float16 d and m end, saturate
    returns              d, m [B] float16; q [B, 32] uint8 in 0..qmax
    """
    x = np.ascontiguousarray(np.clip(blocks, -HALF_MAX, HALF_MAX).T)  # [32, B]
    if importance is None and effort == "fast":
        return _min_max(x, qmax)
    w = np.ones_like(x) if importance is None else np.ascontiguousarray(importance.T)
    return _least_squares(x, w, qmax, TRIALS[effort])


def _min_max(x: np.ndarray, qmax: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The grid from the lowest weight to the highest, and the nearest codes: the bytes of ggml's reference."""
    m = x.min(axis=0)
    d = (x.max(axis=0) - m) / np.float32(qmax)
    # Codes come from the unrounded d and m, and the cast truncates: + 0.5 made it a rounding.
    scaled = (x - m) * inverse(d) + np.float32(0.5)
    return to_half(d + 0), to_half(m + 0), np.clip(scaled, 0, qmax).astype(np.uint8).T  # + 0: -0.0 is stored as 0.0


def _least_squares(
    x: np.ndarray, w: np.ndarray, qmax: int, trials: Trials
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fit of least error; m is fitted again to the d that float16 holds, and the codes to both."""
    fit = fit_affine(x, w, qmax, trials, bounded=False)
    d = to_half(fit.scale + 0)
    stored_d = d.astype(np.float32)
    m = to_half((fit.sum_wy - stored_d * fit.sum_q) / fit.sum_w + fit.lowest + 0)
    q = np.rint(np.clip((x - m.astype(np.float32)) * inverse(stored_d), 0, qmax))
    return d, m, q.astype(np.uint8).T


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
