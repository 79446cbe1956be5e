"""What every product of weights [N, K] with 16-bit activations does around its loop, in Triton.

The tile is [BLOCK_N, BLOCK_M]: the weights are the left operand, which a tensor core takes from registers, so that
dequantized values never pass through shared memory.
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    """Stores the tile if this program has all of its sum; otherwise leaves its part, and the last to arrive stores."""
    if NUM_SPLITS == 1:
        store_tile(b_acc, bias_ptr, y_ptr, o_n, o_m, N, M, stride_ym)
    else:
        o_part = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        p_part = partial_ptr + i_tile.to(tl.int64) * (NUM_SPLITS * BLOCK_N * BLOCK_M) + o_part
        m_part = (o_m < M)[None, :] & (o_n < N)[:, None]
        tl.store(p_part + i_split * (BLOCK_N * BLOCK_M), b_acc, mask=m_part)
        tl.debug_barrier()  # all warps have stored before one thread says so, releasing what it has seen
        if tl.atomic_add(arrived_ptr + i_tile, 1, sem="acq_rel") == NUM_SPLITS - 1:
            b_sum = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
            for i_part in range(NUM_SPLITS):
                # .cg: from the L2, where the others' stores are; this multiprocessor's L1 may hold an older line.
                b_sum += tl.load(p_part + i_part * (BLOCK_N * BLOCK_M), mask=m_part, other=0.0, cache_modifier=".cg")
            tl.store(arrived_ptr + i_tile, 0)
            store_tile(b_sum, bias_ptr, y_ptr, o_n, o_m, N, M, stride_ym)
