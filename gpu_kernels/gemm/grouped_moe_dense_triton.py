"""One launch of the routed experts, of weights in 16 bits; split and launches are in grouped_moe_gemm_triton.py."""

import triton
import triton.language as tl


@triton.jit
def weight_tile(p_w, o_feature, K, EVEN_K: tl.constexpr):
    """[BLOCK_K, BLOCK_N] of rows p_w [1, BLOCK_N], zeros past K"""
    if EVEN_K:
        return tl.load(p_w + o_feature[:, None])
    else:
        return tl.load(p_w + o_feature[:, None], mask=(o_feature < K)[:, None], other=0.0)


@triton.jit
def grouped_dense_kernel(
    # pointers
    x_ptr,  # tokens; of down a row of hidden for each pair
    weight_ptr,
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
    # strides, in elements
    stride_xm,
    stride_xk,
    # tile shape
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_GATED: tl.constexpr,  # N rows of gate, then N rows of up
    EVEN_K: tl.constexpr,
):
    i_tile, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i_expert = tl.load(experts_ptr + i_tile).to(tl.int64)
    if i_expert >= num_experts:
        return
    o_pair = i_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K).to(tl.int64)
    b_pair = tl.load(pairs_ptr + o_pair)  # [BLOCK_M]
    m_m = b_pair < num_pairs
    i_row = (b_pair // top).to(tl.int64) if IS_GATED else o_pair
    p_x = x_ptr + i_row[:, None] * stride_xm
    p_w = weight_ptr + (i_expert * (2 if IS_GATED else 1) * N + tl.minimum(o_n, N - 1))[None, :] * K
    p_up = p_w + tl.full((), 1, tl.int64) * N * K

    b_acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    b_up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i_k in range(0, K, BLOCK_K):
        o_feature = i_k + o_k
        m_x = m_m[:, None] if EVEN_K else m_m[:, None] & (o_feature < K)[None, :]
        b_x = tl.load(p_x + o_feature[None, :] * stride_xk, mask=m_x, other=0.0)  # [BLOCK_M, BLOCK_K]
        b_w = weight_tile(p_w, o_feature, K, EVEN_K)
        if IS_GATED:
            b_w_up = weight_tile(p_up, o_feature, K, EVEN_K)
            b_acc = tl.dot(b_x, b_w, b_acc)
            b_up = tl.dot(b_x, b_w_up, b_up)
        else:
            b_acc = tl.dot(b_x, b_w, b_acc)

    if IS_GATED:
        b_acc = b_acc / (1.0 + tl.exp(-b_acc)) * b_up
        p_out = out_ptr + o_pair[:, None] * N + o_n[None, :]
    else:
        b_acc *= tl.load(routing_ptr + b_pair, mask=m_m, other=0.0)[:, None]
        p_out = out_ptr + b_pair.to(tl.int64)[:, None] * N + o_n[None, :]
    tl.store(p_out, b_acc.to(out_ptr.dtype.element_ty), mask=m_m[:, None] & (o_n < N)[None, :])
