"""Code around the loop of every product of weights [N, K], in Triton: the tile, its parts, its store.

With 16-bit activations the tile is [BLOCK_N, BLOCK_M]: the weights are the left operand, which a tensor core takes from
registers, so that dequantized values never pass through shared memory.
"""

import triton
import triton.language as tl


@triton.jit
def tile_of(i_tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """(i_n, i_m): tiles go down GROUP_N tile rows before the next tokens, and so share weights and tokens in the L2."""
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_N * num_m
    i_group_n = i_tile // group_size * GROUP_N
    rows = tl.minimum(num_n - i_group_n, GROUP_N)  # the last group may have fewer tile rows
    return i_group_n + i_tile % group_size % rows, i_tile % group_size // rows


@triton.jit
def store_tile(b_acc, bias_ptr, y_ptr, o_n, o_m, N, M, stride_ym):
    """y[m, n] = acc[n, m] + bias[n], rounded to y's type; rows of y are contiguous."""
    m_n = o_n < N
    if bias_ptr is not None:
        b_acc += tl.load(bias_ptr + o_n, mask=m_n, other=0.0).to(tl.float32)[:, None]
    p_y = y_ptr + o_m[None, :] * stride_ym + o_n[:, None]
    tl.store(p_y, b_acc.to(y_ptr.dtype.element_ty), mask=m_n[:, None] & (o_m < M)[None, :])


@triton.jit
def leave_part(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, i_split, NUM_SPLITS: tl.constexpr):
    """How many programs came to the tile before this one, which leaves its part of the sum in the workspace."""
    p_part = _parts(b_acc, partial_ptr, i_tile, NUM_SPLITS)
    tl.store(p_part + i_split * (b_acc.shape[0] * b_acc.shape[1]), b_acc, mask=m_tile)
    tl.debug_barrier()  # all warps have stored before one thread says so, releasing earlier writes
    return tl.atomic_add(arrived_ptr + i_tile, 1, sem="acq_rel")


@triton.jit
def sum_of_parts(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, NUM_SPLITS: tl.constexpr):
    """The tile's sum of all programs' parts, in the order of the features; for the last to arrive."""
    p_part = _parts(b_acc, partial_ptr, i_tile, NUM_SPLITS)
    b_sum = tl.zeros_like(b_acc)
    for i_part in range(NUM_SPLITS):
        # .cg: from the L2, where the others' stores are; this multiprocessor's L1 may hold an older line.
        p_one = p_part + i_part * (b_acc.shape[0] * b_acc.shape[1])
        b_sum += tl.load(p_one, mask=m_tile, other=0, cache_modifier=".cg")
    tl.store(arrived_ptr + i_tile, 0)
    return b_sum


@triton.jit
def _parts(b_acc, partial_ptr, i_tile, NUM_SPLITS: tl.constexpr):
    """Where the first program of a tile leaves its part: pointers of b_acc's shape."""
    ROWS: tl.constexpr = b_acc.shape[0]
    COLUMNS: tl.constexpr = b_acc.shape[1]
    o_part = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return partial_ptr + i_tile.to(tl.int64) * (NUM_SPLITS * ROWS * COLUMNS) + o_part


@triton.jit
def store_or_split(
    b_acc,
    bias_ptr,
    y_ptr,
    partial_ptr,
    arrived_ptr,
    o_n,
    o_m,
    N,
    M,
    stride_ym,
    i_tile,
    i_split,
    NUM_SPLITS: tl.constexpr,
):
    """Stores the tile if this program has all of its sum; otherwise leaves its part, and the last to arrive stores."""
    if NUM_SPLITS == 1:
        store_tile(b_acc, bias_ptr, y_ptr, o_n, o_m, N, M, stride_ym)
    else:
        m_tile = (o_m < M)[None, :] & (o_n < N)[:, None]
        if leave_part(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, i_split, NUM_SPLITS) == NUM_SPLITS - 1:
            b_sum = sum_of_parts(b_acc, partial_ptr, arrived_ptr, m_tile, i_tile, NUM_SPLITS)
            store_tile(b_sum, bias_ptr, y_ptr, o_n, o_m, N, M, stride_ym)
