"""FP8 in a kernel: codes to floats and floats to codes, on GPUs with an instruction for it and without.

e4m3 has 4 bits of exponent with bias 7, 3 of mantissa, largest 448, no inf; e5m2 is float16 without its lower byte.
A GPU before sm_89 gets its codes as bytes and converts them through integers: slower, and as exact.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CONVERTS_FP8 = 89  # from this architecture on a GPU has the conversions as instructions, and FP8 products


def fp8_path(arch: int) -> str:
    """How kernels handle FP8 codes on an architecture, as records say it."""
    return "instructions" if arch >= CONVERTS_FP8 else "through integers"


def readable(codes: Tensor, arch: int) -> Tensor:
    """FP8 codes as a kernel takes them on an architecture: bytes where the GPU cannot convert them; others pass."""
    is_fp8 = codes.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    return codes.view(torch.uint8) if is_fp8 and arch < CONVERTS_FP8 else codes


def has_conversion(arch: int, kernel: object) -> bool:
    """Whether to leave the conversion to the GPU: older ones lack it, and the interpreter's rounds otherwise.

    kernel  result of triton.jit: a JITFunction compiles, anything else interprets
    """
    return arch >= CONVERTS_FP8 and isinstance(kernel, triton.JITFunction)


@triton.jit
def e4m3_codes(b_x, HAS_CONVERSION: tl.constexpr):
    """uint8 codes, rounded to nearest, halves to even; values past 448 saturate, NaN stays NaN."""
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


@triton.jit
def e5m2_codes(b_x, HAS_CONVERSION: tl.constexpr):
    """As `e4m3_codes`; values past 57344 saturate, infinite ones too."""
    if HAS_CONVERSION:
        b_x = tl.where(b_x == b_x, tl.minimum(tl.maximum(b_x, -57344.0), 57344.0), b_x)
        b_codes = b_x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    else:
        b_abs = tl.minimum(tl.abs(b_x), 57344.0)
        b_bits = b_abs.to(tl.int32, bitcast=True)
        # As above: 23 bits of mantissa become 2, and the bias 127 becomes 15.
        b_normal = ((b_bits + 0xFFFFF + ((b_bits >> 21) & 1)) >> 21) - (112 << 2)
        # Below 2**-14 codes count steps of 2**-16.
        b_small = (b_abs * 65536.0 + 12582912.0 - 12582912.0).to(tl.int32)
        b_code = tl.where(b_abs < 6.103515625e-05, b_small, b_normal)  # 2**-14
        b_code = tl.where(b_x == b_x, b_code, 0x7F)
        b_sign = (b_x.to(tl.int32, bitcast=True) >> 24) & 0x80
        b_codes = (b_code | b_sign).to(tl.uint8)
    return b_codes


@triton.jit
def fp8_codes(b_x, FORMAT: tl.constexpr, HAS_CONVERSION: tl.constexpr):
    """uint8 codes of the FORMAT, "e4m3" or "e5m2" """
    if FORMAT == "e4m3":
        return e4m3_codes(b_x, HAS_CONVERSION)
    else:
        return e5m2_codes(b_x, HAS_CONVERSION)


@triton.jit
def widen(b_codes, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """8-bit codes as `dtype` (float16, bfloat16 or float32), exactly; wider elements pass.

    FORMAT  "e4m3", "e5m2", "int8", or "" for elements that are of `dtype` already
    FP8 codes that come as uint8 are for a GPU that has no instruction to convert them (before sm_89).
    """
    if FORMAT == "":
        return b_codes
    elif b_codes.dtype == tl.uint8:
        b_bits = b_codes.to(tl.uint16)
        if FORMAT == "e5m2":  # float16 without its lower byte
            b_half = (b_bits << 8).to(tl.float16, bitcast=True)
        else:
            # e4m3's exponent counts from 7, float16's from 15: in its place all is 2**-8 too small, subnormals too.
            b_half = (((b_bits & 0x80) << 8) | ((b_bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
            b_half = tl.where((b_bits & 0x7F) == 0x7F, float("nan"), b_half).to(tl.float16)
        return b_half.to(dtype)
    elif FORMAT == "int8":
        return b_codes.to(tl.float32).to(dtype)
    else:
        return b_codes.to(dtype)
