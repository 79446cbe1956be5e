"""The mass of tokens in Triton; the maths is in key_mass.py.

Split    one program a (block of tokens, key-value head, sequence): it alone writes their mass, so that sums have one
         order and nothing is added atomically.
Program  keeps its keys, and walks the observed rows (queries times heads of a group) that may see them in steps of
         BLOCK_R; or it reads the rows' scores, if a kernel has stored them.
Edges    tokens past the length are not read, and their mass is 0.

Decode wants the mass of its own call, and the weights need lse, which is known when all parts are done. So either the
decode kernel stores the scores of the R observed rows, or this kernel multiplies the keys again:

    bytes per token of a head   scores 4 R written and 4 R read        keys D * itemsize read again

For Llama 8B's heads (R = 4, D = 128) scores are 32 bytes and keys 256 in 16 bits, of 512 that decode reads: 6 % more
instead of 50 %. `stores_scores` takes the less; many rows of one head (R = 64: 512 bytes) multiply again. Weights that
are rescaled by the factors of their parts would be as many bytes as scores, and need the maxima of the steps, too.

Tile shapes of key mass, as data: by architecture, form of the cache and rows (queries times heads of a group).

    shared bytes  = [block_n, D] keys, which stay, + num_stages tiles of [block_r, D] queries, 2 bytes per number:
                    128 tokens, 64 rows and 128 channels are 32 KB + 16 KB per tile
    registers     = block_r * block_n float32 of scores: 64 per thread at 4 warps, and no accumulator besides

A program reads its keys once. 64 queries of 4 heads are 256 rows, so 256 operations per byte of keys in 16 bits.
`python -m gpu_kernels.measure` times every candidate of a row; MEASURED.md says which rows have been measured.
"""

# Branches on constexpr: the compiler sees one of them. Triton's stubs are wrong about shifted words.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.attention.codes_triton import scale_and_middle, token_words
from gpu_kernels.attention.configs import Config, Rows, find
from gpu_kernels.attention.flash_launches import Sequences, Work
from gpu_kernels.attention.flash_triton import load_tile
from gpu_kernels.attention.key_mass import Operands
from gpu_kernels.attention.paged import CODES, PagedCache, scale_words
from gpu_kernels.attention.paged_attention import PagedOperands
from gpu_kernels.attention.pages_triton import tile_offsets, tile_page
from gpu_kernels.attention.parts_triton import LOG2_E
from gpu_kernels.attention.prefill_configs import paged_form
from gpu_kernels.fp8_triton import readable, widen
from gpu_kernels.launch import Launch
from gpu_kernels.tuned import Tuned, chosen

SCORES = Config(4, 1024, 4, 3, 4)  # 16 bytes a thread of each of 4 rows; nothing is multiplied, so no form matters
# "wide": heads past 128 channels.
CONFIGS: dict[tuple[int, str], Rows] = {
    (80, "16 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "16 bit, wide"): [(None, [Config(32, 64, 4, 2, 1)])],
    (80, "8 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 64, 4, 2, 2)])],
    (80, "8 bit, wide"): [(None, [Config(32, 64, 4, 2, 1)])],
    (90, "16 bit"): [
        (16, [Config(16, 128, 4, 1, 2), Config(16, 64, 4, 1, 4)]),
        (None, [Config(64, 128, 4, 2, 2), Config(64, 64, 4, 2, 3)]),
    ],
    (90, "16 bit, wide"): [(None, [Config(64, 64, 4, 2, 1)])],
    (90, "8 bit"): [(16, [Config(16, 128, 4, 1, 2)]), (None, [Config(64, 128, 4, 2, 2)])],
    (90, "8 bit, wide"): [(None, [Config(64, 64, 4, 2, 1)])],
}
# Not tuned for its tensor memory: Hopper's shapes.
CONFIGS |= {(100, form): rows for (arch, form), rows in CONFIGS.items() if arch == 90}
CONFIGS[100, "16 bit"] = [(most, candidates[:1]) for most, candidates in CONFIGS[90, "16 bit"]]  # 64x64 spills


def key_mass_triton(operands: Operands, mass: Tensor, config: Config | None = None) -> None:
    """Writes mass [B, Hkv, S]."""
    TUNED.run(operands, mass, config=config)


def row_of(operands: Operands, arch: int) -> tuple[str, list[Config]]:
    """(name, candidates)"""
    query, cache = operands.query, operands.cache
    return row(arch, cache.is_codes, query.shape[-1], operands.observed * operands.group)


def launches(operands: Operands, mass: Tensor, config: Config, arch: int) -> list[Launch]:
    query, sequences = operands.query, Sequences(len(operands.cache.seq_lens), 0, operands.cu_queries)
    return [_launch(operands, query, operands.lse, mass, sequences, operands.observed, None, config, arch)]


def stores_scores(num_rows: int, cache: PagedCache) -> bool:
    """Whether scores of so many rows, written and read, are no more bytes than the keys."""
    return 2 * 4 * num_rows <= cache.keys.shape[-1] * cache.keys.itemsize


def mass_after(work: Work, mass: Tensor, observed: int, arch: int) -> Launch:
    """The launch that writes the mass of a sequence's last `observed` queries, once those of `work` have run."""
    paged, query, config = work.paged, work.query, SCORES
    assert paged is not None  # mass is of slots in pages
    if work.scores is None:
        by_keys = row(arch, paged.cache.is_codes, query.shape[-1], observed * paged.group)
        config = chosen("key_mass", *by_keys, query.device)
    return _launch(paged, query, work.lse, mass, work.sequences, observed, work.scores, config, arch)


def _launch(
    paged: PagedOperands,
    query: Tensor,
    lse: Tensor,
    mass: Tensor,
    sequences: Sequences,
    observed: int,
    scores: Tensor | None,
    config: Config,
    arch: int,
) -> Launch:
    """query [tokens, H, D]; lse [tokens, H] and mass [B, Hkv, S] dense; scores as `Work` has them, else from keys"""
    cache, has_scores = paged.cache, scores is not None
    head_size, num_slots = query.shape[-1], mass.shape[-1]
    arguments = {
        "query_ptr": None if has_scores else query,
        "key_ptr": None if has_scores else readable(cache.keys, arch),
        "scores_ptr": scores,
        "lse_ptr": lse,
        "cu_queries_ptr": sequences.cu_queries,
        "block_table_ptr": cache.block_table,
        "seq_lens_ptr": cache.seq_lens,
        "key_scale_ptr": None if has_scores or cache.key_scale is None else scale_words(cache.key_scale),
        "mass_ptr": mass,
        "num_queries": sequences.most_queries,
        "num_heads": query.shape[1],
        "num_slots": num_slots,
        "mass_queries": observed,
        "window": paged.window,
        "softmax_scale": paged.scale * LOG2_E.value,
        "stride_qt": query.stride(0),
        "stride_qh": query.stride(1),
        "stride_kp": cache.keys.stride(0),
        "stride_kt": cache.keys.stride(1),
        "stride_kh": cache.keys.stride(2),
        "stride_tb": cache.block_table.stride(0),
        "stride_tp": cache.block_table.stride(1),
        "stride_l": cache.seq_lens.stride(0),
        "stride_lh": cache.seq_lens.stride(1) if cache.has_head_lengths else None,
        "stride_scale": cache.scale_strides[2],
        "stride_sp": cache.scale_strides[0],
        "stride_st": cache.scale_strides[1],
        "GROUP": paged.group,
        "KEY_SIZE": head_size,
        "PAGE_SIZE": cache.page_size,
        "FORMAT": CODES.get(cache.keys.dtype, ""),
        "TOKEN_SCALES": cache.has_token_scales and not has_scores,
        "MINIMA": cache.has_minima and not has_scores,
        "BLOCK_R": config.block_r,
        "BLOCK_N": config.block_n,
        "BLOCK_D": triton.next_power_of_2(head_size),
    }
    grid = (triton.cdiv(num_slots, config.block_n), cache.num_kv_heads, sequences.count)
    return Launch(key_mass_kernel, grid, arguments, config.num_warps, config.num_stages)


@triton.jit
def key_mass_kernel(
    # pointers; a launch without one passes None
    query_ptr,
    key_ptr,
    scores_ptr,  # [B, Hkv, mass_queries * GROUP, num_slots], in units of log 2; else query and keys
    lse_ptr,
    cu_queries_ptr,  # else num_queries a sequence
    block_table_ptr,
    seq_lens_ptr,
    key_scale_ptr,
    mass_ptr,
    # sizes
    num_queries,
    num_heads,
    num_slots,
    mass_queries,
    window,
    softmax_scale,  # times log2(e)
    # strides, in elements; scores, lse and mass are dense
    stride_qt,
    stride_qh,
    stride_kp,
    stride_kt,
    stride_kh,
    stride_tb,
    stride_tp,
    stride_l,
    stride_lh,  # None: one length for all heads
    stride_scale,  # 0: one scale for all heads
    stride_sp,  # of scales per token
    stride_st,
    # form of the operands
    GROUP: tl.constexpr,
    KEY_SIZE: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    FORMAT: tl.constexpr,
    TOKEN_SCALES: tl.constexpr,
    MINIMA: tl.constexpr,
    # tile shape
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    start = tl.program_id(0) * BLOCK_N
    i_kv = tl.program_id(1).to(tl.int64)
    i_b = tl.program_id(2).to(tl.int64)
    if cu_queries_ptr is None:
        first_query = i_b * num_queries
    else:
        first_query = tl.load(cu_queries_ptr + i_b).to(tl.int64)
        num_queries = (tl.load(cu_queries_ptr + i_b + 1) - first_query).to(tl.int32)
    p_length = seq_lens_ptr + i_b * stride_l
    if stride_lh is not None:
        p_length += i_kv * stride_lh
    length = tl.load(p_length)

    # Query i is token before + i. Those that count and may see a token of this block are [i_first, i_end).
    before = length - num_queries
    i_first = tl.maximum(tl.maximum(num_queries - mass_queries, start - before), 0)
    i_end = num_queries
    if window is not None:
        i_end = tl.minimum(i_end, start + BLOCK_N - 1 + window - before)
    o_n = start + tl.arange(0, BLOCK_N)
    b_mass = tl.zeros((BLOCK_N,), dtype=tl.float32)
    if scores_ptr is None:
        page = tile_page(block_table_ptr + i_b * stride_tb, start, length, stride_tp, PAGE_SIZE, BLOCK_N)
        p_k = key_ptr + i_kv * stride_kh + tile_offsets(page, start, stride_kp, stride_kt, PAGE_SIZE, BLOCK_N)
        b_k = widen(load_tile(p_k, o_n < length, KEY_SIZE, BLOCK_D), FORMAT, query_ptr.dtype.element_ty)
        scale = softmax_scale
        if TOKEN_SCALES:
            o_scale = i_kv * stride_scale + tile_offsets(page, start, stride_sp, stride_st, PAGE_SIZE, BLOCK_N)
            b_scale = token_words(key_scale_ptr + o_scale, o_n < length)
            if MINIMA:
                b_scale, b_middle = scale_and_middle(b_scale)  # [BLOCK_N]
            scale = softmax_scale * b_scale[None, :]
        elif key_scale_ptr is not None:
            scale = softmax_scale * tl.load(key_scale_ptr + i_kv * stride_scale)
    else:
        unobserved = (num_queries - mass_queries) * GROUP
        p_scores = scores_ptr + ((i_b * tl.num_programs(1) + i_kv) * mass_queries * GROUP - unobserved) * num_slots
    for i_row in range(i_first * GROUP, i_end * GROUP, BLOCK_R):
        o_row = i_row + tl.arange(0, BLOCK_R)
        i_query = o_row // GROUP
        m_row = i_query < i_end
        i_head = i_kv * GROUP + o_row % GROUP
        i_token = (before + i_query)[:, None]  # [BLOCK_R, 1]
        b_visible = m_row[:, None] & (o_n[None, :] <= i_token)
        if window is not None:
            b_visible &= o_n[None, :] > i_token - window
        if scores_ptr is None:
            p_q = query_ptr + (first_query + i_query) * stride_qt + i_head * stride_qh
            b_q = load_tile(p_q, m_row, KEY_SIZE, BLOCK_D)  # [BLOCK_R, BLOCK_D]
            b_s = tl.dot(b_q, tl.trans(b_k)) * scale  # [BLOCK_R, BLOCK_N]
            if MINIMA:
                b_s += tl.sum(b_q.to(tl.float32), axis=1)[:, None] * b_middle[None, :] * softmax_scale
        else:
            p_s = p_scores + o_row.to(tl.int64)[:, None] * num_slots + o_n[None, :]
            b_s = tl.load(p_s, mask=b_visible & (o_n < num_slots)[None, :], other=0.0)
        b_lse = tl.load(lse_ptr + (first_query + i_query) * num_heads + i_head, mask=m_row, other=0.0) * LOG2_E
        b_mass += tl.sum(tl.where(b_visible, tl.exp2(b_s - b_lse[:, None]), 0.0), axis=0)
    tl.store(mass_ptr + (i_b * tl.num_programs(1) + i_kv) * num_slots + o_n, b_mass, mask=o_n < num_slots)


TUNED = Tuned("key_mass", key_mass_kernel, row_of, launches)


def row(arch: int, is_codes: bool, head_size: int, num_rows: int) -> tuple[str, list[Config]]:
    """(name, candidates) of the row of CONFIGS for so many queries times heads of a group.

    raises  NotImplementedError if the architecture has no rows
    """
    return find("key_mass", CONFIGS, arch, paged_form(is_codes, head_size), num_rows)
