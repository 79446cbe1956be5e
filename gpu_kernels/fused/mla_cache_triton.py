"""MLA's cache write in Triton; the maths is in mla_cache.py and rope.py.

Split    one program a token: 1152 bytes read, 656 or 1152 written.
Edges    a token without a slot is not read either.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr.
# pyright: reportOperatorIssue=false
import torch
import triton
import triton.language as tl

from gpu_kernels.fp8_triton import e4m3_codes, has_conversion
from gpu_kernels.fused.mla_cache import GROUP, LATENT_SIZE, NUM_SCALES, ROPE_SIZE, Operands
from gpu_kernels.launch import Launch, architecture, run_all

NUM_WARPS = 1  # 16 latents a thread: two 16-byte loads of bfloat16


def mla_cache_triton(operands: Operands) -> None:
    """Writes the cache.

    raises  RuntimeError on CPU tensors outside the interpreter
    """
    arch = architecture("mla_cache", operands.cache, mla_cache_kernel)
    run_all(launches(operands, arch), operands.cache.device)


def launches(operands: Operands, arch: int) -> list[Launch]:
    latent, key, cache, is_fp8 = operands.latent, operands.key, operands.cache, operands.is_fp8
    ropes = cache.view(torch.bfloat16) if is_fp8 else cache
    scales = cache.view(torch.float32) if is_fp8 else None
    arguments = {
        "latent_ptr": latent,
        "key_ptr": key,
        "latents_ptr": cache,
        "scales_ptr": scales,
        "ropes_ptr": ropes,
        "positions_ptr": operands.positions,
        "slots_ptr": operands.slots,
        "cos_ptr": operands.cos,
        "sin_ptr": operands.sin,
        "page_size": cache.shape[1],
        "stride_lt": latent.stride(0),
        "stride_kt": key.stride(0),
        "stride_cp": cache.stride(0),
        "stride_ct": cache.stride(1),
        "stride_sp": 0 if scales is None else scales.stride(0),
        "stride_st": 0 if scales is None else scales.stride(1),
        "stride_rp": ropes.stride(0),
        "stride_rt": ropes.stride(1),
        "stride_p": operands.positions.stride(0),
        "stride_s": operands.slots.stride(0),
        # Where scales and the rotated key start, in their own types.
        "SCALES_AT": LATENT_SIZE // 4,
        "ROPE_AT": (LATENT_SIZE + 4 * NUM_SCALES) // 2 if is_fp8 else LATENT_SIZE,
        "GROUP": GROUP,
        "NUM_GROUPS": NUM_SCALES,
        "HALF": ROPE_SIZE // 2,
        "INTERLEAVED": operands.interleaved,
        "HAS_CONVERSION": has_conversion(arch, mla_cache_kernel),
    }
    return [Launch(mla_cache_kernel, (latent.shape[0],), arguments, NUM_WARPS)]


@triton.jit
def mla_cache_kernel(
    # pointers
    latent_ptr,
    key_ptr,
    latents_ptr,
    scales_ptr,
    ropes_ptr,
    positions_ptr,
    slots_ptr,
    cos_ptr,
    sin_ptr,
    # sizes
    page_size,
    # strides, in elements; features, cos and sin are dense
    stride_lt,
    stride_kt,
    stride_cp,
    stride_ct,
    stride_sp,
    stride_st,
    stride_rp,
    stride_rt,
    stride_p,
    stride_s,
    # layout
    SCALES_AT: tl.constexpr,
    ROPE_AT: tl.constexpr,
    GROUP: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    HAS_CONVERSION: tl.constexpr,
):
    i_t = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + i_t * stride_s).to(tl.int64)
    if slot >= 0:
        i_page, i_place = slot // page_size, slot % page_size
        o_g, o_c = tl.arange(0, NUM_GROUPS), tl.arange(0, GROUP)
        o_latent = o_g[:, None] * GROUP + o_c[None, :]
        b_latent = tl.load(latent_ptr + i_t * stride_lt + o_latent)  # [NUM_GROUPS, GROUP]
        p_latents = latents_ptr + i_page * stride_cp + i_place * stride_ct + o_latent
        if scales_ptr is None:
            tl.store(p_latents, b_latent)
        else:
            b_x = b_latent.to(tl.float32)
            inf = float("inf")
            # A maximum may drop NaN; inf survives it and marks the group just as well.
            b_absmax = tl.max(tl.where(b_x == b_x, tl.abs(b_x), inf), axis=1)  # [NUM_GROUPS]
            m_finite = b_absmax < inf
            b_scale = tl.maximum(tl.div_rn(b_absmax, 448.0), 7.888609052210118e-31)  # 2**-100
            b_q = tl.where(m_finite[:, None], tl.div_rn(b_x, b_scale[:, None]), 0.0)
            tl.store(p_latents, e4m3_codes(b_q, HAS_CONVERSION))
            p_scales = scales_ptr + i_page * stride_sp + i_place * stride_st + SCALES_AT + o_g
            tl.store(p_scales, tl.where(m_finite, b_scale, float("nan")))

        position = tl.load(positions_ptr + i_t * stride_p).to(tl.int64)
        o_i = tl.arange(0, HALF)
        o_first = o_i * 2 if INTERLEAVED else o_i
        o_second = o_first + (1 if INTERLEAVED else HALF)
        b_cos = tl.load(cos_ptr + position * HALF + o_i)  # [HALF]
        b_sin = tl.load(sin_ptr + position * HALF + o_i)
        b_first = tl.load(key_ptr + i_t * stride_kt + o_first).to(tl.float32)
        b_second = tl.load(key_ptr + i_t * stride_kt + o_second).to(tl.float32)
        p_rope = ropes_ptr + i_page * stride_rp + i_place * stride_rt + ROPE_AT
        tl.store(p_rope + o_first, (b_first * b_cos - b_second * b_sin).to(ropes_ptr.dtype.element_ty))
        tl.store(p_rope + o_second, (b_second * b_cos + b_first * b_sin).to(ropes_ptr.dtype.element_ty))
