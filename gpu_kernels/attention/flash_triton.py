"""Attention of grouped heads in Triton, over pages or dense rows; the maths is in textbook.py.

Rows     the queries of a sequence times the heads of a group, which read the same keys and values.
Split    one program a (block of rows, key-value head, sequence and part of its tokens). A block of rows is 16 to 64
         in decode and 128 in prefill, where a sequence is one part; the last blocks see the most tokens and go first.
Program  walks the tokens that any of its rows may see in steps of BLOCK_N, with an online softmax in units of log 2.
8 bit    codes are exact in float16, in which they are multiplied, so no scale meets them: the keys' goes with the
         softmax's, the values' comes last. Each row of queries is divided by a power of two near its largest, so that
         float16 holds it too. If tokens have scales of their own, the keys' multiply the scores, and the values' the
         weights, as shares of the largest of their tile, which float16 holds. If they have minima too, those go in
         sums of their own: a score gets its row's sum of queries times the middle of the token's codes.
Mass     decode stores the scores of the rows that are observed, if asked; key_mass_triton.py says for whom and why.
Edges    tokens that no row may see are not read, and neither are their pages' numbers.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about literals that are passed as constexpr.
# pyright: reportArgumentType=false
import triton
import triton.language as tl

from gpu_kernels.attention.codes_triton import half_codes, half_rows, scale_and_middle, token_words
from gpu_kernels.attention.pages_triton import tile_offsets, tile_page
from gpu_kernels.attention.parts_triton import LOG2_E, finish, softmax_step


@triton.jit
def load_tile(p_token, m_n, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """[BLOCK_N, BLOCK] of rows of SIZE numbers, zeros past them and where m_n is not set."""
    o_d = tl.arange(0, BLOCK)
    m = m_n[:, None] if SIZE == BLOCK else m_n[:, None] & (o_d < SIZE)[None, :]
    return tl.load(p_token[:, None] + o_d[None, :], mask=m, other=0.0)


@triton.jit
def _rows(p_row, m_n, SIZE: tl.constexpr, BLOCK: tl.constexpr, IS_FULL: tl.constexpr):
    """`load_tile` of tokens that are all there if IS_FULL: a mask costs instructions for each 16 bytes."""
    o_d = tl.arange(0, BLOCK)
    if not IS_FULL:
        return load_tile(p_row, m_n, SIZE, BLOCK)
    elif SIZE == BLOCK:
        return tl.load(p_row[:, None] + o_d[None, :])
    else:
        return tl.load(p_row[:, None] + o_d[None, :], mask=(o_d < SIZE)[None, :], other=0.0)


@triton.jit
def _step(
    b_q, b_q_rest, b_q_sum, b_k, b_k_rest, b_v, b_k_scale, b_v_scale, b_k_middle, b_v_middle, b_visible, scale, b_acc,
    b_low, b_max, b_sum, scores_ptr, o_scores, m_scores, o_n, score_end,
    KEY_REST: tl.constexpr, TOKEN_SCALES: tl.constexpr, MINIMA: tl.constexpr,
):  # fmt: skip
    """(acc [BLOCK_R, BLOCK_D], low, maximum, sum [BLOCK_R] each) after one more tile, whose scores may be stored.

    low  sum of weights times the middles of values, which all channels of a row share
    """
    b_s = tl.dot(b_q, tl.trans(b_k))  # [BLOCK_R, BLOCK_N]
    if KEY_REST:
        b_s = tl.dot(b_q_rest, tl.trans(b_k_rest), b_s)
    if TOKEN_SCALES:
        b_s *= b_k_scale[None, :]
    if MINIMA:
        b_s += b_q_sum[:, None] * b_k_middle[None, :]
    b_s = tl.where(b_visible, b_s * scale, -float("inf"))
    if scores_ptr is not None:
        m_s = m_scores[:, None] & (o_n < score_end)[None, :]
        tl.store(scores_ptr + o_scores[:, None] + o_n[None, :], b_s, mask=m_s)
    b_p, b_factor, b_max, b_sum = softmax_step(b_s, b_max, b_sum)
    if MINIMA:
        b_low = b_low * b_factor + tl.sum(b_p * b_v_middle[None, :], axis=1)
    if TOKEN_SCALES:
        unit = tl.max(b_v_scale)
        b_p *= (b_v_scale / unit)[None, :]
        b_acc = b_acc * b_factor[:, None] + tl.dot(b_p.to(b_v.dtype), b_v) * unit
    else:
        b_acc = tl.dot(b_p.to(b_v.dtype), b_v, b_acc * b_factor[:, None])
    return b_acc, b_low, b_max, b_sum


@triton.jit
def _walk(
    first, last, page, p_table, key_ptr, value_ptr, b_q, b_q_rest, b_q_sum, scale, b_acc, b_low, b_max, b_sum,
    scores_ptr, o_scores, m_scores, score_end, o_begin, o_end, end, stride_tp, stride_kp, stride_kt, stride_vp,
    stride_vt, p_key_scale, p_value_scale, stride_sp, stride_st,
    KEY_SIZE: tl.constexpr, KEY_REST: tl.constexpr, VALUE_SIZE: tl.constexpr, PAGE_SIZE: tl.constexpr,
    FORMAT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, TOKEN_SCALES: tl.constexpr,
    MINIMA: tl.constexpr, IS_FULL: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """(acc, low, maximum, sum, page) after the tiles of [first, last), all of whose tokens are there if IS_FULL."""
    for i_n in range(first, last, BLOCK_N):
        o_n = i_n + tl.arange(0, BLOCK_N)
        p_k = key_ptr + tile_offsets(page, i_n, stride_kp, stride_kt, PAGE_SIZE, BLOCK_N)
        p_v = value_ptr + tile_offsets(page, i_n, stride_vp, stride_vt, PAGE_SIZE, BLOCK_N)
        b_k_scale, b_v_scale, b_k_middle, b_v_middle = scale, scale, scale, scale
        if TOKEN_SCALES:
            o_scale = tile_offsets(page, i_n, stride_sp, stride_st, PAGE_SIZE, BLOCK_N)
            b_k_scale = token_words(p_key_scale + o_scale, o_n < end)  # [BLOCK_N]
            b_v_scale = token_words(p_value_scale + o_scale, o_n < end)
        if MINIMA:
            b_k_scale, b_k_middle = scale_and_middle(b_k_scale)
            b_v_scale, b_v_middle = scale_and_middle(b_v_scale)
        if PAGE_SIZE > 0:
            page = tile_page(p_table, i_n + BLOCK_N, end, stride_tp, PAGE_SIZE, BLOCK_N)
        b_k = _rows(p_k, o_n < end, KEY_SIZE, BLOCK_D, IS_FULL)  # [BLOCK_N, BLOCK_D]
        b_k_rest = b_k
        if KEY_REST:
            b_k_rest = _rows(p_k + BLOCK_D, o_n < end, KEY_REST, KEY_REST, IS_FULL)  # [BLOCK_N, KEY_REST]
        b_v = _rows(p_v, o_n < end, VALUE_SIZE, BLOCK_D, IS_FULL)  # [BLOCK_N, BLOCK_D]
        if FORMAT != "":
            b_k, b_v = half_codes(b_k, FORMAT, COMPILED), half_codes(b_v, FORMAT, COMPILED)
        b_visible = (o_n[None, :] < o_end[:, None]) & (o_n[None, :] >= o_begin[:, None])
        b_acc, b_low, b_max, b_sum = _step(
            b_q, b_q_rest, b_q_sum, b_k, b_k_rest, b_v, b_k_scale, b_v_scale, b_k_middle, b_v_middle, b_visible, scale,
            b_acc, b_low, b_max, b_sum, scores_ptr, o_scores, m_scores, o_n, score_end, KEY_REST, TOKEN_SCALES, MINIMA,
        )  # fmt: skip
    return b_acc, b_low, b_max, b_sum, page


@triton.jit
def flash_kernel(
    # pointers; None if the op has no such operand
    query_ptr,
    key_ptr,
    value_ptr,
    cu_queries_ptr,  # else num_queries a sequence
    cu_keys_ptr,  # of dense rows; else the sequence lengths, and pages by the block table
    block_table_ptr,
    seq_lens_ptr,
    key_scale_ptr,
    value_scale_ptr,
    sinks_ptr,
    out_ptr,
    lse_ptr,
    scores_ptr,  # of the last mass_queries queries, in units of log 2: [B, Hkv, mass_queries * GROUP, num_slots]
    # sizes
    num_queries,
    num_heads,
    num_splits,
    mass_queries,  # None without scores, as the next
    num_slots,
    window,
    softmax_scale,  # times log2(e)
    # strides, in elements; out and lse are dense
    stride_qt,
    stride_qh,
    stride_kp,
    stride_kt,
    stride_kh,
    stride_vp,
    stride_vt,
    stride_vh,
    stride_tb,
    stride_tp,
    stride_l,
    stride_lh,  # None: one length for all heads
    stride_scale,  # 0: one scale for all heads
    stride_sp,  # of scales per token, else 0
    stride_st,
    # the computation
    GROUP: tl.constexpr,
    KEY_SIZE: tl.constexpr,  # without KEY_REST
    KEY_REST: tl.constexpr,  # channels of a key past BLOCK_D
    VALUE_SIZE: tl.constexpr,
    PAGE_SIZE: tl.constexpr,  # 0: dense rows
    FORMAT: tl.constexpr,
    TOKEN_SCALES: tl.constexpr,
    MINIMA: tl.constexpr,  # scales are words of `paged.scale_words`
    COMPILED: tl.constexpr,
    # tile shape
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    i_block = tl.num_programs(0) - 1 - tl.program_id(0)
    i_kv = tl.program_id(1)
    i_b = (tl.program_id(2) // num_splits).to(tl.int64)
    i_split = tl.program_id(2) % num_splits
    if cu_queries_ptr is None:
        first_query = i_b * num_queries
    else:
        first_query = tl.load(cu_queries_ptr + i_b).to(tl.int64)
        num_queries = (tl.load(cu_queries_ptr + i_b + 1) - first_query).to(tl.int32)
    if i_block * BLOCK_R >= num_queries * GROUP:
        return
    if cu_keys_ptr is None:
        first_key = i_b * 0
        p_length = seq_lens_ptr + i_b * stride_l
        if stride_lh is not None:
            p_length += i_kv.to(tl.int64) * stride_lh
        length = tl.load(p_length)
        p_table = block_table_ptr + i_b * stride_tb
    else:
        first_key = tl.load(cu_keys_ptr + i_b).to(tl.int64)
        length = (tl.load(cu_keys_ptr + i_b + 1) - first_key).to(tl.int32)
        p_table = key_ptr

    o_row = i_block * BLOCK_R + tl.arange(0, BLOCK_R)
    i_query = o_row // GROUP
    m_row = i_query < num_queries
    i_head = i_kv.to(tl.int64) * GROUP + o_row % GROUP
    # A row sees tokens [o_begin, o_end); the block's together are [begin, end), of which this part takes its share.
    o_end = length - num_queries + i_query + 1
    o_begin = o_end * 0
    last_query = tl.minimum((i_block * BLOCK_R + BLOCK_R - 1) // GROUP, num_queries - 1)
    end = tl.maximum(length - num_queries + last_query + 1, 0)
    start = 0
    if window is not None:
        o_begin = o_end - window
        first_end = length - num_queries + i_block * BLOCK_R // GROUP + 1
        start = tl.maximum(first_end - window, 0) // BLOCK_N * BLOCK_N
    part = tl.cdiv(tl.cdiv(tl.maximum(end - start, 0), BLOCK_N), num_splits) * BLOCK_N
    start += i_split * part
    end = tl.minimum(start + part, end)
    o_end = tl.minimum(o_end, end)

    p_q = query_ptr + (first_query + i_query) * stride_qt + i_head * stride_qh
    b_q = load_tile(p_q, m_row, KEY_SIZE, BLOCK_D)  # [BLOCK_R, BLOCK_D]
    b_q_rest = b_q
    if KEY_REST:
        b_q_rest = load_tile(p_q + BLOCK_D, m_row, KEY_REST, KEY_REST)  # [BLOCK_R, KEY_REST]
    scale = softmax_scale
    if TOKEN_SCALES:
        key_scale_ptr += i_kv.to(tl.int64) * stride_scale
        value_scale_ptr += i_kv.to(tl.int64) * stride_scale
    elif key_scale_ptr is not None:
        scale = softmax_scale * tl.load(key_scale_ptr + i_kv * stride_scale)
    if FORMAT != "":
        b_q, b_unit = half_rows(b_q)
        scale = scale * b_unit[:, None]
    b_q_sum = b_q
    if MINIMA:
        b_q_sum = tl.sum(b_q.to(tl.float32), axis=1)  # [BLOCK_R]

    o_scores, m_scores, score_end = o_row.to(tl.int64), m_row, end
    if scores_ptr is not None:
        unobserved = (num_queries - mass_queries) * GROUP
        m_scores = m_row & (o_row >= unobserved)
        first_score = (i_b * tl.num_programs(1) + i_kv) * mass_queries * GROUP - unobserved
        o_scores = (first_score + o_row) * num_slots
        score_end = tl.minimum(end, num_slots)
    b_max = tl.full((BLOCK_R,), -float("inf"), dtype=tl.float32)
    b_sum = tl.zeros((BLOCK_R,), dtype=tl.float32)
    if sinks_ptr is not None:
        # The sink is a token that was seen before all others and has no value; one part alone has seen it.
        if i_split == 0:
            b_max = tl.load(sinks_ptr + i_head, mask=m_row, other=0.0).to(tl.float32) * LOG2_E
            b_sum = tl.full((BLOCK_R,), 1.0, dtype=tl.float32)
    b_acc, b_low = tl.zeros((BLOCK_R, BLOCK_D), dtype=tl.float32), tl.zeros((BLOCK_R,), dtype=tl.float32)
    key_ptr += i_kv.to(tl.int64) * stride_kh
    value_ptr += i_kv.to(tl.int64) * stride_vh
    page = first_key
    if PAGE_SIZE > 0:
        page = tile_page(p_table, start, end, stride_tp, PAGE_SIZE, BLOCK_N)
    full = start + tl.maximum(end - start, 0) // BLOCK_N * BLOCK_N
    b_acc, b_low, b_max, b_sum, page = _walk(
        start, full, page, p_table, key_ptr, value_ptr, b_q, b_q_rest, b_q_sum, scale, b_acc, b_low, b_max, b_sum,
        scores_ptr, o_scores, m_scores, score_end, o_begin, o_end, end, stride_tp, stride_kp, stride_kt, stride_vp,
        stride_vt, key_scale_ptr, value_scale_ptr, stride_sp, stride_st,
        KEY_SIZE, KEY_REST, VALUE_SIZE, PAGE_SIZE, FORMAT, BLOCK_N, BLOCK_D, TOKEN_SCALES, MINIMA, True, COMPILED,
    )  # fmt: skip
    if full < end:
        b_acc, b_low, b_max, b_sum, page = _walk(
            full, end, page, p_table, key_ptr, value_ptr, b_q, b_q_rest, b_q_sum, scale, b_acc, b_low, b_max, b_sum,
            scores_ptr, o_scores, m_scores, score_end, o_begin, o_end, end, stride_tp, stride_kp, stride_kt, stride_vp,
            stride_vt, key_scale_ptr, value_scale_ptr, stride_sp, stride_st,
            KEY_SIZE, KEY_REST, VALUE_SIZE, PAGE_SIZE, FORMAT, BLOCK_N, BLOCK_D, TOKEN_SCALES, MINIMA, False, COMPILED,
        )  # fmt: skip

    if MINIMA:
        b_acc += b_low[:, None]
    b_inverse, b_lse = finish(b_max, b_sum)
    if value_scale_ptr is not None:
        if not TOKEN_SCALES:
            b_inverse *= tl.load(value_scale_ptr + i_kv * stride_scale)
    o_out = ((first_query + i_query) * num_heads + i_head) * num_splits + i_split  # [BLOCK_R] in [tokens, H, S]
    tl.store(lse_ptr + o_out, b_lse, mask=m_row)
    o_d = tl.arange(0, BLOCK_D)
    p_out = out_ptr + o_out[:, None] * VALUE_SIZE + o_d[None, :]
    m_out = m_row[:, None] & (o_d < VALUE_SIZE)[None, :]
    tl.store(p_out, (b_acc * b_inverse[:, None]).to(out_ptr.dtype.element_ty), mask=m_out)
