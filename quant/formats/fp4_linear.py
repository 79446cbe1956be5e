"""Formats of linears in 4-bit floats, as compressed-tensors packs them: nvfp4a16, mxfp4a16, and both turned.

A turned format first multiplies each block of a row by a Hadamard matrix of its size. An outlier then spreads over the
weights that share its scale. The inputs of a linear take the same matrix, which is symmetric and its own inverse, so
y = (x H) (W H)^T = x W^T. compressed-tensors calls that a transform of the type "hadamard", at the locations "input"
and "weight_input".
"""

from abc import abstractmethod

import numpy as np

from quant.errors import InputError
from quant.formats.base import Format
from quant.formats.bits import pack_nibbles, unpack_nibbles
from quant.formats.codes import Codes
from quant.formats.fp4 import MXFP4
from quant.formats.small_floats import (
    E2M1_MAX,
    E2M1_VALUES,
    E4M3_MAX,
    E4M3_VALUES,
    pack_pairs,
    to_e2m1,
    to_e4m3,
    unpack_pairs,
)
from quant.qtensor import QTensor
from quant.turn import hadamard_runs


class Fp4Format(Format):
    """weight = scale of its group * e2m1

    parts   weight_packed   [N, K / 2] uint8: pairs of codes
            weight_scale    [N, K / block_size] uint8
    """

    scale_bits = 8

    @property
    def bits_per_weight(self) -> float:
        return 4 + self.scale_bits / self.block_size

    def check_matrix(self, shape: tuple[int, ...]) -> None:
        """raises InputError if this is no matrix [N, K] of whole groups"""
        if len(shape) != 2:
            raise InputError(f"{self.name} holds matrices [N, K], got shape {shape}")
        self.check_row(shape[1])

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        self.check_matrix(shape)
        return shape[0] * (shape[1] // 2 + shape[1] // self.block_size)

    @abstractmethod
    def scale_candidates(self, absmax: np.ndarray, global_scale: np.ndarray) -> list[np.ndarray]:
        """Scales that may suit groups of these magnitudes, the plain one first, each [N, G] uint8.

        absmax         [N, G] float32
        global_scale   [N, 1] float32, of `global_scale_of`
        """

    @abstractmethod
    def scale_values(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        """[N, G] uint8 -> float32"""

    def global_scale_of(self, weight: np.ndarray) -> np.ndarray:
        """[N, 1] float32, the same in every row; 1 in a format without one"""
        return np.ones((len(weight), 1), dtype=np.float32)

    def pack(self, codes: np.ndarray, scale: np.ndarray, global_scale: np.ndarray) -> QTensor:
        """codes [N, K] uint8 in 0..15, scale [N, K / block_size] uint8, global_scale [N, 1] float32"""
        return QTensor(self.name, codes.shape, {"weight_packed": pack_pairs(codes), "weight_scale": scale})

    @abstractmethod
    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        """[N, K / block_size] float32"""

    def _levels(self, qtensor: QTensor) -> tuple[np.ndarray, np.ndarray]:
        """(level, scale) of each weight, [N, K] float32"""
        self.check_matrix(qtensor.shape)
        level = E2M1_VALUES[unpack_pairs(qtensor.parts["weight_packed"])]
        return level, np.repeat(self.read_scale(qtensor), self.block_size, axis=1)

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        level, scale = self._levels(qtensor)
        return level * scale

    def weight_codes(self, qtensor: QTensor) -> Codes:
        level, scale = self._levels(qtensor)
        at_end = np.abs(level) == E2M1_MAX
        return Codes(level, at_end, scale, len(E2M1_VALUES), self.block_size, signed=True)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        groups = slice(columns.start // self.block_size, columns.stop // self.block_size)
        parts = {
            **qtensor.parts,
            "weight_packed": qtensor.parts["weight_packed"][:, columns.start // 2 : columns.stop // 2],
            "weight_scale": qtensor.parts["weight_scale"][:, groups],
        }
        shape = (qtensor.shape[0], columns.stop - columns.start)
        return QTensor(self.name, shape, {name: np.ascontiguousarray(part) for name, part in parts.items()})

    def check_finite(self, weight: np.ndarray) -> None:
        """raises InputError for NaN and infinities"""
        if not np.isfinite(weight).all():
            raise InputError(f"{self.name} holds finite weights, got NaN or inf; check the source")


SMALLEST_ABSMAX = np.float32(2.0**-100)  # of a tensor: below, the global scale would overflow
# Parts of the scale that brings the largest magnitude to 6: below 1 it is clipped, at 1.5 it comes to 4.
SHARES = np.array([1, 1.5, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7], dtype=np.float32)
SCALE_OF_ZEROS = np.uint8(0x20)  # 0.125 as E4M3, compressed-tensors' own for a group that rounds to a scale of 0


class Nvfp4A16(Fp4Format):
    """weight = e4m3(s) / global * e2m1(q); inputs are not rounded

    parts   weight_scale          [N, K / 16] uint8   bytes of E4M3
            weight_global_scale   [N, 1] float32      448 * 6 / absmax of the tensor, the same in every row

    The scale of a group brings its largest magnitude to 6.
    source  NVIDIA, NVFP4; compressed-tensors, generate_gparam and calculate_qparams
    """

    name = "nvfp4a16"
    block_size = 16
    rows_stand_alone = False

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        return super().size_bytes(shape) + 4 * shape[0]

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        groups = np.ascontiguousarray(weight, dtype=np.float32).reshape(len(weight), -1, self.block_size)
        absmax = np.abs(groups).max(axis=2)  # [N, K / 16]
        global_scale = self.global_scale_of(weight)
        scale = self.scale_candidates(absmax, global_scale)[0]
        codes = to_e2m1(groups / self.scale_values(scale, global_scale)[:, :, None])
        return self.pack(codes.reshape(weight.shape), scale, global_scale)

    def global_scale_of(self, weight: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(weight).max(), SMALLEST_ABSMAX).astype(np.float32)
        # A product with the reciprocal, as torch divides a number by a tensor.
        return np.full((len(weight), 1), E4M3_MAX * E2M1_MAX * (1 / largest), dtype=np.float32)

    def scale_candidates(self, absmax: np.ndarray, global_scale: np.ndarray) -> list[np.ndarray]:
        scales = [to_e4m3(absmax / E2M1_MAX * global_scale * share) for share in SHARES]
        return [np.where(scale == 0, SCALE_OF_ZEROS, scale) for scale in scales]

    def scale_values(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        return E4M3_VALUES[scale] / global_scale

    def pack(self, codes: np.ndarray, scale: np.ndarray, global_scale: np.ndarray) -> QTensor:
        packed = super().pack(codes, scale, global_scale)
        return QTensor(self.name, packed.shape, {**packed.parts, "weight_global_scale": global_scale})

    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        return self.scale_values(qtensor.parts["weight_scale"], qtensor.parts["weight_global_scale"])


BLOCKS = MXFP4()


class Mxfp4A16(Fp4Format):
    """weight = 2**(e - 127) * e2m1(q); inputs are not rounded

    parts   weight_scale   [N, K / 32] uint8   the exponents e
    """

    name = "mxfp4a16"
    block_size = 32

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        return from_blocks(BLOCKS.quantize(weight, importance=importance, effort=effort))

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        self.check_finite(weight)
        return from_blocks(BLOCKS.quantize_ref(weight))

    def scale_candidates(self, absmax: np.ndarray, global_scale: np.ndarray) -> list[np.ndarray]:
        """The power of two that brings the largest magnitude to 4 to 8, and the next one."""
        exponent = np.frexp(absmax)[1] - 1 - 2 + 127
        return [np.clip(exponent + more, 0, 252).astype(np.uint8) for more in (0, 1)]

    def scale_values(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        return np.ldexp(np.float32(1), scale.astype(np.int32) - 127)

    def read_scale(self, qtensor: QTensor) -> np.ndarray:
        return self.scale_values(qtensor.parts["weight_scale"], np.ones(1, dtype=np.float32))


def from_blocks(qtensor: QTensor) -> QTensor:
    """A matrix of mxfp4 -> the same in mxfp4a16"""
    blocks = qtensor.parts["blocks"].reshape(qtensor.shape[0], -1, BLOCKS.block_bytes)
    codes = unpack_nibbles(blocks[:, :, 1:]).reshape(qtensor.shape)
    parts = {"weight_packed": pack_pairs(codes), "weight_scale": np.ascontiguousarray(blocks[:, :, 0])}
    return QTensor(Mxfp4A16.name, qtensor.shape, parts)


def to_blocks(qtensor: QTensor) -> QTensor:
    """A matrix of mxfp4a16 -> the same in mxfp4, which has kernels"""
    scale = qtensor.parts["weight_scale"]
    codes = unpack_pairs(qtensor.parts["weight_packed"]).reshape(*scale.shape, BLOCKS.block_size)
    blocks = np.concatenate([scale[:, :, None], pack_nibbles(codes)], axis=2)
    return QTensor(BLOCKS.name, qtensor.shape, {"blocks": blocks.reshape(len(scale), -1)})


SUFFIX = "-had"  # of a format's name


class TurnedFp4(Fp4Format):
    """weight = (weight of the plain format) H; parts and bytes are those of the plain format

    source   Egiazarian et al. 2025, arXiv:2509.23202 (MR-GPTQ): a Hadamard matrix of the size of the format's groups
    """

    @property
    def plain_name(self) -> str:
        """The format of the same codes without a turn."""
        return self.name.removesuffix(SUFFIX)

    def turn(self, values: np.ndarray) -> np.ndarray:
        """values [..., K] float32 -> values H; the turned values turned again are the values"""
        return hadamard_runs(values, self.block_size)

    def quantize_ref(self, weight: np.ndarray) -> QTensor:
        self.check_matrix(weight.shape)
        return self._named(super().quantize_ref(self.turn(weight)))

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        self.check_matrix(weight.shape)
        if importance is not None:  # every feature of a block gets an equal part of each turned one
            means = importance.reshape(-1, self.block_size).mean(axis=1)
            importance = np.repeat(means, self.block_size).astype(np.float32)
        return self._named(super().quantize(self.turn(weight), importance=importance, effort=effort))

    def dequantize_ref(self, qtensor: QTensor) -> np.ndarray:
        return self.turn(super().dequantize_ref(qtensor))

    def plain(self, qtensor: QTensor) -> QTensor:
        """The same codes as the format without a turn, which the turned inputs are multiplied with."""
        return QTensor(self.plain_name, qtensor.shape, qtensor.parts)

    def _named(self, qtensor: QTensor) -> QTensor:
        return QTensor(self.name, qtensor.shape, qtensor.parts)


class TurnedNvfp4(TurnedFp4, Nvfp4A16):
    name = f"nvfp4a16{SUFFIX}"

    def quantize(self, weight: np.ndarray, *, importance: np.ndarray | None = None, effort: str = "fast") -> QTensor:
        return self.quantize_ref(weight)


class TurnedMxfp4(TurnedFp4, Mxfp4A16):
    name = f"mxfp4a16{SUFFIX}"


TURNED_FP4_FORMATS = {fmt.name: fmt for fmt in (TurnedNvfp4(), TurnedMxfp4())}
