"""Least squares of a scale and an offset for short runs of weights: the search inside the affine formats.

Sums run over the weights of a run in their order, one float32 addition at a time: a lane of the C++ twin
(cpu_kernels/csrc/encode/affine/fit.inl) does the same and comes to the same bits.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quant.formats.bits import inverse

UNBOUNDED = np.float32(3e38)  # an offset that no fit reaches
# Codes that hardly vary leave scale and offset to rounding errors: 32 float32 additions are good to about 2e-6 of
# sum_w * sum_qq, and codes that differ in a single one of 32 weights still pass.
SMALLEST_DETERMINANT = np.float32(1e-5)
SMALLEST_SPAN = np.float32(2.0**-60)  # far below float16 scales' resolution, far above overflow
SMALLEST_SQUARES = np.float32(1e-30)  # below any sum of squared codes that is not 0


@dataclass(frozen=True, slots=True)
class Trials:
    """First guesses of the codes: y * (qmax + extra) / span + shift, y counted from the lowest weight.

    extra   below 0 the highest code stays unused, above 0 the extremes are clipped in favour of a finer step:
            first_extra, and so on by extra_step, num_extra of them
    shift   0, -1/2 and so on, num_shifts of them: how many codes the lowest weight is clipped by
    refits  rounds of: codes of the best scale and offset so far, then the best scale and offset of those codes
    """

    first_extra: float
    extra_step: float
    num_extra: int
    num_shifts: int
    num_refits: int


class AffineFit(NamedTuple):
    """x - lowest ~= scale * q + offset: the best one found, and the sums of its codes. All [S] float32."""

    lowest: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    sum_w: np.ndarray
    sum_wy: np.ndarray
    sum_q: np.ndarray  # of w * q
    sum_qq: np.ndarray  # of w * q * q
    sum_qy: np.ndarray  # of w * q * y


def ordered_sum(terms: np.ndarray) -> np.ndarray:
    """Sum over the first axis, in order; np.sum may add in pairs."""
    total = np.zeros(terms.shape[1:], dtype=np.float32)
    for term in terms:
        total = total + term
    return total


def fit_affine(x: np.ndarray, w: np.ndarray, qmax: int, trials: Trials, *, bounded: bool) -> AffineFit:
    """Scale and offset of x - lowest ~= scale * q + offset, q in 0..qmax, of the least squared error found.

    x         [n, S] float32, a run of n weights per column
    w         [n, S] float32 > 0, their importance
    bounded   the grid begins at 0 or below (lowest + offset <= 0), as formats with an unsigned minimum need it
    """
    lowest = x.min(axis=0)
    if bounded:
        lowest = np.minimum(lowest, 0)
    search = _Search(x - lowest, w, qmax, -lowest if bounded else np.full_like(lowest, UNBOUNDED))
    per_span = _inverse(x.max(axis=0) - lowest)
    for i in range(trials.num_extra):
        factor = np.float32(qmax + (trials.first_extra + i * trials.extra_step)) * per_span
        for j in range(trials.num_shifts):
            search.consider(search.y * factor - np.float32(0.5 * j))
    for _ in range(trials.num_refits):
        search.consider((search.y - search.offset) * _inverse(search.scale))
    return AffineFit(lowest, search.scale, search.offset, search.sum_w, search.sum_wy, *search.sums)


def _inverse(span: np.ndarray) -> np.ndarray:
    return np.where(span >= SMALLEST_SPAN, inverse(span), np.float32(0))


class _Search:
    """The best (scale, offset) so far for y ~= scale * q + offset, y = x - lowest >= 0.

    y, w   [n, S] float32; all else [S] float32
    gain   weighted squared error of predicting 0, less that of the fit
    """

    def __init__(self, y: np.ndarray, w: np.ndarray, qmax: int, max_offset: np.ndarray) -> None:
        self.y, self.w = y, w
        self.qmax = np.float32(qmax)
        self.max_offset = max_offset
        self.sum_w, self.sum_wy = ordered_sum(w), ordered_sum(w * y)
        zero = np.zeros_like(max_offset)
        self.scale, self.offset, self.sums = zero, zero, (zero, zero, zero)
        self.gain = np.full_like(zero, -1)

    def consider(self, guess: np.ndarray) -> None:
        """Round these guesses to codes, fit them, and keep the fit if it is the best so far."""
        q = np.rint(np.clip(guess, 0, self.qmax))
        wq = self.w * q
        sum_q, sum_qq, sum_qy = ordered_sum(wq), ordered_sum(wq * q), ordered_sum(wq * self.y)

        # Normal equations; the determinant is 0 if all codes are equal.
        both = self.sum_w * sum_qq
        determinant = both - sum_q * sum_q
        free = determinant > SMALLEST_DETERMINANT * both
        divisor = np.where(free, determinant, 1)
        scale = (self.sum_w * sum_qy - self.sum_wy * sum_q) / divisor
        offset = (sum_qq * self.sum_wy - sum_q * sum_qy) / divisor
        offset = np.where(free, np.minimum(offset, self.max_offset), 0)
        alone = (sum_qy - offset * sum_q) / np.maximum(sum_qq, SMALLEST_SQUARES)
        scale = np.maximum(np.where(free & (offset < self.max_offset), scale, alone), 0)

        slope = 2 * sum_qy - scale * sum_qq - 2 * offset * sum_q
        gain = scale * slope + offset * (2 * self.sum_wy - self.sum_w * offset)
        better = gain > self.gain
        self.gain = np.where(better, gain, self.gain)
        self.scale = np.where(better, scale, self.scale)
        self.offset = np.where(better, offset, self.offset)
        new = (sum_q, sum_qq, sum_qy)
        self.sums = tuple(np.where(better, ours, old) for ours, old in zip(new, self.sums, strict=True))
