"""Least squares of one scale for short runs of weights: the search inside Q6_K."""

import numpy as np

from quant.formats.half import inverse

# Code that the largest magnitude is given, relative to -half_range: above 0 the top codes stay unused, below 0 the
# extreme is clipped in favour of a finer step. Half steps to +-2 are within 1.6 % of the RMSE of a dense grid to +-3.
TRIAL_STEPS = (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)


def fit_scale(x: np.ndarray, half_range: int) -> np.ndarray:
    """Scale of x ~= scale * q, q in -half_range..half_range - 1, with the least squared error found.

    The sign is free: the weight of largest magnitude lies on the longer, negative side of the codes.

    x        [S, n] float32
    returns  scale [S] float32
    """
    x = np.ascontiguousarray(x.T)  # [n, S]: sums over a run become additions of long vectors
    highest, lowest = x.max(axis=0), x.min(axis=0)
    extreme = np.where(highest > -lowest, highest, lowest)
    per_extreme = inverse(extreme)
    best_scale, best_gain = np.zeros_like(extreme), np.zeros_like(extreme)
    for step in TRIAL_STEPS:
        q = np.rint(x * (np.float32(step - half_range) * per_extreme))
        np.clip(q, -half_range, half_range - 1, out=q)
        sum_qq, sum_qx = (q * q).sum(axis=0), (q * x).sum(axis=0)
        scale = sum_qx / np.maximum(sum_qq, 1)
        gain = scale * sum_qx  # squared error of predicting 0, less that of the fit
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scale = np.where(better, scale, best_scale)
    return best_scale
