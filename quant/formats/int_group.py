"""Integers with one scale, and where asymmetric one zero point, per group of input features."""

import re
from types import ModuleType

import numpy as np

from quant.errors import InputError
from quant.formats.base import CHUNK_WEIGHTS
from quant.formats.bits import HALF_MAX, pack_int32, packed_words, to_half, unpack_int32
from quant.formats.codes import Codes
from quant.formats.integer_format import IntegerFormat, integer_kernels
from quant.qtensor import QTensor

SMALLEST_SCALE = np.float32(2.0**-24)  # smallest float16 above 0: a scale of 0 would divide by 0 in other readers
BITS = (2, 3, 4, 8)
NAME = re.compile(r"w([2348])(?:g([1-9]\d*))?(-asym)?")  # w4g128-asym: bits, group size (absent: per channel), symmetry


class IntGroupFormat(IntegerFormat):
    """weight = scale * (q - zero_point), q signed: "pack-quantized" in compressed-tensors.

    parts   weight_packed      [N, ceil(K * bits / 32)] int32   q + 2**(bits - 1), densely packed
            weight_scale       [N, G] float16                   G = K / group_size; 1 per channel: one output row
            weight_zero_point  [N, G] int8                      of asymmetric formats alone; otherwise 0
    shared  g_idx              [K] int32                        group of each input feature, if it is not
                                                                k // group_size (GPTQ in act-order)

    Scales are float16: a dtype that NumPy, safetensors and torch share (NumPy has no bfloat16), with 3 bits
    more mantissa than bfloat16 and half the bytes of float32. dequantize_ref multiplies in float32, as a model loaded
    in float32 does.
    """

    def __init__(self, bits: int, group_size: int | None, symmetric: bool = True) -> None:
        self.bits = bits
        self.group_size = group_size  # None: per channel
        self.symmetric = symmetric
        self.block_size = group_size or 1
        # The scale of a symmetric group ends here; weights on one side of 0 reach twice as far.
        self.largest_weight = (self.qmax - self.qmin) / 2 * HALF_MAX
        self.name = f"w{bits}" + (f"g{group_size}" if group_size else "") + ("" if symmetric else "-asym")

    @classmethod
    def parse(cls, name: str) -> "IntGroupFormat | None":
        """The format that a name like "w4g128" or "w3g64-asym" means; None for other names."""
        match = NAME.fullmatch(name)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]) if match[2] else None, symmetric=match[3] is None)

    @property
    def qmin(self) -> int:
        return -(1 << self.bits - 1)

    @property
    def qmax(self) -> int:
        return (1 << self.bits - 1) - 1

    @property
    def bits_per_weight(self) -> float:
        """Codes, group scales and zero points; per channel they add 16 or more / K, which only size_bytes can know."""
        return self.bits + (8 * self._group_bytes / self.group_size if self.group_size else 0)

    @property
    def _group_bytes(self) -> int:
        return 2 if self.symmetric else 3

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of parts; a g_idx adds 4 for each input feature, which only its QTensor can know."""
        self.check_shape(shape)
        return shape[0] * (4 * packed_words(shape[1], self.bits) + self._group_bytes * self.num_groups(shape[1]))

    def num_groups(self, row_size: int) -> int:
        return row_size // self.group_size if self.group_size else 1

    def _round(self, kernels: ModuleType, weight: np.ndarray) -> dict[str, np.ndarray]:
        group_size = self.group_size or weight.shape[1]
        packed, scale, zero_point = kernels.quantize_groups(weight, self.bits, group_size, self.symmetric)
        parts = {"weight_packed": packed, "weight_scale": scale}
        return parts if self.symmetric else {**parts, "weight_zero_point": zero_point}

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        """Round to nearest on the grid that `fit` gives each group."""
        self.check_shape(weight.shape)
        num_rows, row_size = weight.shape
        q = np.empty((num_rows, row_size), dtype=np.int8)
        scale = np.empty((num_rows, self.num_groups(row_size)), dtype=np.float16)
        zero_point = np.zeros(scale.shape, dtype=np.int8)
        step = max(1, CHUNK_WEIGHTS // row_size)
        for start in range(0, num_rows, step):
            rows = slice(start, start + step)
            groups = weight[rows].astype(np.float32, copy=False).reshape(-1, scale.shape[1], row_size // scale.shape[1])
            scale[rows], zero_point[rows] = self.fit(groups)
            codes = np.rint(groups / scale[rows].astype(np.float32)[:, :, None]) + zero_point[rows][:, :, None]
            q[rows] = np.clip(codes, self.qmin, self.qmax).reshape(-1, row_size)
        return self.pack(q, scale, zero_point)

    def fit(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The grid that spans each group's weights.

        groups    [..., group_size] float32
        returns   scale [...] float16 above 0; zero_point [...] int8, 0 where symmetric
        raises    InputError for NaN and inf
        """
        lowest, highest = np.minimum(groups.min(axis=-1), 0), np.maximum(groups.max(axis=-1), 0)
        self._check_values(lowest)
        self._check_values(highest)
        steps = np.float32(self.qmax - self.qmin)  # each end is divided before they are added: the span may be inf
        spanned = np.maximum(-lowest, highest) / (steps / 2) if self.symmetric else highest / steps - lowest / steps
        scale = to_half(np.maximum(spanned, SMALLEST_SCALE))
        if self.symmetric:
            return scale, np.zeros(scale.shape, dtype=np.int8)
        zero_point = np.rint(self.qmin - lowest / scale.astype(np.float32))
        return scale, np.clip(zero_point, self.qmin, self.qmax).astype(np.int8)

    def pack(
        self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None, g_idx: np.ndarray | None = None
    ) -> QTensor:
        """The tensor of these codes: q [N, K] int8, scale [N, G] float16, zero_point [N, G] int8, g_idx [K] int32."""
        self.check_shape(q.shape)
        parts = {"weight_packed": pack_int32(np.ascontiguousarray(q), self.bits), "weight_scale": scale}
        if not self.symmetric:
            parts["weight_zero_point"] = np.zeros(scale.shape, dtype=np.int8) if zero_point is None else zero_point
        shared = {} if g_idx is None else {"g_idx": np.ascontiguousarray(g_idx, dtype=np.int32)}
        return QTensor(self.name, q.shape, parts, shared)

    def unpack(self, qtensor: QTensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """q [N, K] int8, scale [N, G] float16, zero_point [N, G] int8 and g_idx [K] int32 or None."""
        self._check_parts(qtensor)
        scale = qtensor.parts["weight_scale"]
        zero_point = qtensor.parts.get("weight_zero_point")
        q = unpack_int32(qtensor.parts["weight_packed"], self.bits, qtensor.shape[1])
        return q, scale, np.zeros(scale.shape, np.int8) if zero_point is None else zero_point, self._g_idx(qtensor)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        q, scale, zero_point, g_idx = self.unpack(qtensor)
        if g_idx is not None:
            raise InputError(
                f"{self.name}: features in act-order cannot be cut, since groups are spread over all of them"
            )
        groups = slice(None)
        if self.group_size:
            groups = slice(columns.start // self.group_size, columns.stop // self.group_size)
        some = (np.ascontiguousarray(part) for part in (q[:, columns], scale[:, groups], zero_point[:, groups]))
        return self.pack(*some)

    def dequantize(self, qtensor: QTensor) -> np.ndarray:
        kernels = integer_kernels()
        if kernels is None:
            return self.dequantize_ref(qtensor)
        self._check_parts(qtensor)
        packed, scale, zero_point, g_idx = (
            array if array is None else np.ascontiguousarray(array)
            for array in (
                qtensor.parts["weight_packed"],
                qtensor.parts["weight_scale"],
                qtensor.parts.get("weight_zero_point"),
                self._g_idx(qtensor),
            )
        )
        return kernels.dequantize_groups(packed, scale, zero_point, self.bits, qtensor.shape[1], g_idx)

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        num_rows, row_size = qtensor.shape
        group_of = self._g_idx(qtensor)
        if group_of is None:
            group_of = np.arange(row_size) // (self.group_size or row_size)
        weight = np.empty((num_rows, row_size), dtype=np.float32)
        step = max(1, CHUNK_WEIGHTS // row_size)
        for start in range(0, num_rows, step):
            rows = slice(start, min(start + step, num_rows))
            some = {part: array[rows] for part, array in qtensor.parts.items()}
            q, scale, zero_point, _ = self.unpack(QTensor(self.name, (rows.stop - start, row_size), some))
            codes = q.astype(np.float32) - zero_point.astype(np.float32)[:, group_of]
            weight[rows] = scale.astype(np.float32)[:, group_of] * codes
        return weight

    def weight_codes(self, qtensor: QTensor) -> Codes:
        row_size = qtensor.shape[1]
        q, scale, zero_point, g_idx = self.unpack(qtensor)
        group_of = np.arange(row_size) // (self.group_size or row_size) if g_idx is None else g_idx
        level = q.astype(np.int16) - zero_point[:, group_of]
        at_end = (q == self.qmin) | (q == self.qmax)
        scale = scale.astype(np.float32)[:, group_of]
        return Codes(level, at_end, scale, 1 << self.bits, self.group_size or row_size, signed=False)

    def _g_idx(self, qtensor: QTensor) -> np.ndarray | None:
        g_idx = qtensor.shared.get("g_idx")
        num_groups = self.num_groups(qtensor.shape[1])
        if g_idx is not None and (g_idx.shape != qtensor.shape[1:] or g_idx.min() < 0 or g_idx.max() >= num_groups):
            raise InputError(
                f"{self.name}: g_idx must give each of {qtensor.shape[1]} features a group below {num_groups}"
            )
        return g_idx

    def _check_values(self, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")

    def _check_parts(self, qtensor: QTensor) -> None:
        self.check_shape(qtensor.shape)
        got = sum(array.nbytes for array in qtensor.parts.values())
        if got != self.size_bytes(qtensor.shape):
            raise InputError(
                f"{self.name} of shape {qtensor.shape} takes {self.size_bytes(qtensor.shape)} bytes, got {got}"
            )
