"""MLA decode in Triton over the 656-byte tokens; split, parts and edges are as in mla_decode_triton.py.

    byte 0           512          528             656
         | 512 x e4m3 | 4 x float32 | 64 x bfloat16 |

Program  holds the next tile's codes in registers while it multiplies this one's, for Triton fetches ahead only what
         goes into a product as it is. 32 tokens are 16 KB of codes: 16 registers a thread at 8 warps.
         Codes times scales, in float32, are rounded to the query's type and meet both products from there.
"""

import triton
import triton.language as tl

from gpu_kernels.attention.mla_rows_triton import part_of, query_rows, store_part
from gpu_kernels.attention.parts_triton import finish, softmax_step
from gpu_kernels.fp8_triton import widen


@triton.jit
def _fetch(codes_ptr, scales_ptr, ropes_ptr, b_page, o_n, end, stride_cp, stride_ct, PAGE_SIZE: tl.constexpr):
    """(codes [BLOCK_N, 512], scales [BLOCK_N, 4], rotated channels [BLOCK_N, 64]); zeros from `end` on.

    The strides count 16 bytes, so that the compiler knows what is aligned for each of the three.
    """
    m_n = (o_n < end)[:, None]
    p_unit = (b_page * stride_cp + o_n % PAGE_SIZE * stride_ct)[:, None]
    p_codes = codes_ptr + p_unit * 16 + tl.arange(0, 512)[None, :]
    b_codes = tl.load(p_codes, mask=m_n, other=0.0 if codes_ptr.dtype.element_ty != tl.uint8 else 0)
    b_scale = tl.load(scales_ptr + p_unit * 4 + 128 + tl.arange(0, 4)[None, :], mask=m_n, other=0.0)
    b_rope = tl.load(ropes_ptr + p_unit * 8 + 264 + tl.arange(0, 64)[None, :], mask=m_n, other=0.0)
    return b_codes, b_scale, b_rope


@triton.jit
def _pages(p_table, o_n, end, stride_tp, PAGE_SIZE: tl.constexpr):
    return tl.load(p_table + o_n // PAGE_SIZE * stride_tp, mask=o_n < end, other=0).to(tl.int64)  # [BLOCK_N]


@triton.jit
def mla_decode_fp8_kernel(
    # pointers
    query_ptr,
    codes_ptr,  # e4m3, or uint8 where the GPU cannot convert e4m3
    scales_ptr,
    ropes_ptr,
    block_table_ptr,
    lengths_ptr,
    out_ptr,
    lse_ptr,
    # sizes
    num_queries,
    num_heads,
    num_splits,
    softmax_scale,  # times log2(e)
    # strides: in elements, but of the cache in 16 bytes; out and lse are dense
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
    length = tl.load(lengths_ptr + i_b * stride_l)
    start, end = part_of(length, i_split, num_splits, BLOCK_N)
    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    o_end = tl.minimum(length - (num_queries - 1 - o_row // num_heads), end)  # [BLOCK_R] what a row sees of this part
    b_q, b_q_rope = query_rows(
        query_ptr, i_b, o_row, num_queries, num_heads, stride_qb, stride_qq, stride_qh, LATENT, ROPE
    )
    dtype: tl.constexpr = query_ptr.dtype.element_ty

    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc = tl.zeros((BLOCK_R, LATENT), dtype=tl.float32)
    p_table = block_table_ptr + i_b * stride_tb
    o_n = start + tl.arange(0, BLOCK_N)
    b_page = _pages(p_table, o_n, end, stride_tp, PAGE_SIZE)
    b_codes, b_scale, b_rope = _fetch(
        codes_ptr, scales_ptr, ropes_ptr, b_page, o_n, end, stride_cp, stride_ct, PAGE_SIZE
    )
    b_page = _pages(p_table, o_n + BLOCK_N, end, stride_tp, PAGE_SIZE)
    for i_n in range(start, end, BLOCK_N):
        o_n = i_n + tl.arange(0, BLOCK_N)
        b_next_codes, b_next_scale, b_next_rope = _fetch(
            codes_ptr, scales_ptr, ropes_ptr, b_page, o_n + BLOCK_N, end, stride_cp, stride_ct, PAGE_SIZE
        )
        b_page = _pages(p_table, o_n + 2 * BLOCK_N, end, stride_tp, PAGE_SIZE)
        b_wide = tl.broadcast_to(b_scale[:, :, None], (BLOCK_N, 4, LATENT // 4))
        b_c = widen(b_codes, "e4m3", tl.float32) * tl.reshape(b_wide, (BLOCK_N, LATENT))
        b_c = b_c.to(dtype)  # [BLOCK_N, LATENT]
        b_s = tl.dot(b_q, tl.trans(b_c))  # [BLOCK_R, BLOCK_N]
        b_s = tl.dot(b_q_rope, tl.trans(b_rope.to(dtype)), b_s) * softmax_scale
        b_s = tl.where(o_n[None, :] < o_end[:, None], b_s, -float("inf"))
        b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
        b_acc = tl.dot(b_p.to(dtype), b_c, b_acc * b_factor[:, None])
        b_codes, b_scale, b_rope = b_next_codes, b_next_scale, b_next_rope

    b_inverse, b_lse = finish(b_max, b_sum)
    store_part(
        out_ptr, lse_ptr, b_acc, b_inverse, b_lse, i_b, i_split, o_row, num_queries, num_heads, num_splits, LATENT
    )
