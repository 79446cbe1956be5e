"""Formats of linears in 4-bit floats, as compressed-tensors packs them: common code of nvfp4a16 and mxfp4a16."""

from abc import abstractmethod

import numpy as np

from quant.errors import InputError
from quant.formats.base import Format
from quant.formats.codes import Codes
from quant.formats.e2m1 import E2M1_MAX, E2M1_VALUES, pack_pairs, unpack_pairs
from quant.qtensor import QTensor


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
