"""An importance row as the searches want it: one factor a weight of a block, the largest of each block 1."""

import numpy as np

from quant.errors import InputError

# A feature that was never active still counts a little, or its weights would be left to chance; 2**-20 of the most
# important of its block is far below any effect on the codes of its neighbours.
SMALLEST = np.float32(2.0**-20)


def importance_blocks(importance: np.ndarray, row_size: int, block_size: int) -> np.ndarray:
    """Importance of each weight of each block of a row, relative to the largest of that block.

    A common factor changes no choice inside a block, and so the sums of a search stay within float32.

    importance   [K] float >= 0, K = row_size
    returns      [K // block_size, block_size] float32 in [2**-20, 1]
    raises       InputError for another number of features, NaN, inf or a negative value
    """
    if importance.shape != (row_size,):
        raise InputError(
            f"importance: got shape {importance.shape}, expected ({row_size},), one value an input feature"
        )
    blocks = importance.astype(np.float64).reshape(-1, block_size)
    if not np.isfinite(blocks).all() or (blocks < 0).any():
        raise InputError("importance: got a NaN, inf or negative value, expected mean squares; calibrate again")
    largest = blocks.max(axis=1, keepdims=True)
    relative = np.where(largest > 0, blocks / np.where(largest > 0, largest, 1), 1)
    return np.maximum(relative.astype(np.float32), SMALLEST)
