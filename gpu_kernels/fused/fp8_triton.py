"""From float32 to FP8 e4m3 codes (4 bits of exponent with bias 7, 3 of mantissa, largest 448, no inf), in a kernel."""

import triton
import triton.language as tl

CONVERTS_FP8 = 89  # from this architecture on a GPU has the conversion as an instruction


def has_conversion(arch: int, kernel: object) -> bool:
    """Whether to leave the conversion to the GPU: older ones lack it, and the interpreter's rounds otherwise.

    kernel  what triton.jit made of the kernel: a JITFunction compiles, anything else interprets
    """
    return arch >= CONVERTS_FP8 and isinstance(kernel, triton.JITFunction)


@triton.jit
def e4m3_codes(b_x, HAS_CONVERSION: tl.constexpr):
    """uint8 codes, rounded to nearest, halves to even; what is past 448 saturates, NaN stays NaN."""
    if HAS_CONVERSION:
        # The instruction saturates too; said here, it does not depend on the version that picks it.
        b_x = tl.where(b_x == b_x, tl.minimum(tl.maximum(b_x, -448.0), 448.0), b_x)
        b_codes = b_x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        b_abs = tl.minimum(tl.abs(b_x), 448.0)
        b_bits = b_abs.to(tl.int32, bitcast=True)
        # Normal codes: cut 23 bits of mantissa to 3 with the half-to-even carry, move the bias from 127 to 7.
        b_normal = ((b_bits + 0x7FFFF + ((b_bits >> 20) & 1)) >> 20) - (120 << 3)
        # Below 2**-6 codes count steps of 2**-9: adding 1.5 * 2**23 rounds to an integer, halves to even.
        b_small = (b_abs * 512.0 + 12582912.0 - 12582912.0).to(tl.int32)
        b_code = tl.where(b_abs < 0.015625, b_small, b_normal)  # 2**-6
        b_code = tl.where(b_x == b_x, b_code, 0x7F)
        b_sign = (b_x.to(tl.int32, bitcast=True) >> 24) & 0x80
        b_codes = (b_code | b_sign).to(tl.uint8)
    return b_codes
