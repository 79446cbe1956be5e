"""Clipping: a smaller range for each group of weights, where a finer step is worth more than the ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from quant.formats import IntGroupFormat
from quant.late import LateModule
from quant.present import present
from quant.qtensor import QTensor
from quant.workers import workers

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LateModule("torch")

RATIOS = tuple(float(ratio) for ratio in np.linspace(1, 0.55, 10, dtype=np.float32))  # of the range; 1 is no clipping
CHUNK_WEIGHTS = 1 << 20  # weights of a task: a few arrays of them in float32 at a time


def quantize_clipped(fmt: IntGroupFormat, weight: np.ndarray, x: np.ndarray) -> QTensor:
    """Each group on the grid over that part of its range which gives its share of the output the least error.

    weight   [N, K] float32
    x        [S, K] float32, inputs
    """
    fmt.check_shape(weight.shape)
    num_rows, row_size = weight.shape
    step = max(1, CHUNK_WEIGHTS // row_size)
    num_groups = fmt.num_groups(row_size)
    group_error = error_of_groups(x, num_groups)
    with workers(torch.get_num_threads()) as pool:
        chunks = [
            weight[start : start + step].reshape(-1, num_groups, row_size // num_groups)
            for start in range(0, num_rows, step)
        ]
        fitted = list(pool.map(lambda groups: fit_clipped(fmt, groups, group_error), chunks))
    q, scale, zero_point = (np.concatenate(parts) for parts in zip(*fitted, strict=True))
    return fmt.pack(q.reshape(num_rows, row_size), scale, zero_point)


def fit_clipped(
    fmt: IntGroupFormat, groups: np.ndarray, group_error: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """groups [n, G, g] float32 -> q [n, G, g] int8, scale [n, G] float16, zero_point [n, G] int8"""
    best: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None
    for ratio in RATIOS:
        scale, zero_point = fmt.fit(groups * np.float32(ratio))
        step, zero = scale.astype(np.float32)[:, :, None], zero_point.astype(np.float32)[:, :, None]
        q = np.clip(np.rint(groups / step) + zero, fmt.qmin, fmt.qmax)
        error = group_error(step * (q - zero) - groups)  # [n, G]
        found = q.astype(np.int8), scale, zero_point, error
        if best is None:
            best = found
        else:
            better = error < best[3]
            best = (
                np.where(better[..., None], found[0], best[0]),
                np.where(better, found[1], best[1]),
                np.where(better, found[2], best[2]),
                np.where(better, found[3], best[3]),
            )
    return present(best)[:3]


def error_of_groups(x: np.ndarray, num_groups: int) -> Callable[[np.ndarray], np.ndarray]:
    """The function from weight errors [n, G, g] to each group's part of the outputs' squared error [n, G].

    x   [S, K] float32; the sums run over its rows, directly or through X^T X, whichever is smaller
    """
    by_group = torch.from_numpy(x).unflatten(1, (num_groups, -1)).transpose(0, 1)  # [G, S, g]
    num_samples, group_size = by_group.shape[1:]
    if group_size > num_samples:
        factors = by_group.transpose(1, 2).contiguous()  # [G, g, S]
        return lambda error: _by_group(error, lambda e: torch.bmm(e, factors).square().sum(-1))
    hessian = torch.bmm(by_group.transpose(1, 2), by_group)  # [G, g, g]
    return lambda error: _by_group(error, lambda e: (torch.bmm(e, hessian) * e).sum(-1))


def _by_group(error: np.ndarray, sums: Callable[[Tensor], Tensor]) -> np.ndarray:
    """error [n, G, g] -> sums of [G, n, g] as [n, G]"""
    return sums(torch.from_numpy(error).transpose(0, 1)).T.numpy()
