"""How kernels that hold whole rows in registers split their work."""

import triton

# 16 features a thread: two 16-byte loads of bfloat16 from each input are in flight.
FEATURES_PER_THREAD = 16
MIN_BLOCK = 16
MIN_FEATURES = 2048  # a program of fewer is launched in more time than it runs: short rows share one


def row_blocks(num_features: int, per_thread: int = FEATURES_PER_THREAD) -> tuple[int, int, int]:
    """(rows per program, block of features, warps) for rows of so many features, 32,768 at most.

    Longer rows than 16,384 have 32 features in each of 1,024 threads, which leaves 64 registers: enough for two rows.
    """
    block = max(MIN_BLOCK, triton.next_power_of_2(num_features))
    rows = max(1, MIN_FEATURES // block)
    warps = rows * block // (32 * per_thread)
    return rows, block, min(32, max(4, warps))
