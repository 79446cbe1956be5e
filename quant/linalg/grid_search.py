"""The best of several grids for each row: by the C++ kernel, or by NumPy if it is not built."""

import numpy as np

from quant.extension import import_kernels


def search_grid_ref(
    values: np.ndarray, cost: np.ndarray, scale: np.ndarray, lowest: np.ndarray, steps: int
) -> np.ndarray:
    """Which of several grids has the least sum of cost * error^2 for each row, the first where several have it.

    values         [N, columns] float32
    cost           [columns] float32
    scale, lowest  [trials, N] float32: the grid is scale * n, scale above 0, n whole in lowest..lowest + steps
    returns        [N] int64, the trial
    """
    errors = []
    for step, first in zip(scale[:, :, None], lowest[:, :, None], strict=True):
        nearest = step * np.clip(np.rint(values / step), first, first + np.float32(steps))
        errors.append(np.square(values - nearest) @ cost)
    return np.argmin(errors, axis=0)


_kernels = import_kernels("cpu_kernels.gptq")
search_grid = search_grid_ref if _kernels is None else _kernels.gptq_search_grid
