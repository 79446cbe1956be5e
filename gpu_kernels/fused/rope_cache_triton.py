"""Rotation and cache write in Triton; the maths is in rope.py and rope_cache.py.

Split    one program a token and a block of heads, first those of the query, then those of key and value together.
Program  reads its heads once, and the token's row of cos and sin, which all of its programs find in the L1 or L2.
Edges    a token without a slot is rotated and not written. All heads of a token take one slot, or each takes its own.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about constexpr variables.
# pyright: reportAssignmentType=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_kernels.attention.paged import scale_words
from gpu_kernels.fp8_triton import fp8_codes, has_conversion
from gpu_kernels.fused.rope_cache import LARGEST, WORDS, Operands
from gpu_kernels.launch import Launch, architecture, run_all

# Heads of 128 features: 2048 per program of 4 warps, 16 per thread, 32 bytes of bfloat16 in flight.
HEADS = 16
NUM_WARPS = 4


def rope_cache_triton(operands: Operands, rotated: Tensor) -> None:
    """Writes rotated and the caches.

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("rope_cache", rotated, rope_cache_kernel)
    run_all(launches(operands, rotated, arch), rotated.device)


def launches(operands: Operands, rotated: Tensor, arch: int) -> list[Launch]:
    query, key, value, cos = operands.query, operands.key, operands.value, operands.cos
    key_cache, value_cache = operands.key_cache, operands.value_cache
    T, H, D = query.shape
    G, E, half = key.shape[1], value.shape[2], cos.shape[1]
    heads = min(HEADS, triton.next_power_of_2(max(H, G)))
    arguments = {
        "query_ptr": query,
        "key_ptr": key,
        "value_ptr": value,
        "rotated_ptr": rotated,
        "key_cache_ptr": _bytes(key_cache),
        "value_cache_ptr": _bytes(value_cache),
        "positions_ptr": operands.positions,
        "slots_ptr": operands.slots,
        "cos_ptr": cos,
        "sin_ptr": operands.sin,
        "key_scale_ptr": _words(operands.key_scale),
        "value_scale_ptr": _words(operands.value_scale),
        "num_query_heads": H,
        "num_heads": G,
        "page_size": key_cache.shape[1],
        "stride_qt": query.stride(0),
        "stride_qh": query.stride(1),
        "stride_kt": key.stride(0),
        "stride_kh": key.stride(1),
        "stride_vt": value.stride(0),
        "stride_vh": value.stride(1),
        "stride_kcp": key_cache.stride(0),
        "stride_kct": key_cache.stride(1),
        "stride_kch": key_cache.stride(2),
        "stride_vcp": value_cache.stride(0),
        "stride_vct": value_cache.stride(1),
        "stride_vch": value_cache.stride(2),
        "stride_ks": _scale_stride(operands.key_scale),
        "stride_vs": _scale_stride(operands.value_scale),
        "stride_p": operands.positions.stride(0),
        "stride_s": operands.slots.stride(0),
        "stride_sh": operands.slots.stride(1) if operands.has_head_slots else 0,
        "D": D,
        "E": E,
        "HALF": half,
        "BLOCK_HALF": triton.next_power_of_2(max(1, half)),
        "BLOCK_REST": triton.next_power_of_2(max(1, D - 2 * half)),
        "BLOCK_E": triton.next_power_of_2(max(1, E)),
        "HEADS": heads,
        "INTERLEAVED": operands.interleaved,
        "FORMAT": WORDS.get(key_cache.dtype, ""),
        "TOKEN_SCALES": operands.has_token_scales,
        "HAS_CONVERSION": has_conversion(arch, rope_cache_kernel),
    }
    grid = (T, triton.cdiv(H, heads) + triton.cdiv(G, heads))
    return [Launch(rope_cache_kernel, grid, arguments, NUM_WARPS)]


def _scale_stride(scale: Tensor | None) -> int:
    """0: all heads have the same."""
    return 0 if scale is None or scale.shape[-1] == 1 else scale.stride(-1)


def _bytes(cache: Tensor) -> Tensor:
    return cache.view(torch.uint8) if cache.dtype in LARGEST else cache


def _words(scale: Tensor | None) -> Tensor | None:
    return None if scale is None else scale_words(scale)


@triton.jit
def rotate_pairs(p_x, p_cos, p_sin, m_h, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """(first', second' [HEADS, BLOCK_HALF] float32, their places in a head [BLOCK_HALF] each).

    p_x  [HEADS] of each head's first feature; p_cos, p_sin of the token's row
    """
    o_i = tl.arange(0, BLOCK_HALF)
    m_i = o_i < HALF
    o_first = o_i * 2 if INTERLEAVED else o_i
    o_second = o_first + (1 if INTERLEAVED else HALF)
    mask = m_h[:, None] & m_i[None, :]
    b_first = tl.load(p_x[:, None] + o_first[None, :], mask=mask, other=0.0).to(tl.float32)
    b_second = tl.load(p_x[:, None] + o_second[None, :], mask=mask, other=0.0).to(tl.float32)
    b_cos = tl.load(p_cos + o_i, mask=m_i, other=0.0)[None, :]
    b_sin = tl.load(p_sin + o_i, mask=m_i, other=0.0)[None, :]
    return b_first * b_cos - b_second * b_sin, b_second * b_cos + b_first * b_sin, o_first, o_second


@triton.jit
def store_cached(p_cache, b_x, b_scale, b_minimum, mask, FORMAT: tl.constexpr, HAS_CONVERSION: tl.constexpr):
    """b_x [HEADS, BLOCK] float32 in the cache's type; as codes of b_x / b_scale [HEADS, 1] if FORMAT names some, and of
    (b_x - b_minimum) / b_scale if it is "int8".
    """
    if FORMAT == "":
        tl.store(p_cache, b_x.to(p_cache.dtype.element_ty), mask=mask)
    elif FORMAT == "int8":
        b_step = tl.minimum(tl.maximum(tl.div_rn(b_x - b_minimum, b_scale + tl.zeros_like(b_x)), 0.0), 255.0)
        # As in row_codes_triton.int8_codes; turning the upper bit takes 128 off.
        b_codes = ((b_step + 12582912.0).to(tl.int32, bitcast=True) ^ 0x80).to(tl.int8)
        tl.store(p_cache, b_codes, mask=mask)
    else:
        b_codes = fp8_codes(tl.div_rn(b_x, b_scale + tl.zeros_like(b_x)), FORMAT, HAS_CONVERSION)
        tl.store(p_cache, b_codes, mask=mask)


@triton.jit
def absmax_bits(b_x):
    """[HEADS] of b_x [HEADS, BLOCK]. As integers the bits of magnitudes are in their order, inf and NaN at the end."""
    return tl.max(b_x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)


@triton.jit
def found_scale(b_bits, p_scale, mask, FORMAT: tl.constexpr):
    """[HEADS, 1]: the scale that brings each head's largest magnitude to the largest code; it is stored.

    b_bits  of the largest magnitudes [HEADS]; of a head that is not finite the scale is NaN, so that all of it is
    """
    b_absmax = tl.cast(b_bits, tl.float32, bitcast=True)
    largest: tl.constexpr = 448.0 if FORMAT == "e4m3" else 57344.0
    b_scale = tl.maximum(tl.div_rn(b_absmax, largest), 7.888609052210118e-31)  # 2**-100
    b_scale = tl.where(b_absmax < float("inf"), b_scale, float("nan"))
    tl.store(p_scale, b_scale, mask=mask)
    return b_scale[:, None]


@triton.jit
def least_and_greatest(b_x, mask):
    """[HEADS] each, of b_x [HEADS, BLOCK] where the mask is set"""
    inf = float("inf")
    return tl.min(tl.where(mask, b_x, inf), axis=1), tl.max(tl.where(mask, b_x, -inf), axis=1)


@triton.jit
def found_grid(b_least, b_greatest, b_bits, p_words, mask):
    """(scale, minimum) [HEADS, 1] float32 of int8 codes; they are stored as one word per head.

    b_bits  as of `found_scale`; of a head with a NaN, which a minimum may drop, both are NaN
    """
    is_nan = b_bits > 0x7F800000
    b_minimum = tl.minimum(tl.maximum(b_least, -65504.0), 65504.0)
    b_minimum = tl.where(is_nan, float("nan"), b_minimum).to(tl.float16)
    b_span = b_greatest - b_minimum.to(tl.float32)
    b_scale = tl.minimum(tl.maximum(tl.div_rn(b_span, 255.0), 5.9604644775390625e-08), 65504.0)  # from 2**-24 on
    b_scale = tl.where(is_nan, float("nan"), b_scale).to(tl.float16)
    b_low = b_scale.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    tl.store(p_words, b_low | (b_minimum.to(tl.int16, bitcast=True).to(tl.int32) << 16), mask=mask)
    return b_scale.to(tl.float32)[:, None], b_minimum.to(tl.float32)[:, None]


@triton.jit
def rope_cache_kernel(
    # pointers
    query_ptr,
    key_ptr,
    value_ptr,
    rotated_ptr,
    key_cache_ptr,
    value_cache_ptr,
    positions_ptr,
    slots_ptr,
    cos_ptr,
    sin_ptr,
    key_scale_ptr,
    value_scale_ptr,
    # sizes
    num_query_heads,
    num_heads,
    page_size,
    # strides, in elements; features, rotated, cos and sin are dense
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_kcp,
    stride_kct,
    stride_kch,
    stride_vcp,
    stride_vct,
    stride_vch,
    stride_ks,
    stride_vs,
    stride_p,
    stride_s,
    stride_sh,
    # tile shape
    D: tl.constexpr,
    E: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    BLOCK_E: tl.constexpr,
    HEADS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FORMAT: tl.constexpr,
    TOKEN_SCALES: tl.constexpr,
    HAS_CONVERSION: tl.constexpr,
):
    i_t, i_block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    num_query_blocks = tl.cdiv(num_query_heads, HEADS)
    position = tl.load(positions_ptr + i_t * stride_p).to(tl.int64)
    p_cos, p_sin = cos_ptr + position * HALF, sin_ptr + position * HALF
    o_rest = 2 * HALF + tl.arange(0, BLOCK_REST)
    m_rest = (o_rest < D)[None, :]

    m_pair = (tl.arange(0, BLOCK_HALF) < HALF)[None, :]
    if i_block < num_query_blocks:
        o_h = i_block * HEADS + tl.arange(0, HEADS)
        m_h = o_h < num_query_heads
        p_x = query_ptr + i_t * stride_qt + o_h.to(tl.int64) * stride_qh
        p_y = rotated_ptr + (i_t * num_query_heads + o_h) * D
        b_first, b_second, o_first, o_second = rotate_pairs(p_x, p_cos, p_sin, m_h, HALF, BLOCK_HALF, INTERLEAVED)
        m_pairs = m_h[:, None] & m_pair
        tl.store(p_y[:, None] + o_first[None, :], b_first.to(rotated_ptr.dtype.element_ty), mask=m_pairs)
        tl.store(p_y[:, None] + o_second[None, :], b_second.to(rotated_ptr.dtype.element_ty), mask=m_pairs)
        if 2 * HALF < D:
            b_rest = tl.load(p_x[:, None] + o_rest[None, :], mask=m_h[:, None] & m_rest, other=0.0)
            tl.store(p_y[:, None] + o_rest[None, :], b_rest, mask=m_h[:, None] & m_rest)  # [HEADS, BLOCK_REST]
    else:
        o_g = ((i_block - num_query_blocks) * HEADS + tl.arange(0, HEADS)).to(tl.int64)
        b_slot = tl.load(slots_ptr + i_t * stride_s + o_g * stride_sh, mask=o_g < num_heads, other=-1).to(tl.int64)
        m_g = b_slot >= 0
        o_page, o_place = b_slot // page_size, b_slot % page_size  # [HEADS]
        b_key_scale, b_value_scale = tl.zeros((HEADS, 1), dtype=tl.float32), tl.zeros((HEADS, 1), dtype=tl.float32)
        b_key_minimum, b_value_minimum = b_key_scale, b_value_scale
        if FORMAT != "":
            if not TOKEN_SCALES:
                b_key_scale = tl.load(key_scale_ptr + o_g * stride_ks, mask=m_g, other=1.0)[:, None]
                b_value_scale = tl.load(value_scale_ptr + o_g * stride_vs, mask=m_g, other=1.0)[:, None]

        p_k = key_ptr + i_t * stride_kt + o_g * stride_kh
        p_kc = key_cache_ptr + o_page * stride_kcp + o_place * stride_kct + o_g * stride_kch
        b_first, b_second, o_first, o_second = rotate_pairs(p_k, p_cos, p_sin, m_g, HALF, BLOCK_HALF, INTERLEAVED)
        m_pairs, m_rest_k = m_g[:, None] & m_pair, m_g[:, None] & m_rest
        b_rest_k = tl.zeros((HEADS, BLOCK_REST), dtype=tl.float32)
        if 2 * HALF < D:
            b_rest_k = tl.load(p_k[:, None] + o_rest[None, :], mask=m_rest_k, other=0.0).to(tl.float32)
        o_scale = (o_page * page_size + o_place) * num_heads + o_g  # of scales per token
        if TOKEN_SCALES:
            b_bits = tl.maximum(tl.maximum(absmax_bits(b_first), absmax_bits(b_second)), absmax_bits(b_rest_k))
            if FORMAT == "int8":
                b_low_1, b_high_1 = least_and_greatest(b_first, m_pair)
                b_low_2, b_high_2 = least_and_greatest(b_second, m_pair)
                b_low_3, b_high_3 = least_and_greatest(b_rest_k, m_rest)
                b_low = tl.minimum(tl.minimum(b_low_1, b_low_2), b_low_3)
                b_high = tl.maximum(tl.maximum(b_high_1, b_high_2), b_high_3)
                b_key_scale, b_key_minimum = found_grid(b_low, b_high, b_bits, key_scale_ptr + o_scale, m_g)
            else:
                b_key_scale = found_scale(b_bits, key_scale_ptr + o_scale, m_g, FORMAT)
        p_kc = p_kc[:, None]
        store_cached(p_kc + o_first[None, :], b_first, b_key_scale, b_key_minimum, m_pairs, FORMAT, HAS_CONVERSION)
        store_cached(p_kc + o_second[None, :], b_second, b_key_scale, b_key_minimum, m_pairs, FORMAT, HAS_CONVERSION)
        if 2 * HALF < D:
            p_rest = p_kc + o_rest[None, :]
            store_cached(p_rest, b_rest_k, b_key_scale, b_key_minimum, m_rest_k, FORMAT, HAS_CONVERSION)

        o_e = tl.arange(0, BLOCK_E)
        m_e = m_g[:, None] & (o_e < E)[None, :]
        p_v = value_ptr + i_t * stride_vt + o_g * stride_vh
        p_vc = value_cache_ptr + o_page * stride_vcp + o_place * stride_vct + o_g * stride_vch
        b_value = tl.load(p_v[:, None] + o_e[None, :], mask=m_e, other=0.0).to(tl.float32)  # [HEADS, BLOCK_E]
        if TOKEN_SCALES:
            if FORMAT == "int8":
                b_low, b_high = least_and_greatest(b_value, (o_e < E)[None, :])
                b_bits = absmax_bits(b_value)
                b_value_scale, b_value_minimum = found_grid(b_low, b_high, b_bits, value_scale_ptr + o_scale, m_g)
            else:
                b_value_scale = found_scale(absmax_bits(b_value), value_scale_ptr + o_scale, m_g, FORMAT)
        p_vc = p_vc[:, None] + o_e[None, :]
        store_cached(p_vc, b_value, b_value_scale, b_value_minimum, m_e, FORMAT, HAS_CONVERSION)
