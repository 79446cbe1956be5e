"""The kernel of MLA decode over a cache of 656-byte tokens; the maths is in mla_decode.py, the parts in
mla_kernel_triton.py.

    byte 0           512          528             656
         | 512 x e4m3 | 4 x float32 | 64 x bfloat16 |        a token

Groups   128 codes have one scale. Codes are exact in float16, in which they are multiplied as they are: a group's
         scores are scaled by token, and its values' scales go with the weights of the softmax.
Range    float16 holds the weights times the scales over the largest scale so far, by which the sums are multiplied at
         the end, and each row of queries over a power of two.
Program  holds the next tile's codes in registers while it multiplies this one's: Triton fetches ahead only tiles that
         all products take in one layout, and the scores take a tile transposed.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about literals that are passed as constexpr.
# pyright: reportArgumentType=false
import triton
import triton.language as tl

from gpu_kernels.attention.codes_triton import half_rows
from gpu_kernels.attention.mla_kernel_triton import part_of
from gpu_kernels.attention.pages_triton import tile_offsets, tile_page
from gpu_kernels.attention.parts_triton import finish, softmax_step
from gpu_kernels.fp8_triton import widen

LEAST_SCALE = tl.constexpr(2.0**-100)  # the largest scale counts as no less: others are divided by it


@triton.jit
def _query_group(p_q, m_row, b_unit, FIRST: tl.constexpr, GROUP: tl.constexpr):
    """[BLOCK_R, GROUP] float16 of the queries over b_unit [BLOCK_R]"""
    b_q = tl.load(p_q[:, None] + FIRST + tl.arange(0, GROUP)[None, :], mask=m_row[:, None], other=0.0)
    return (b_q.to(tl.float32) / b_unit[:, None]).to(tl.float16)


@triton.jit
def _codes(p_token, m_n, FIRST: tl.constexpr, GROUP: tl.constexpr):
    """[BLOCK_N, GROUP] codes"""
    p_codes = p_token[:, None] + FIRST + tl.arange(0, GROUP)[None, :]
    return tl.load(p_codes, mask=m_n[:, None], other=0.0 if p_token.dtype.element_ty != tl.uint8 else 0)


@triton.jit
def _fetch(
    cache_ptr, scales_ptr, ropes_ptr, p_table, page, i_n, end, stride_tp, stride_cp, stride_ct,
    PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """(codes of the four groups [BLOCK_N, GROUP], their scales [BLOCK_N], rotated channels [BLOCK_N, ROPE], `page` of
    the next tile); zeros from `end` on.

    The strides count 16 bytes, so that the compiler knows the alignment of each of the three.
    """
    o_unit = tile_offsets(page, i_n, stride_cp, stride_ct, PAGE_SIZE, BLOCK_N)
    page = tile_page(p_table, i_n + BLOCK_N, end, stride_tp, PAGE_SIZE, BLOCK_N)
    m_n = i_n + tl.arange(0, BLOCK_N) < end
    p_codes, p_scale = cache_ptr + o_unit * 16, scales_ptr + o_unit * 4 + GROUP
    b_c0, b_c1 = _codes(p_codes, m_n, 0, GROUP), _codes(p_codes, m_n, GROUP, GROUP)
    b_c2, b_c3 = _codes(p_codes, m_n, 2 * GROUP, GROUP), _codes(p_codes, m_n, 3 * GROUP, GROUP)
    b_s0, b_s1 = tl.load(p_scale, mask=m_n, other=0.0), tl.load(p_scale + 1, mask=m_n, other=0.0)
    b_s2, b_s3 = tl.load(p_scale + 2, mask=m_n, other=0.0), tl.load(p_scale + 3, mask=m_n, other=0.0)
    p_rope = ropes_ptr + (o_unit * 8 + 2 * GROUP + 8)[:, None] + tl.arange(0, ROPE)[None, :]
    b_rope = tl.load(p_rope, mask=m_n[:, None], other=0.0)
    return b_c0, b_c1, b_c2, b_c3, b_s0, b_s1, b_s2, b_s3, b_rope, page


@triton.jit
def _add_values(b_p, b_scale, b_codes, b_acc):
    """acc [BLOCK_R, GROUP] and the weights b_p [BLOCK_R, BLOCK_N] times the scales and codes of one group."""
    return tl.dot((b_p * b_scale[None, :]).to(tl.float16), b_codes, b_acc)


@triton.jit
def _store_group(p_out, b_acc, b_inverse, m_row, FIRST: tl.constexpr, GROUP: tl.constexpr):
    p_group = p_out[:, None] + FIRST + tl.arange(0, GROUP)[None, :]
    tl.store(p_group, (b_acc * b_inverse[:, None]).to(p_out.dtype.element_ty), mask=m_row[:, None])


@triton.jit
def mla_decode_codes_kernel(
    # the cache, its strides in 16 bytes
    cache_ptr,  # codes as e4m3, or as uint8 where the GPU cannot convert e4m3
    scales_ptr,
    ropes_ptr,
    stride_cp,
    stride_ct,
    block_table_ptr,
    stride_tb,
    stride_tp,
    seq_lens_ptr,
    stride_l,
    # the queries, strides in elements
    query_ptr,
    stride_qb,
    stride_qq,
    stride_qh,
    num_queries,
    num_heads,
    softmax_scale,  # times log2(e)
    # the dense results
    out_ptr,
    lse_ptr,
    num_splits,
    # tile shape
    PAGE_SIZE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
):
    GROUP: tl.constexpr = LATENT // 4
    i_block, i_split, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(seq_lens_ptr + i_b * stride_l)
    start, end = part_of(length, i_split, num_splits, BLOCK_N)
    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    m_row = o_row < num_queries * num_heads
    o_end = tl.minimum(length - (num_queries - 1 - o_row // num_heads), end)  # [BLOCK_R] end of a row's tokens
    i_query, i_head = (o_row // num_heads).to(tl.int64), (o_row % num_heads).to(tl.int64)
    p_q = query_ptr + i_b * stride_qb + i_query * stride_qq + i_head * stride_qh
    b_q = tl.load(p_q[:, None] + tl.arange(0, LATENT)[None, :], mask=m_row[:, None], other=0.0)
    b_unit = half_rows(b_q)[1]
    b_q0, b_q1 = _query_group(p_q, m_row, b_unit, 0, GROUP), _query_group(p_q, m_row, b_unit, GROUP, GROUP)
    b_q2 = _query_group(p_q, m_row, b_unit, 2 * GROUP, GROUP)
    b_q3 = _query_group(p_q, m_row, b_unit, 3 * GROUP, GROUP)
    b_q_rope = tl.load(p_q[:, None] + LATENT + tl.arange(0, ROPE)[None, :], mask=m_row[:, None], other=0.0)

    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    b_acc0 = tl.zeros((BLOCK_R, GROUP), dtype=tl.float32)
    b_acc1, b_acc2, b_acc3 = b_acc0, b_acc0, b_acc0
    most = LEAST_SCALE + 0.0  # of the scales so far
    p_table = block_table_ptr + i_b * stride_tb
    page = tile_page(p_table, start, end, stride_tp, PAGE_SIZE, BLOCK_N)
    b_n0, b_n1, b_n2, b_n3, b_t0, b_t1, b_t2, b_t3, b_next_rope, page = _fetch(
        cache_ptr, scales_ptr, ropes_ptr, p_table, page, start, end, stride_tp, stride_cp, stride_ct,
        PAGE_SIZE, BLOCK_N, GROUP, ROPE,
    )  # fmt: skip
    for i_n in range(start, end, BLOCK_N):
        b_c0, b_c1 = widen(b_n0, "e4m3", tl.float16), widen(b_n1, "e4m3", tl.float16)
        b_c2, b_c3 = widen(b_n2, "e4m3", tl.float16), widen(b_n3, "e4m3", tl.float16)
        b_s0, b_s1, b_s2, b_s3, b_rope = b_t0, b_t1, b_t2, b_t3, b_next_rope.to(b_q_rope.dtype)
        b_n0, b_n1, b_n2, b_n3, b_t0, b_t1, b_t2, b_t3, b_next_rope, page = _fetch(
            cache_ptr, scales_ptr, ropes_ptr, p_table, page, i_n + BLOCK_N, end, stride_tp, stride_cp, stride_ct,
            PAGE_SIZE, BLOCK_N, GROUP, ROPE,
        )  # fmt: skip
        b_s = tl.dot(b_q0, tl.trans(b_c0)) * b_s0[None, :]  # [BLOCK_R, BLOCK_N]
        b_s += tl.dot(b_q1, tl.trans(b_c1)) * b_s1[None, :]
        b_s += tl.dot(b_q2, tl.trans(b_c2)) * b_s2[None, :]
        b_s += tl.dot(b_q3, tl.trans(b_c3)) * b_s3[None, :]
        b_s = (b_s * b_unit[:, None] + tl.dot(b_q_rope, tl.trans(b_rope))) * softmax_scale
        o_n = i_n + tl.arange(0, BLOCK_N)
        b_s = tl.where(o_n[None, :] < o_end[:, None], b_s, -float("inf"))
        b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
        before = most
        most = tl.maximum(most, tl.max(tl.maximum(tl.maximum(b_s0, b_s1), tl.maximum(b_s2, b_s3)), axis=0))
        b_factor, inverse = (b_factor * (before / most))[:, None], 1.0 / most
        b_acc0 = _add_values(b_p, b_s0 * inverse, b_c0, b_acc0 * b_factor)
        b_acc1 = _add_values(b_p, b_s1 * inverse, b_c1, b_acc1 * b_factor)
        b_acc2 = _add_values(b_p, b_s2 * inverse, b_c2, b_acc2 * b_factor)
        b_acc3 = _add_values(b_p, b_s3 * inverse, b_c3, b_acc3 * b_factor)

    b_inverse, b_lse = finish(b_max, b_sum)
    o_out = (i_b * num_queries * num_heads + o_row) * num_splits + i_split  # [BLOCK_R] in [B, Q, H, S]
    tl.store(lse_ptr + o_out, b_lse, mask=m_row)
    p_out, b_inverse = out_ptr + o_out * LATENT, b_inverse * most
    _store_group(p_out, b_acc0, b_inverse, m_row, 0, GROUP)
    _store_group(p_out, b_acc1, b_inverse, m_row, GROUP, GROUP)
    _store_group(p_out, b_acc2, b_inverse, m_row, 2 * GROUP, GROUP)
    _store_group(p_out, b_acc3, b_inverse, m_row, 3 * GROUP, GROUP)
