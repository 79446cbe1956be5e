"""8-bit codes of keys and values as float16, and queries that meet them, in Triton.

Every code is exact in float16, and a GPU makes two of them with one instruction (FP8) or two and a half (int8); to
bfloat16 it takes three times as many. bfloat16 reaches further than float16, so each row of queries is scaled by a
power of two on the way.
"""

# Kernel bodies are Triton's language, whose stubs are wrong about constexpr arguments and the results of reductions.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
import triton
import triton.language as tl

from gpu_kernels.fp8_triton import widen

# Four int8 codes of a register to two registers of float16. With its sign turned a code is 128 + code in 0..255; under
# the upper byte of 1024 (0x64), whose last bit is 1, that is 1152 + code.
INT8_ASM = tl.constexpr("""{ .reg .b32 turned, upper, base;
    xor.b32 turned, $2, 0x80808080;
    mov.b32 upper, 0x64646464;
    mov.b32 base, 0x64806480;
    prmt.b32 $0, turned, upper, 0x4140;
    prmt.b32 $1, turned, upper, 0x4342;
    sub.f16x2 $0, $0, base;
    sub.f16x2 $1, $1, base; }""")


@triton.jit
def half_codes(b_codes, FORMAT: tl.constexpr, COMPILED: tl.constexpr):
    """float16 of the codes, exactly; FORMAT as in `widen`.

    COMPILED  False under the interpreter, which knows no PTX
    """
    if FORMAT != "int8":
        return widen(b_codes, FORMAT, tl.float16)
    elif COMPILED:
        return tl.inline_asm_elementwise(INT8_ASM, "=r,=r,r", [b_codes], tl.float16, is_pure=True, pack=4)
    else:
        return b_codes.to(tl.float32).to(tl.float16)


@triton.jit
def half_rows(b_x):
    """(float16 rows [R, D], a power of two [R] float32 that gives x back); a row of float16 is taken as it is.

    A row's largest is in [2**14, 2**15): bfloat16's 8 bits are exact down to 2**-32 of it, and inf and NaN stay.
    """
    if b_x.dtype == tl.float16:
        return b_x, tl.full((b_x.shape[0],), 1.0, tl.float32)
    else:
        b_wide = b_x.to(tl.float32)
        b_bits = tl.max(tl.abs(b_wide), axis=1).to(tl.int32, bitcast=True) >> 23  # [R] exponent and 127
        b_bits = tl.maximum(b_bits, 16)
        b_scale = ((268 - b_bits) << 23).to(tl.float32, bitcast=True)
        b_unit = ((b_bits - 14) << 23).to(tl.float32, bitcast=True)
        return (b_wide * b_scale[:, None]).to(tl.float16), b_unit


@triton.jit
def token_words(p_scale, mask):
    """Scales of tokens, or the words of `paged.scale_words`; 0 past the mask."""
    return tl.load(p_scale, mask=mask, other=0)


@triton.jit
def scale_and_middle(b_words):
    """float32 scale and minimum + 128 * scale of words: a signed code then is scale * code + middle."""
    b_scale = b_words.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    b_minimum = (b_words >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return b_scale, b_minimum + 128.0 * b_scale
