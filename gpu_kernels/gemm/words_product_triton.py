"""Weights in words times 16-bit activations, for one tile: the loop that the products of such weights share.

A block of features is one load of 32 words per row; a plane of 32 features at a time becomes floats in registers and
meets its activations in the tensor cores. Each group's sum is scaled in float32.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about iteration over tl.range, literals that are declared
# constexpr and names bound under a constexpr condition.
# pyright: reportGeneralTypeIssues=false, reportAssignmentType=false, reportPossiblyUnboundVariable=false
import triton
import triton.language as tl

from gpu_kernels.gemm.words_triton import code_offset, codes


@triton.jit
def words_product(
    # pointers; p_x [1, BLOCK_M] of each token's first feature
    p_x,
    codes_ptr,
    scale_ptr,
    zero_point_ptr,
    order_ptr,
    # which: tokens that are there [1, BLOCK_M], rows of the weights [BLOCK_N] int64, blocks of features [first, last)
    m_m,
    o_row,
    first,
    last,
    # sizes
    N,
    K,
    num_groups,
    # strides, in elements
    stride_xk,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_PLANES: tl.constexpr,  # planes of 32 features in a group; 0: one group per channel
    BITS: tl.constexpr,
    EVEN_K: tl.constexpr,
    COMPILED: tl.constexpr,
):
    """[BLOCK_N, BLOCK_M] float32: the rows times the tokens. Features past K meet activations of 0."""
    OFFSET: tl.constexpr = code_offset(p_x.dtype.element_ty, BITS)
    PLANES: tl.constexpr = 16 // BITS
    BLOCK_K: tl.constexpr = 32 * PLANES
    o_k = tl.arange(0, 32).to(tl.int64)
    p_w = codes_ptr + first * N * 32 + o_row[:, None] * 32 + o_k[None, :]
    step = tl.full((), 32, tl.int64) * N
    if GROUP_PLANES == 0:
        b_zero = zero_of(zero_point_ptr, o_row, p_x, OFFSET, BLOCK_N)  # [BLOCK_N]

    b_acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    b_sum = b_acc
    for i_block in range(first, last):
        b_w = tl.load(p_w)  # [BLOCK_N, 32]
        for i_plane in tl.static_range(PLANES):
            o_feature = i_block * BLOCK_K + i_plane * 32 + o_k
            m_x = m_m if EVEN_K else m_m & (o_feature < K)[:, None]
            o_place = o_feature
            if order_ptr is not None:
                o_place = tl.load(order_ptr + o_feature, mask=o_feature < K, other=0).to(tl.int64)
            b_x = tl.load(p_x + o_place[:, None] * stride_xk, mask=m_x, other=0.0)  # [32, BLOCK_M]
            b_q = codes(b_w, p_x, BITS, i_plane, COMPILED)  # [BLOCK_N, 32]
            if GROUP_PLANES == 0:
                b_acc = tl.dot(b_q - b_zero[:, None], b_x, b_acc)
            else:
                if i_plane % GROUP_PLANES == 0:
                    # Past K there are no groups, and activations of 0: the last group's numbers do for those.
                    i_group = tl.minimum((i_block * PLANES + i_plane) // GROUP_PLANES, num_groups - 1)
                    b_zero = zero_of(zero_point_ptr, i_group * N + o_row, p_x, OFFSET, BLOCK_N)  # [BLOCK_N]
                    b_scale = tl.load(scale_ptr + i_group * N + o_row).to(tl.float32)  # [BLOCK_N]
                    b_sum = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
                b_sum = tl.dot(b_q - b_zero[:, None], b_x, b_sum)
                if i_plane % GROUP_PLANES == GROUP_PLANES - 1:
                    b_acc += b_sum * b_scale[:, None]
        p_w += step

    if GROUP_PLANES == 0:
        b_acc *= tl.load(scale_ptr + o_row).to(tl.float32)[:, None]
    return b_acc


@triton.jit
def zero_of(zero_point_ptr, o_zero, like_ptr, OFFSET: tl.constexpr, BLOCK_N: tl.constexpr):
    """[BLOCK_N] in the type like_ptr points to: the zero points as codes() would give them."""
    dtype = like_ptr.dtype.element_ty
    if zero_point_ptr is None:
        b_zero = tl.full((BLOCK_N,), OFFSET, dtype)
    else:
        b_zero = (tl.load(zero_point_ptr + o_zero).to(tl.float32) + OFFSET).to(dtype)
    return b_zero
