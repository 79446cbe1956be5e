"""One launch of the routed experts, of 4- and 8-bit weights; split and launches are in grouped_moe_gemm_triton.py.

The weights are the left operand, [BLOCK_N, BLOCK_M], as in weight_only_gemm_triton.py. Half of launch 1's rows are
gate's and half the same of up: one product makes both, whose halves are parted when the sums are done.
"""

import triton
import triton.language as tl

from gpu_kernels.gemm.words_product_triton import words_product


@triton.jit
def grouped_words_kernel(
    # pointers
    x_ptr,  # tokens, or a row for each pair; of down rows of hidden
    codes_ptr,
    scale_ptr,
    zero_point_ptr,
    order_ptr,
    routing_ptr,  # of down alone
    out_ptr,  # hidden; of down the shares
    pairs_ptr,
    experts_ptr,
    # sizes
    num_pairs,
    num_experts,
    top,
    N,
    K,
    num_blocks,
    num_groups,
    # strides, in elements
    stride_xm,
    stride_xk,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_PLANES: tl.constexpr,
    BITS: tl.constexpr,
    HAS_ROWS: tl.constexpr,  # x has a row for each pair
    IS_GATED: tl.constexpr,  # N rows of gate, then N rows of up
    EVEN_K: tl.constexpr,
    COMPILED: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    TILE_N: tl.constexpr = BLOCK_N // 2 if IS_GATED else BLOCK_N
    num_rows = 2 * N if IS_GATED else N
    o_pair = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    b_pair = tl.load(pairs_ptr + o_pair)  # [BLOCK_M]
    m_m = (b_pair < num_pairs)[None, :]
    i_row = o_pair if HAS_ROWS else (b_pair // top).to(tl.int64)
    o_tile = tl.arange(0, BLOCK_N)
    o_row = tl.minimum(i_n * TILE_N + o_tile % TILE_N, N - 1) + o_tile // TILE_N * N  # with up's rows after gate's
    p_codes = codes_ptr + i_expert * num_blocks * num_rows * 32
    p_scale = scale_ptr + i_expert * num_groups * num_rows
    p_zero = zero_point_ptr  # not by a function: in Triton 3.6 a tuple with None cannot be returned
    if zero_point_ptr is not None:
        p_zero += i_expert * num_groups * num_rows
    p_order = order_ptr
    if order_ptr is not None:
        p_order += i_expert * K
    b_acc = words_product(
        x_ptr + i_row[None, :] * stride_xm, p_codes, p_scale, p_zero, p_order, m_m, o_row, tl.zeros((), tl.int64),
        num_blocks, num_rows, K, num_groups, stride_xk, BLOCK_M, BLOCK_N, GROUP_PLANES, BITS, EVEN_K, COMPILED,
    )  # fmt: skip
    o_n = i_n * TILE_N + tl.arange(0, TILE_N)
    if IS_GATED:
        b_gate, b_up = tl.split(
            tl.permute(tl.reshape(b_acc, (2, TILE_N, BLOCK_M)), (1, 2, 0))
        )  # [TILE_N, BLOCK_M] each
        b_acc = b_gate / (1.0 + tl.exp(-b_gate)) * b_up
        p_out = out_ptr + o_pair[None, :] * N + o_n[:, None]
    else:
        b_acc *= tl.load(routing_ptr + b_pair[None, :], mask=m_m, other=0.0)
        p_out = out_ptr + b_pair.to(tl.int64)[None, :] * N + o_n[:, None]
    tl.store(p_out, b_acc.to(out_ptr.dtype.element_ty), mask=m_m & (o_n < N)[:, None])
