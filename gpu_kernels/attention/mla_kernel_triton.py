"""The kernel of MLA decode over a cache of 16-bit numbers; the maths is in mla_decode.py.

Rows     the queries of a sequence times its heads: all read the same tokens, so one program takes as many as it can.
Split    one program a block of rows, a part of the tokens, a sequence; blocks of rows run next to each other, so that
         the others find the first one's tiles in the L2.
Program  walks its tokens in steps of BLOCK_N: a tile of latents is fetched once, for the scores (transposed) and for
         the values; the softmax is online, in units of log 2.
Parts    with more than one, each writes float32, normalized, with its lse; `combine_kernel` joins them.
Edges    tokens past the length are not read, and neither are their pages' numbers.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about literals that are passed as constexpr.
# pyright: reportArgumentType=false
import triton
import triton.language as tl

from gpu_kernels.attention.pages_triton import tile_offsets, tile_page
from gpu_kernels.attention.parts_triton import finish, softmax_step


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


@triton.jit
def step(b_q, b_q_rope, b_c, b_rope, b_visible, softmax_scale, b_acc, b_max, b_sum):
    """(acc [BLOCK_R, LATENT], maximum [BLOCK_R], sum [BLOCK_R]) after one more tile."""
    b_s = tl.dot(b_q, tl.trans(b_c))  # [BLOCK_R, BLOCK_N]
    b_s = tl.dot(b_q_rope, tl.trans(b_rope), b_s) * softmax_scale
    b_s = tl.where(b_visible, b_s, -float("inf"))
    b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
    b_acc = tl.dot(b_p.to(b_c.dtype), b_c, b_acc * b_factor[:, None])
    return b_acc, b_max, b_sum


@triton.jit
def walk(
    first, last, page, p_table, cache_ptr, b_q, b_q_rope, softmax_scale, b_acc, b_max, b_sum, o_end, end,
    stride_tp, stride_cp, stride_ct,
    PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, IS_FULL: tl.constexpr,
):  # fmt: skip
    """(acc, maximum, sum, page) after the tiles of [first, last), all of whose tokens are there if IS_FULL."""
    o_c = tl.arange(0, LATENT)
    o_r = LATENT + tl.arange(0, ROPE)
    for i_n in range(first, last, BLOCK_N):
        o_n = i_n + tl.arange(0, BLOCK_N)
        p_token = cache_ptr + tile_offsets(page, i_n, stride_cp, stride_ct, PAGE_SIZE, BLOCK_N)[:, None]
        page = tile_page(p_table, i_n + BLOCK_N, end, stride_tp, PAGE_SIZE, BLOCK_N)
        if IS_FULL:
            b_c = tl.load(p_token + o_c[None, :])  # [BLOCK_N, LATENT]
            b_rope = tl.load(p_token + o_r[None, :])  # [BLOCK_N, ROPE]
        else:
            m_n = (o_n < end)[:, None]
            b_c = tl.load(p_token + o_c[None, :], mask=m_n, other=0.0)
            b_rope = tl.load(p_token + o_r[None, :], mask=m_n, other=0.0)
        b_visible = o_n[None, :] < o_end[:, None]
        b_acc, b_max, b_sum = step(b_q, b_q_rope, b_c, b_rope, b_visible, softmax_scale, b_acc, b_max, b_sum)
    return b_acc, b_max, b_sum, page


@triton.jit
def mla_decode_kernel(
    # pointers
    query_ptr,
    cache_ptr,
    block_table_ptr,
    seq_lens_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_queries,
    num_heads,
    num_splits,
    softmax_scale,  # times log2(e)
    # strides, in elements; out and lse are dense
    stride_qb,
    stride_qq,
    stride_qh,
    stride_cp,
    stride_ct,
    stride_tb,
    stride_tp,
    stride_l,
    # tile shape
    PAGE_SIZE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
):
    i_block, i_split, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(seq_lens_ptr + i_b * stride_l)
    start, end = part_of(length, i_split, num_splits, BLOCK_N)
    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    o_end = tl.minimum(length - (num_queries - 1 - o_row // num_heads), end)  # [BLOCK_R] end of a row's tokens
    b_q, b_q_rope = query_rows(
        query_ptr, i_b, o_row, num_queries, num_heads, stride_qb, stride_qq, stride_qh, LATENT, ROPE
    )
    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc = tl.zeros((BLOCK_R, LATENT), dtype=tl.float32)
    p_table = block_table_ptr + i_b * stride_tb
    page = tile_page(p_table, start, end, stride_tp, PAGE_SIZE, BLOCK_N)
    full = start + tl.maximum(end - start, 0) // BLOCK_N * BLOCK_N
    b_acc, b_max, b_sum, page = walk(
        start, full, page, p_table, cache_ptr, b_q, b_q_rope, softmax_scale, b_acc, b_max, b_sum, o_end, end,
        stride_tp, stride_cp, stride_ct, PAGE_SIZE, BLOCK_N, LATENT, ROPE, True,
    )  # fmt: skip
    if full < end:
        b_acc, b_max, b_sum, page = walk(
            full, end, page, p_table, cache_ptr, b_q, b_q_rope, softmax_scale, b_acc, b_max, b_sum, o_end, end,
            stride_tp, stride_cp, stride_ct, PAGE_SIZE, BLOCK_N, LATENT, ROPE, False,
        )  # fmt: skip

    b_inverse, b_lse = finish(b_max, b_sum)
    store_part(
        out_ptr, lse_ptr, b_acc, b_inverse, b_lse, i_b, i_split, o_row, num_queries, num_heads, num_splits, LATENT
    )
