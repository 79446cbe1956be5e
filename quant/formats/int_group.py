"""Symmetric integers with one scale per group of input features, in compressed-tensors' packed layout."""

import numpy as np

from quant.errors import InputError
from quant.formats.base import CHUNK_WEIGHTS, Format
from quant.formats.half import to_half
from quant.formats.int_packing import pack_int32, packed_words, unpack_int32
from quant.qtensor import QTensor

SMALLEST_SCALE = np.float32(2.0**-24)  # smallest float16 above 0: a scale of 0 would divide by 0 in other readers


class IntGroupFormat(Format):
    """weight = scale * (q - zero_point), q signed, zero_point 0: what compressed-tensors calls "pack-quantized".

    parts   weight_packed [N, ceil(K * bits / 32)] int32   q + 2**(bits - 1), densely packed
            weight_scale  [N, K // group_size]     float16 ([N, 1] per channel: one output row)

    Scales are float16: a dtype that NumPy, safetensors and torch share (NumPy has no bfloat16), with 3 bits
    more mantissa than bfloat16 and half the bytes of float32. dequantize_ref multiplies in float32, which is
    what a model loaded in float32 computes.
    """

    bits: int
    group_size: int | None  # None: per channel
    symmetric = True

    def __init__(self, name: str, bits: int, group_size: int | None) -> None:
        self.name = name
        self.bits = bits
        self.group_size = group_size
        self.block_size = group_size or 1

    @property
    def qmin(self) -> int:
        return -(1 << self.bits - 1)

    @property
    def qmax(self) -> int:
        return (1 << self.bits - 1) - 1

    @property
    def bits_per_weight(self) -> float:
        """Codes and group scales; a per-channel scale adds 16 / K, which only size_bytes can know."""
        return self.bits + (16 / self.group_size if self.group_size else 0)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """raises InputError if this is no matrix [N, K] that the format can hold."""
        if len(shape) != 2:
            raise InputError(f"{self.name} holds matrices [N, K], got shape {shape}")
        self.check_row(shape[1])

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        self.check_shape(shape)
        return shape[0] * (4 * packed_words(shape[1], self.bits) + 2 * self.num_groups(shape[1]))

    def num_groups(self, row_size: int) -> int:
        return row_size // self.group_size if self.group_size else 1

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        """Round to nearest; the scale maps the largest magnitude of a group to half the code range."""
        self.check_shape(weight.shape)
        num_rows, row_size = weight.shape
        packed = np.empty((num_rows, packed_words(row_size, self.bits)), dtype=np.int32)
        scale = np.empty((num_rows, self.num_groups(row_size)), dtype=np.float16)
        step = max(1, CHUNK_WEIGHTS // row_size)
        for start in range(0, num_rows, step):
            rows = slice(start, start + step)
            scale[rows], q = self._round(np.ascontiguousarray(weight[rows], dtype=np.float32))
            packed[rows] = pack_int32(q, self.bits)
        return QTensor(self.name, (num_rows, row_size), {"weight_packed": packed, "weight_scale": scale})

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        self.check_shape(qtensor.shape)
        packed, scale = qtensor.parts["weight_packed"], qtensor.parts["weight_scale"]
        if qtensor.size_bytes != self.size_bytes(qtensor.shape):
            raise InputError(
                f"{self.name} of shape {qtensor.shape} takes {self.size_bytes(qtensor.shape)} bytes, "
                f"got {qtensor.size_bytes}"
            )
        num_rows, row_size = qtensor.shape
        weight = np.empty((num_rows, row_size), dtype=np.float32)
        step = max(1, CHUNK_WEIGHTS // row_size)
        for start in range(0, num_rows, step):
            rows = slice(start, start + step)
            q = unpack_int32(packed[rows], self.bits, row_size)  # [n, K] int8
            groups = q.reshape(len(q), scale.shape[1], -1)  # [n, G, group_size]
            weight[rows] = (scale[rows].astype(np.float32)[:, :, None] * groups).reshape(len(q), row_size)
        return weight

    def _round(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """weight [n, K] float32 -> scale [n, G] float16, q [n, K] int8"""
        groups = weight.reshape(len(weight), self.num_groups(weight.shape[1]), -1)  # [n, G, group_size]
        absmax = np.abs(groups).max(axis=2)
        if not np.isfinite(absmax).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")
        scale = to_half(np.maximum(absmax / np.float32((self.qmax - self.qmin) / 2), SMALLEST_SCALE))
        q = np.rint(groups / scale.astype(np.float32)[:, :, None])
        return scale, np.clip(q, self.qmin, self.qmax).astype(np.int8).reshape(weight.shape)
