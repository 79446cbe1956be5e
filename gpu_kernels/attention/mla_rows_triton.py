"""What the MLA kernels do before and after their loop over tokens: which part is theirs, its queries, its results."""

import triton
import triton.language as tl


@triton.jit
def part_of(length, i_split, num_splits, BLOCK_N: tl.constexpr):
    """(first token, end) of one of num_splits parts, each but the last of whole blocks."""
    part = tl.cdiv(tl.cdiv(length, BLOCK_N), num_splits) * BLOCK_N
    start = i_split * part
    return start, tl.minimum(start + part, length)


@triton.jit
def query_rows(
    query_ptr, i_b, o_row, num_queries, num_heads, stride_qb, stride_qq, stride_qh,
    LATENT: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """(the latents' side [BLOCK_R, LATENT], the rotated side [BLOCK_R, ROPE]) of the rows; zeros past the last."""
    m_row = o_row < num_queries * num_heads
    i_query, i_head = (o_row // num_heads).to(tl.int64), (o_row % num_heads).to(tl.int64)
    p_q = query_ptr + i_b * stride_qb + i_query * stride_qq + i_head * stride_qh
    o_c = tl.arange(0, LATENT)
    o_r = LATENT + tl.arange(0, ROPE)
    b_q = tl.load(p_q[:, None] + o_c[None, :], mask=m_row[:, None], other=0.0)
    b_q_rope = tl.load(p_q[:, None] + o_r[None, :], mask=m_row[:, None], other=0.0)
    return b_q, b_q_rope


@triton.jit
def store_part(
    out_ptr, lse_ptr, b_acc, b_inverse, b_lse, i_b, i_split, o_row, num_queries, num_heads, num_splits,
    LATENT: tl.constexpr,
):  # fmt: skip
    """b_acc [BLOCK_R, LATENT] times b_inverse, and b_lse [BLOCK_R], into dense [B, Q, H, S, (LATENT)]"""
    m_row = o_row < num_queries * num_heads
    o_out = (i_b * num_queries * num_heads + o_row) * num_splits + i_split  # [BLOCK_R] in [B, Q, H, S]
    tl.store(lse_ptr + o_out, b_lse, mask=m_row)
    p_out = out_ptr + o_out[:, None] * LATENT + tl.arange(0, LATENT)[None, :]
    tl.store(p_out, (b_acc * b_inverse[:, None]).to(out_ptr.dtype.element_ty), mask=m_row[:, None])
