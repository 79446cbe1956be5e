"""Formats of linears that round their input, too: int8 codes with a float32 scale for each row of the weight."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from quant.formats.integer_kernels import IntegerFormat
from quant.qtensor import QTensor


class ActivationFormat(IntegerFormat):
    """A format whose linear computes y = fake_quantize_input(x) @ dequantize(weight).T, in integers if possible.

    has_input_scale    whether the scale of an input follows from its values
    static_inputs      whether one scale, found by calibration, holds for all inputs
    """

    block_size = 1
    has_input_scale: bool = True
    static_inputs: bool = False

    @property
    def bits_per_weight(self) -> float:
        """Codes; the scales add 32 / K, which only size_bytes can know."""
        return 8.0

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Codes and scales. Parts that calibration adds, an input's scale or outliers' weights, are only known to a
        QTensor.
        """
        self.check_shape(shape)
        return shape[0] * (shape[1] + 4)

    def take_columns(self, qtensor: QTensor, columns: slice) -> QTensor:
        return self._with_weight(qtensor, np.ascontiguousarray(qtensor.parts["weight"][:, columns]))

    def add_zero_column(self, qtensor: QTensor) -> QTensor:
        """The matrix [N, K + 1]: a last input feature that adds nothing, so its input may set the scale of a token."""
        return self._with_weight(qtensor, np.pad(qtensor.parts["weight"], ((0, 0), (0, 1))))

    def _with_weight(self, qtensor: QTensor, weight: np.ndarray) -> QTensor:
        return QTensor(self.name, weight.shape, {**qtensor.parts, "weight": weight}, qtensor.shared)

    def with_input_absmax(self, qtensor: QTensor, absmax: float) -> QTensor:
        """The tensor with the scale that spans inputs of this magnitude, where activations are static."""
        if not self.static_inputs:
            return qtensor
        shared = {"input_scale": self.scale_of_absmax(np.array([absmax], dtype=np.float32))}
        return QTensor(qtensor.format, qtensor.shape, qtensor.parts, shared)

    def scale_of_absmax(self, absmax: np.ndarray) -> np.ndarray:
        """float32 -> float32: the scale of inputs up to this magnitude"""
        raise NotImplementedError(f"{self.name} has no static activations")

    @abstractmethod
    def input_absmax(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32 -> [M, 1] float32: the magnitude that sets each token's scale, if `has_input_scale`

        The magnitude of a matrix in several pieces of columns is the largest of theirs.
        """

    @abstractmethod
    def fake_quantize_input(self, x: np.ndarray, shared: Mapping[str, np.ndarray]) -> np.ndarray:
        """x [M, K] float32, all tokens of one call -> [M, K] float32: the input as the linear rounds it.

        shared   of the weight's QTensor
        """
