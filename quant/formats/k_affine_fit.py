"""Super-blocks of 256 weights in sub-blocks with small integer scales and minima: common code of Q2_K, Q4_K and Q5_K.

Scale and minimum of a sub-block are integers times the super-block's d and dmin, and rounding them costs more than
the best real ones save. So the search continues after that rounding: for each sub-block the integers around the first
guess are tried with their codes, and between the rounds d and dmin are fitted to their factors.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quant.formats.affine_fit import AffineFit, Trials, fit_affine, ordered_sum
from quant.formats.bits import HALF_MAX, inverse, to_half

SMALLEST_DETERMINANT = np.float32(1e-3)  # of aa * bb: below, d and dmin could replace each other


@dataclass(frozen=True, slots=True)
class KAffineSearch:
    """trials for the real scale and minimum; windows: rounds of how far (scales, minima) are tried around their best"""

    trials: Trials
    windows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KAffineShape:
    """Codes 0..qmax in sub-blocks of sub_size, whose scales and minima are integers 0..scale_max."""

    qmax: int
    sub_size: int
    scale_max: int

    @property
    def num_subs(self) -> int:
        return 256 // self.sub_size


class KAffine(NamedTuple):
    """weight = d * scales * q - dmin * minima"""

    d: np.ndarray  # [B] float32, exact in float16
    dmin: np.ndarray  # [B] float32, exact in float16
    scales: np.ndarray  # [B, J] uint8
    minima: np.ndarray  # [B, J] uint8
    q: np.ndarray  # [B, J, sub_size] uint8


def quantize_k_affine(
    blocks: np.ndarray, importance: np.ndarray | None, shape: KAffineShape, search: KAffineSearch
) -> KAffine:
    """Codes and their two levels of scales; weights beyond scale_max * 65504, where d and dmin end, saturate.

    blocks, importance   [B, 256] float32
    """
    limit = np.float32(shape.scale_max) * HALF_MAX
    x = _sub_blocks(np.clip(blocks, -limit, limit), shape)  # [n, J, B]
    w = np.ones_like(x) if importance is None else _sub_blocks(importance, shape)
    flat = (shape.sub_size, -1)
    fit = fit_affine(x.reshape(flat), w.reshape(flat), shape.qmax, search.trials, bounded=True)
    state = _State(x, w, shape)
    state.round_fit(AffineFit(*(value.reshape(x.shape[1:]) for value in fit)))
    state.refit()
    for window in search.windows:
        state.try_window(window)
        state.refit()
    return KAffine(
        state.d,
        state.dmin,
        state.scales.T.astype(np.uint8),
        state.minima.T.astype(np.uint8),
        state.codes(state.scales, state.minima).transpose(2, 1, 0).astype(np.uint8),
    )


def _sub_blocks(blocks: np.ndarray, shape: KAffineShape) -> np.ndarray:
    """[B, 256] -> [n, J, B]: sums over a sub-block become additions of long vectors"""
    return np.ascontiguousarray(blocks.reshape(-1, shape.num_subs, shape.sub_size).transpose(2, 1, 0))


class _State:
    """Super-blocks on their way: x, w [n, J, B]; scales, minima [J, B] float32 integers; d, dmin [B] float32."""

    def __init__(self, x: np.ndarray, w: np.ndarray, shape: KAffineShape) -> None:
        self.x, self.w = x, w
        self.qmax, self.scale_max = np.float32(shape.qmax), np.float32(shape.scale_max)

    def round_fit(self, fit: AffineFit) -> None:
        """d and dmin from the largest real scale and minimum; of the two integers next to a scale, with the minimum
        that suits each, those of less error under the codes of the fit."""
        self.d = to_half(fit.scale.max(axis=0) / self.scale_max + 0).astype(np.float32)
        minimum = np.maximum(-(fit.lowest + fit.offset), 0)
        self.dmin = to_half(minimum.max(axis=0) / self.scale_max + 0).astype(np.float32)
        exact = fit.scale * inverse(self.d)
        nearest = np.rint(np.minimum(exact, self.scale_max))
        second = np.clip(np.where(exact > nearest, nearest + 1, nearest - 1), 0, self.scale_max)
        first, other = self._with_minimum(fit, nearest), self._with_minimum(fit, second)
        better = other[2] < first[2]
        self.scales = np.where(better, second, nearest)
        self.minima = np.where(better, other[1], first[1])

    def _with_minimum(self, fit: AffineFit, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(scales, best minima, error less that of predicting `lowest`) [J, B] under the codes of the fit"""
        scale = self.d * scales
        wanted = (scale * fit.sum_q - fit.sum_wy) / fit.sum_w - fit.lowest
        minima = np.rint(np.clip(wanted * inverse(self.dmin), 0, self.scale_max))
        shift = self.dmin * minima + fit.lowest
        error = scale * (scale * fit.sum_qq - 2 * fit.sum_qy - 2 * shift * fit.sum_q)
        return scales, minima, error + shift * (2 * fit.sum_wy + shift * fit.sum_w)

    def codes(self, scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
        """Nearest codes [n, J, B] float32 under these scales and minima."""
        shifted = self.x + self.dmin * minima
        return np.rint(np.clip(shifted * inverse(self.d * scales), 0, self.qmax))

    def error(self, scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
        """Weighted squared error [J, B] of the nearest codes."""
        residual = self.d * scales * self.codes(scales, minima) - (self.x + self.dmin * minima)
        return ordered_sum(self.w * residual * residual)

    def try_window(self, window: tuple[int, int]) -> None:
        """The scales and minima of least error within `window` of the present ones."""
        start_scales, start_minima = self.scales, self.minima
        least = self.error(start_scales, start_minima)
        for i in range(-window[0], window[0] + 1):
            for j in range(-window[1], window[1] + 1):
                scales = np.clip(start_scales + np.float32(i), 0, self.scale_max)
                minima = np.clip(start_minima + np.float32(j), 0, self.scale_max)
                error = self.error(scales, minima)
                better = error < least
                least = np.where(better, error, least)
                self.scales = np.where(better, scales, self.scales)
                self.minima = np.where(better, minima, self.minima)

    def refit(self) -> None:
        """d and dmin of least squared error for scales, minima and codes as they are.

        x ~= d * a - dmin * b with a = scales * q, b = minima. If the two cannot be distinguished (no minima, say), d
        alone is fitted. They stay if the result is not positive.
        """
        q = self.codes(self.scales, self.minima)
        wq = self.w * q
        aa, ab, bb, ax, bx = (np.zeros_like(self.d) for _ in range(5))
        sums = (ordered_sum(terms) for terms in (self.w, self.w * self.x, wq, wq * q, wq * self.x))
        for scale, minimum, w, wx, wq1, wqq, wqx in zip(self.scales, self.minima, *sums, strict=True):
            aa = aa + scale * scale * wqq
            ab = ab + scale * minimum * wq1
            bb = bb + minimum * minimum * w
            ax = ax + scale * wqx
            bx = bx + minimum * wx
        both = aa * bb
        determinant = both - ab * ab
        unique = determinant > SMALLEST_DETERMINANT * both
        divisor = np.where(unique, determinant, 1)
        d, dmin = (ax * bb - bx * ab) / divisor, (ax * ab - bx * aa) / divisor
        unique = unique & (d > 0) & (dmin > 0)
        alone = (ax + self.dmin * ab) / np.where(aa > 0, aa, 1)
        d = np.where(unique, d, np.where(alone > 0, alone, self.d))
        self.d = to_half(d).astype(np.float32)
        self.dmin = to_half(np.where(unique, dmin, self.dmin)).astype(np.float32)
