"""The codes of a quantized tensor, and the order in which its columns share scales."""

import numpy as np

from quant.formats import Codes, get_format
from quant.qtensor import QTensor


def read_codes(qtensor: QTensor) -> Codes | None:
    """The codes of a matrix; None for formats of plain floats."""
    return get_format(qtensor.format).weight_codes(qtensor)


def group_columns(qtensor: QTensor) -> tuple[np.ndarray | None, int]:
    """(order of the columns in which groups are contiguous, None for their own; weights in a group)

    A group has a stored scale of its own: a block, a group of input features, or a row.
    """
    fmt, row_size = get_format(qtensor.format), qtensor.shape[-1]
    g_idx = qtensor.shared.get("g_idx")
    order = None if g_idx is None else np.argsort(g_idx, kind="stable")
    return order, fmt.block_size if fmt.block_size > 1 else row_size
