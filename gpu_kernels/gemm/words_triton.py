"""Codes of 4 and 8 bits to floats, two at once, in Triton; the layout of the words is drawn in words_layout.py."""

# Kernel bodies are Triton's language, whose stubs are wrong about operators on tensors and constexpr.
# pyright: reportOperatorIssue=false
import triton
import triton.language as tl


@triton.constexpr_function
def code_offset(dtype, bits):
    """The result of `codes` for a code q = 0.

    The bits of a code with those of 1024 in float16, or of 128 in bfloat16, are a float whose last bit is 1: the sum.
    Eight bits do not fit next to bfloat16's 128; they go through float32, where the offset comes off for nothing.
    """
    if dtype == tl.bfloat16:
        return 128.0 + 8.0 if bits == 4 else 0.0
    return 1024.0 + (8.0 if bits == 4 else 128.0)


@triton.constexpr_function
def float_bits(dtype):
    """The bits of 1024 in float16, of 128 in bfloat16."""
    return 0x6400 if dtype == tl.float16 else 0x4300


@triton.constexpr_function
def codes_asm(dtype, bits, plane):
    """PTX that makes two floats of one plane's codes in the two words of a register.

    4 bits, and 8 in float16   (register >> bits * plane) & mask | float_bits; 0xEA is lop3's table of (a & b) | c
    8 bits in bfloat16         PRMT puts a code under 0x4B0000, which is 2**23 + code in float32; 8388736 is 2**23 + 128
    """
    if dtype == tl.bfloat16 and bits == 8:
        low, high = 0x7440 | plane, 0x7440 | 2 + plane
        return f"""{{ .reg .b32 magic, a, b;
            mov.b32 magic, 0x4B000000;
            prmt.b32 a, $1, magic, 0x{low:X};
            prmt.b32 b, $1, magic, 0x{high:X};
            sub.f32 a, a, 0f4B000080;
            sub.f32 b, b, 0f4B000080;
            cvt.rn.bf16x2.f32 $0, b, a; }}"""
    mask, one = (1 << bits) - 1, 0x6400 if dtype == tl.float16 else 0x4300
    and_or = f"0x{mask << 16 | mask:08X}, 0x{one << 16 | one:08X}, 0xEA;"
    if plane == 0:
        return f"lop3.b32 $0, $1, {and_or}"
    return f"{{ .reg .b32 moved; shr.u32 moved, $1, {bits * plane}; lop3.b32 $0, moved, {and_or} }}"


@triton.jit
def codes(b_words, like_ptr, BITS: tl.constexpr, PLANE: tl.constexpr, COMPILED: tl.constexpr):
    """code_offset + q of one plane, in the type like_ptr points to: [rows, words] int16 -> the same shape.

    COMPILED  False under the interpreter, which knows no PTX. For one weight of 4 bits LLVM makes 2.1 instructions of
              the plain expression, and the PTX is 0.9 (compiled for sm_90, before the offset is taken off in 0.5 more).
    """
    dtype = like_ptr.dtype.element_ty
    if COMPILED:
        b_q = tl.inline_asm_elementwise(codes_asm(dtype, BITS, PLANE), "=r,r", [b_words], dtype, is_pure=True, pack=2)
    else:
        b_code = (b_words >> (BITS * PLANE)) & ((1 << BITS) - 1)
        if code_offset(dtype, BITS) == 0.0:
            b_q = (b_code - 128).to(dtype)
        else:
            b_q = (b_code | float_bits(dtype)).to(tl.int16).to(dtype, bitcast=True)
    return b_q


@triton.constexpr_function
def codes_of_6_bits_asm(dtype, plane):
    """PTX of `codes_asm` for 4 bits, with 2 bits of another register moved to bits 4 and 5 of each half."""
    bits = 0x6400 if dtype == tl.float16 else 0x4300
    left = 4 - 2 * plane
    move = f"shl.b32 high, $2, {left};" if left >= 0 else f"shr.u32 high, $2, {-left};"
    return f"""{{ .reg .b32 low, high;
        shr.u32 low, $1, {4 * plane};
        lop3.b32 low, low, 0x000F000F, 0x{bits << 16 | bits:08X}, 0xEA;
        {move}
        and.b32 high, high, 0x00300030;
        or.b32 $0, low, high; }}"""


@triton.jit
def codes_of_6_bits(b_words, b_high, like_ptr, PLANE: tl.constexpr, COMPILED: tl.constexpr):
    """As `codes`, of 6 bits: b_words [rows, words] int16 holds 4 of them a plane, b_high int16 below 256 the other 2.

    returns  float of the bits 0, plus q in 0..63
    """
    dtype = like_ptr.dtype.element_ty
    if COMPILED:
        b_q = tl.inline_asm_elementwise(
            codes_of_6_bits_asm(dtype, PLANE), "=r,r,r", [b_words, b_high], dtype, is_pure=True, pack=2
        )
    else:
        b_code = ((b_words >> (4 * PLANE)) & 15) | (((b_high >> (2 * PLANE)) & 3) << 4)
        b_q = (b_code | float_bits(dtype)).to(tl.int16).to(dtype, bitcast=True)
    return b_q
