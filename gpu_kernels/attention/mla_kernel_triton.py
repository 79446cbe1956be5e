"""The kernel of MLA decode, over a cache of 16-bit numbers or of 656-byte tokens; the maths is in mla_decode.py.

    byte 0           512          528             656
         | 512 x e4m3 | 4 x float32 | 64 x bfloat16 |        a token in FP8

Rows     the queries of a sequence times its heads: all read the same tokens, so one program takes as many as it can.
Split    one program a block of rows, a part of the tokens, a sequence; blocks of rows run next to each other, so that
         the others find the first one's tiles in the L2.
Program  walks its tokens in steps of BLOCK_N: a tile of latents is fetched once, for the scores (transposed) and for
         the values; the softmax is online, in units of log 2.
FP8      the program holds the next tile's codes in registers while it multiplies this one's, for Triton fetches ahead
         only operands of a product that stay unchanged. 32 tokens are 16 KB of codes: 16 registers per thread at 8
         warps. Codes times scales, in float32, are rounded to the query's type and meet both products from there.
Parts    with more than one, each writes float32, normalized, with its lse; `combine_kernel` joins them.
Edges    tokens past the length are not read, and neither are their pages' numbers.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about literals that are passed as constexpr.
# pyright: reportArgumentType=false
import triton
import triton.language as tl

from gpu_kernels.attention.parts_triton import finish, softmax_step
from gpu_kernels.fp8_triton import widen


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
def pages_of(p_table, o_n, end, stride_tp, PAGE_SIZE: tl.constexpr):
    """The page of each token [BLOCK_N]."""
    return tl.load(p_table + o_n // PAGE_SIZE * stride_tp, mask=o_n < end, other=0).to(tl.int64)


@triton.jit
def fetch_codes(cache_ptr, scales_ptr, ropes_ptr, b_page, o_n, end, stride_cp, stride_ct, PAGE_SIZE: tl.constexpr):
    """(codes [BLOCK_N, 512], scales [BLOCK_N, 4], rotated channels [BLOCK_N, 64]); zeros from `end` on.

    The strides count 16 bytes, so that the compiler knows the alignment of each of the three.
    """
    m_n = (o_n < end)[:, None]
    p_unit = (b_page * stride_cp + o_n % PAGE_SIZE * stride_ct)[:, None]
    p_codes = cache_ptr + p_unit * 16 + tl.arange(0, 512)[None, :]
    b_codes = tl.load(p_codes, mask=m_n, other=0.0 if cache_ptr.dtype.element_ty != tl.uint8 else 0)
    b_scale = tl.load(scales_ptr + p_unit * 4 + 128 + tl.arange(0, 4)[None, :], mask=m_n, other=0.0)
    b_rope = tl.load(ropes_ptr + p_unit * 8 + 264 + tl.arange(0, 64)[None, :], mask=m_n, other=0.0)
    return b_codes, b_scale, b_rope


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
def mla_decode_kernel(
    # pointers
    query_ptr,
    cache_ptr,  # 16-bit numbers; of FP8 the codes as e4m3, or as uint8 where the GPU cannot convert e4m3
    scales_ptr,  # of FP8 alone, as the next
    ropes_ptr,
    block_table_ptr,
    seq_lens_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_queries,
    num_heads,
    num_splits,
    softmax_scale,  # times log2(e)
    # strides, in elements, but of an FP8 cache in 16 bytes; out and lse are dense
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
    dtype: tl.constexpr = query_ptr.dtype.element_ty

    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc = tl.zeros((BLOCK_R, LATENT), dtype=tl.float32)
    p_table = block_table_ptr + i_b * stride_tb
    if scales_ptr is None:
        o_c = tl.arange(0, LATENT)
        o_r = LATENT + tl.arange(0, ROPE)
        for i_n in range(start, end, BLOCK_N):
            o_n = i_n + tl.arange(0, BLOCK_N)
            m_n = (o_n < end)[:, None]
            b_page = pages_of(p_table, o_n, end, stride_tp, PAGE_SIZE)
            p_token = cache_ptr + b_page * stride_cp + o_n % PAGE_SIZE * stride_ct
            b_c = tl.load(p_token[:, None] + o_c[None, :], mask=m_n, other=0.0)  # [BLOCK_N, LATENT]
            b_rope = tl.load(p_token[:, None] + o_r[None, :], mask=m_n, other=0.0)  # [BLOCK_N, ROPE]
            b_visible = o_n[None, :] < o_end[:, None]
            b_acc, b_max, b_sum = step(b_q, b_q_rope, b_c, b_rope, b_visible, softmax_scale, b_acc, b_max, b_sum)
    else:
        o_n = start + tl.arange(0, BLOCK_N)
        b_page = pages_of(p_table, o_n, end, stride_tp, PAGE_SIZE)
        b_codes, b_scale, b_rope = fetch_codes(
            cache_ptr, scales_ptr, ropes_ptr, b_page, o_n, end, stride_cp, stride_ct, PAGE_SIZE
        )
        b_page = pages_of(p_table, o_n + BLOCK_N, end, stride_tp, PAGE_SIZE)
        for i_n in range(start, end, BLOCK_N):
            o_n = i_n + tl.arange(0, BLOCK_N)
            b_next_codes, b_next_scale, b_next_rope = fetch_codes(
                cache_ptr, scales_ptr, ropes_ptr, b_page, o_n + BLOCK_N, end, stride_cp, stride_ct, PAGE_SIZE
            )
            b_page = pages_of(p_table, o_n + 2 * BLOCK_N, end, stride_tp, PAGE_SIZE)
            b_wide = tl.broadcast_to(b_scale[:, :, None], (BLOCK_N, 4, LATENT // 4))
            b_c = widen(b_codes, "e4m3", tl.float32) * tl.reshape(b_wide, (BLOCK_N, LATENT))
            b_c, b_rope = b_c.to(dtype), b_rope.to(dtype)  # [BLOCK_N, LATENT], [BLOCK_N, ROPE]
            b_visible = o_n[None, :] < o_end[:, None]
            b_acc, b_max, b_sum = step(b_q, b_q_rope, b_c, b_rope, b_visible, softmax_scale, b_acc, b_max, b_sum)
            b_codes, b_scale, b_rope = b_next_codes, b_next_scale, b_next_rope

    b_inverse, b_lse = finish(b_max, b_sum)
    store_part(
        out_ptr, lse_ptr, b_acc, b_inverse, b_lse, i_b, i_split, o_row, num_queries, num_heads, num_splits, LATENT
    )
