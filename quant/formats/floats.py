"""Formats of one number per weight: f32, f16 and bf16, and the float64 and integers of GGUF, which are only read."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from quant.errors import InputError
from quant.formats.base import BlockFormat, ReadOnlyFormat
from quant.formats.bits import HALF_MAX


class FloatFormat(BlockFormat):
    """Weights that are rounded one by one, whatever their importance; NaN and inf are kept, except by f16."""

    block_size = 1
    finite_only = False

    def quantize_blocks(
        self, blocks: np.ndarray, importance: np.ndarray | None = None, effort: str = "fast"
    ) -> np.ndarray:
        return self.encode(blocks)

    @abstractmethod
    def encode(self, weights: np.ndarray) -> np.ndarray:
        """weights [B, 1] float32 -> uint8 [B, block_bytes]"""


class F32(FloatFormat):
    name = "f32"
    gguf_type = 0
    gguf_file_type = 0  # ALL_F32
    block_bytes = 4

    def encode(self, weights: np.ndarray) -> np.ndarray:
        return weights.astype("<f4", copy=False).view(np.uint8)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return data.view("<f4").astype(np.float32, copy=False)


class F16(FloatFormat):
    """IEEE half precision, nearest even; a weight beyond its range is an error, not inf."""

    name = "f16"
    gguf_type = 1
    gguf_file_type = 1  # MOSTLY_F16
    block_bytes = 2
    finite_only = True

    def encode(self, weights: np.ndarray) -> np.ndarray:
        absmax = np.abs(weights).max(initial=0)
        if absmax > HALF_MAX:
            raise InputError(f"f16 holds magnitudes up to {HALF_MAX:.0f}, got {absmax:.6g}; use bf16 or f32")
        return weights.astype("<f2").view(np.uint8)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return data.view("<f2").astype(np.float32)


class BF16(FloatFormat):
    """The upper half of a float32, nearest even; NumPy has no such dtype, so the bits are a uint16.

    15 14       7 6       0
    +-+----------+---------+
    |s| exponent | mantissa|
    +-+----------+---------+
    """

    name = "bf16"
    gguf_type = 30
    gguf_file_type = 32  # MOSTLY_BF16
    block_bytes = 2

    def encode(self, weights: np.ndarray) -> np.ndarray:
        bits = weights.view(np.uint32)
        rounded = bits + 0x7FFF + (bits >> 16 & 1)  # ties go to the even upper half
        quiet_nan = bits | 0x00400000  # a NaN of low bits only must not become inf
        upper = np.where(np.isnan(weights), quiet_nan, rounded) >> 16
        return upper.astype("<u2").view(np.uint8)

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


class PlainNumber(ReadOnlyFormat):
    """One number per weight, rounded to float32; a float64 may be NaN or inf."""

    block_size = 1
    finite_only = False
    gguf_file_type = 0  # ALL_F32; there is no file type of these
    dtype: ClassVar[str]

    def dequantize_blocks(self, data: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # a float64 beyond float32 is inf, and `doctor` counts it
            return data.view(self.dtype).astype(np.float32)


class I8(PlainNumber):
    name, gguf_type, block_bytes, dtype = "i8", 24, 1, "<i1"


class I16(PlainNumber):
    name, gguf_type, block_bytes, dtype = "i16", 25, 2, "<i2"


class I32(PlainNumber):
    name, gguf_type, block_bytes, dtype = "i32", 26, 4, "<i4"


class I64(PlainNumber):
    name, gguf_type, block_bytes, dtype = "i64", 27, 8, "<i8"


class F64(PlainNumber):
    name, gguf_type, block_bytes, dtype = "f64", 28, 8, "<f8"
