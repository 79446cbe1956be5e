"""GPTQ as its paper writes it: the slow, obvious loop that the fast one is compared with."""

import numpy as np

from quant.methods.gptq_grids import Grids
from quant.methods.gptq_order import ColumnOrder


def gptq_ref(weight: np.ndarray, hessian: np.ndarray, order: ColumnOrder, grids: Grids, static: bool) -> np.ndarray:
    """Codes of every weight, with the grids fitted on the way (`static`: beforehand, to the weights as they are).

    weight   [N, K] float32
    hessian  [K, K], damped, positive definite
    returns  q [N, K] int8
    source   arXiv 2210.17323, algorithm 1 with a block of one column, in float64
    """
    columns = order.columns
    inverse = np.linalg.inv(hessian[np.ix_(columns, columns)].astype(np.float64))
    upper = np.linalg.cholesky(inverse).T  # U^T U = H^-1
    cost = np.empty(len(columns), dtype=np.float32)
    cost[columns] = 1 / np.square(upper.diagonal())
    w = weight.astype(np.float64)  # [N, K], in the order of the input features
    q = np.empty(w.shape, dtype=np.int8)
    scale, offset = np.empty_like(w), np.empty_like(w)
    fitted: set[int] = set()
    for c, k in enumerate(columns):
        group = int(order.group[k])
        if group not in fitted:
            fitted.add(group)
            # Act-order's groups keep the order of rounding, all others that of the input features.
            in_order = columns if order.g_idx is not None else np.arange(len(columns))
            members = in_order[order.group[in_order] == group]
            values = weight[:, members] if static else w[:, members].astype(np.float32)
            scale[:, members], offset[:, members] = grids.fit(group, np.ascontiguousarray(values), cost[members])
        q[:, k] = np.clip(np.rint((w[:, k] - offset[:, k]) / scale[:, k]), grids.qmin, grids.qmax)
        error = (w[:, k] - (scale[:, k] * q[:, k] + offset[:, k])) / upper[c, c]
        w[:, columns[c + 1 :]] -= error[:, None] * upper[c, c + 1 :]
    return q
