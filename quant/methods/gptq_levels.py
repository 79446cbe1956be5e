"""Error feedback onto levels that are not evenly spaced, one column at a time."""

import numpy as np

from quant.linalg.error_feedback import CpuSolver, Feedback, Solver, TorchSolver


def solver_of_columns(solver: Solver) -> Solver:
    """A solver that rounds any number of columns after it was asked for more, which the C++ kernels do not."""
    return TorchSolver("cpu") if isinstance(solver, CpuSolver) else solver


def round_to_levels(feedback: Feedback, begin: int, end: int, scale: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Columns [begin, end) rounded to the nearest of scale * levels, with the feedback of all columns before each.

    A column takes a call of its own, whose grid is its rounded values: code 1 of a grid of step `value` is `value`.

    scale     [N, 1] or [N, columns] float32, above 0
    levels    [L] float32
    returns   index of the level, [N, columns] int8
    """
    order = np.argsort(levels, kind="stable")
    middles = (levels[order][1:] + levels[order][:-1]) / 2
    q = np.empty((len(scale), end - begin), dtype=np.int8)
    for column in range(end - begin):
        step = scale[:, min(column, scale.shape[1] - 1)]
        target = feedback.expect(begin + column + 1)[:, 0]
        code = order[np.searchsorted(middles, target / step)]
        value = np.ascontiguousarray(levels[code] * step, dtype=np.float32)[:, None]
        feedback.round(begin + column + 1, value, np.zeros_like(value), 1, 1)
        q[:, column] = code
    return q
