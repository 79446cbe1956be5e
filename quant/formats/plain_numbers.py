"""GGUF's numbers of one weight each that are no format of weights: float64 and integers."""

from typing import ClassVar

import numpy as np

from quant.formats.read_only import ReadOnlyFormat


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
